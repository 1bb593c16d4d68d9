"""Queries that come and go again and again: what may be given of each, judged by brute force.

The rule that every runtime is held to. Let a query be added when the newest event that anybody
has seen is at N. Every window that is given of it is exact, whether it began before or after N, and
every window that begins after N (a session: after N plus its gap) is given. Ranks of count windows
start with the events after N, deduplication with the events that arrive after the query: unless a
query that is there has the same windows, or drops the same duplicates, already. A query that is
removed gives no window after that; with `drain`, those that began by the newest event then.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import catchment as ct
from catchment.model.costs import RECORDED, CostModel
from catchment.model.query import Aggregate, Expression, Ordering
from catchment.model.window import READINGS, Counted, Gap, Marked
from catchment.operators import operator_class
from catchment.planner.group import operators_of
from catchment.testing.compare import same
from catchment.testing.oracle import Step, oracle_run
from catchment.testing.strategies import (
    BASES,
    CONDITIONS,
    EXACT,
    KINDS,
    PARAMS,
    SPAN,
    UNITS,
    columns_for,
    drawn_window,
)

Row = dict[str, Any]
NEVER = -(1 << 62)


@dataclass
class Life:
    """A query from when it is added until it is removed; moments are numbers of steps."""

    query: ct.Query
    added: int = 0
    newest: int = NEVER
    """The newest event when it was added."""
    removed: int | None = None
    drain: bool = False
    until: int = NEVER
    """The newest event when it was removed."""
    rows: list[tuple[int, Row]] = field(default_factory=list)
    """What it gave, each with the number of the step."""


class Draw:
    """Queries, events and changes by seed; queries mostly share their keys, selection, functions.

    Only then what is kept for the others must serve a new one, and only what serves can be wrong.
    """

    def __init__(
        self,
        seed: int,
        kinds: Sequence[str] = KINDS,
        readings: Sequence[str] = READINGS,
        repeats: bool = True,
        unit: int | None = None,
    ) -> None:
        self.dice = random.Random(seed)
        self.outputs = random.Random(-1 - seed)
        self.kinds, self.readings, self.repeats = kinds, readings, repeats
        self.unit = unit or self.dice.choice(UNITS)
        self.base = self.dice.choice(BASES)
        self.families = [self._family() for _ in range(self.dice.choice([1, 1, 2]))]

    def _family(self) -> dict[str, Any]:
        dice = self.dice
        within = f"{dice.randint(1, 20) * self.unit}us"
        return {
            "by": dice.choice([(), (), ("k",), ("j",), ("k", "j")]),
            "where": dice.choice([None, None, None, *CONDITIONS]),
            "aggregates": [self._aggregate() for _ in range(dice.randint(1, 2))],
            "distinct": {
                "distinct_on": dice.choice([("id",), ("k", "n")]),
                "distinct_within": within,
            }
            if self.repeats and not dice.randrange(6)
            else {},
        }

    def _aggregate(self) -> Aggregate:
        dice = self.dice
        function = dice.choice(EXACT)
        params: tuple[Any, ...] = (
            (dice.choice([0.0, 0.25, 0.5, 1.0]),) if "quantile" in function else ()
        )
        if function in PARAMS:
            params = dice.choice(PARAMS[function])
        return Aggregate(function, dice.choice(columns_for(function)), params)

    def query(self, name: str, kinds: Sequence[str] | None = None) -> ct.Query:
        dice = self.dice
        family = self._family() if not dice.randrange(8) else dice.choice(self.families)
        aggregates = family["aggregates"] if dice.randrange(4) else [self._aggregate()]
        window = drawn_window(dice, kinds or self.kinds, self.unit, self.base, self.readings)
        # Of a stream's own windows it is refused. Ranks are given after duplicates are dropped,
        # which brute force over the events since a query was added cannot say.
        by_stream = window.reading != "global"
        plain = by_stream or isinstance(window, Counted)
        return self._with_output(
            name,
            *(a.alias(f"a{n}") for n, a in enumerate(aggregates)),
            window=window,
            by=family["by"],
            where=family["where"],
            **({} if plain else family["distinct"]),
        )

    def _with_output(self, name: str, *aggregates: Aggregate, **options: Any) -> ct.Query:
        """The query, or one that makes something of its aggregates."""
        dice, count = self.outputs, Aggregate("count")
        plain = ct.Query(name, *aggregates, **options)
        if dice.random() < 0.6:
            return plain
        columns = [*aggregates, Expression("`count(*)` * 2 - 1", (count,), "odd")]
        made: dict[str, Any] = {"having": Expression("odd > 1 OR `count(*)` = 1", (count,))}
        together = bool(plain.window.periods) and not plain.window.by_node
        if together and dice.random() < 0.5:
            made["order_by"] = [Ordering(Expression("odd", ()), dice.random() < 0.5)]
            made["limit"] = dice.choice([None, 1, 2])
        ordered = any(operator_class(ref.kind).ordered(ref) for ref in operators_of([plain]))
        if together and plain.by and not ordered:
            made["grouping_sets"] = [plain.by, plain.by[1:], ()][: 1 + len(plain.by)]
        return ct.Query(name, *columns, **options, **made)

    def costs(self) -> CostModel:
        """The costs that plans are made by, or some that are up to a hundred times off."""
        names = CostModel.__struct_fields__ if self.dice.random() < 0.5 else ()
        off = {name: 10 ** self.dice.uniform(-2, 2) for name in names}
        return CostModel(**{name: getattr(RECORDED, name) * times for name, times in off.items()})

    def events(self, size: int) -> list[Row]:
        """In order of arrival: mostly in order of time, with ties and stragglers."""
        dice = self.dice
        times = [dice.randint(0, SPAN) for _ in range(size)]
        times.sort(key=lambda at: at + dice.choice([0, 0, 0, 2, 6, 12, SPAN]))
        return [self._event((self.base + at) * self.unit) for at in times]

    def _event(self, at: int) -> Row:
        dice = self.dice
        return {
            "ts": at,
            "k": dice.choice(["a", "b", None]),
            "j": dice.choice([0, 1, None]),
            "v": dice.choice([None, *(n / 4 for n in range(-12, 13))]),
            "n": dice.choice([None, -2, -1, 0, 1, 2, 4]),
            "d": dice.choice([None, *(Decimal(25 * n).scaleb(-2) for n in range(-12, 13))]),
            "w": dice.choice([None, Decimal("0.250"), Decimal("-12345678901234567.125")]),
            "u": dice.choice([None, Decimal(0), Decimal(3), Decimal(2**64 - 1)]),
            "s": dice.choice(["x", "xy", "", "z", None]),
            "m": dice.choice([True, False, False, None]),
            "id": dice.randint(0, 5),
        }

    def steps(self, rows: list[Row], late: bool) -> list[Step]:
        """The events in batches, frontiers around the newest event between them, and the end."""
        dice, made, at = self.dice, list[Step](), 0
        while at < len(rows):
            end = at + dice.randint(1, 4)
            made.append(("push", rows[at:end]))
            at = end
            if dice.randrange(3):
                newest = max(row["ts"] for row in rows[:at])
                to = newest + dice.randint(-10, 6) * self.unit + dice.choice([0, 0, 1])
                made.append(("advance", to if late else min([to, *(r["ts"] for r in rows[at:])])))
        return [*made, ("close",)]


def judge(life: Life, lives: Sequence[Life], steps: Sequence[Step], timed: bool = True) -> None:
    """What a query gave is right, each window once, and none is missing that must be there.

    With `timed`, each window is given by the very step that completes it.
    """
    query, name = life.query, life.query.name
    found = [(number, stripped(query, row)) for number, row in life.rows]
    truths = [
        {
            number: [stripped(query, row) for row in results[name]]
            for number, results in zip(numbers, oracle_run([query], seen), strict=True)
        }
        for seen, numbers in _views(life, lives, steps)
    ]
    rests = [_rest(found, truth, timed) for truth in truths]
    lefts = [rest for rest in rests if rest is not None]
    assert lefts, f"wrong: {life}\nnot among {truths}"
    reach = life.newest + (query.window.gap if isinstance(query.window, Gap) else 0)
    if isinstance(query.window, Marked) and life.newest > NEVER:
        return  # whether a window is open is known only after an event that tells

    def missed(left: list[tuple[int, Row]]) -> list[Row]:
        return [
            row
            for number, row in left
            if number >= life.added
            and (life.newest == NEVER or row["window_start"] > reach)
            and (
                life.removed is None
                or number < life.removed
                or (life.drain and row["window_start"] <= life.until)
            )
        ]

    # What was given may be part of several truths: nothing may be missing of one of them.
    lacking = min((missed(left) for left in lefts), key=len)
    assert not lacking, f"missed: {lacking}\nof {life}"
    if life.removed is not None:
        more = [
            row
            for number, row in found
            if number >= life.removed and not (life.drain and row["window_start"] <= life.until)
        ]
        assert not more, f"after it was removed: {more}\nof {life}"


def stripped(query: ct.Query, row: Row) -> Row:
    """Without the numbers of windows that are counted from the first that a query saw."""
    if query.window.reading == "ordered":
        return {column: value for column, value in row.items() if column != "window_index"}
    return row


def _views(
    life: Life, lives: Sequence[Life], steps: Sequence[Step]
) -> Iterable[tuple[list[Step], list[int]]]:
    """The events that may count for a query: all of them, or those since a query was added."""
    before = [other for other in lives if other.added <= life.added]
    times, arrivals = {NEVER}, {0}
    if isinstance(life.query.window, Counted):
        times |= {other.newest for other in before}
    if life.query.distinct_on:
        arrivals |= {other.added for other in before}
    numbers = [number for number, step in enumerate(steps) if step[0] != "push"]
    for time in sorted(times):
        for arrival in sorted(arrivals):
            yield (
                [
                    (step[0], [row for row in step[1] if number >= arrival and row["ts"] > time])
                    if step[0] == "push"
                    else step
                    for number, step in enumerate(steps)
                ],
                numbers,
            )


def _rest(
    found: list[tuple[int, Row]], truth: dict[int, list[Row]], timed: bool
) -> list[tuple[int, Row]] | None:
    """What is true but was not given; None when something given is not true."""
    left = [(number, row) for number, rows in truth.items() for row in rows]
    for number, row in found:
        place = matching(row, [r if at == number or not timed else {} for at, r in left])
        if place is None:
            return None
        left.pop(place)
    return left


def matching(row: Row, rows: Sequence[Row]) -> int | None:
    for place, other in enumerate(rows):
        if row.keys() == other.keys() and all(same(other[c], row[c]) for c in row):
            return place
    return None
