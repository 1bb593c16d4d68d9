"""Queries that come and go again and again: what may be given of each, judged by brute force.

The rule that every runtime is held to. Let a query be added when the newest event that anybody has
seen is at N. Every window that is given of it is exact, whether it began before or after N, and every
window that begins after N (a session: after N plus its gap) is given. Ranks of count windows start
with the events after N, deduplication with the events that arrive after the query: unless a query
that is there has the same windows, or drops the same duplicates, already. A query that is removed
gives no window after that; with `drain`, those that began by the newest event of that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

import catchment as ct
from catchment.model.window import READINGS, Counted, Gap, Marked
from catchment.testing.compare import same
from catchment.testing.oracle import Step, oracle_run
from catchment.testing.strategies import KINDS, UNITS, Scenario, queries

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


def drawn(
    data: st.DataObject, scenario: Scenario, others: Sequence[ct.Query], name: str,
    kinds: Sequence[str] = KINDS, readings: Sequence[str] = READINGS, distinct: bool = True,
) -> ct.Query:  # fmt: skip
    """A query that often shares its keys, selection, window or functions with one that is there."""
    times = [row["ts"] for row in scenario.events]
    assume(len(times) > 2)
    unit = max(unit for unit in UNITS if all(time % unit == 0 for time in times))
    assume(max(times) - min(times) <= 100 * unit)
    base = min(times) // unit
    made = data.draw(queries(unit, base, max_size=1, kinds=kinds, readings=readings))[0]
    like = data.draw(st.sampled_from([*others, made]))
    aggregates = like.aggregates if data.draw(st.booleans()) else made.aggregates
    window = like.window if not data.draw(st.integers(0, 3)) else made.window
    shared = like if data.draw(st.integers(0, 3)) else made
    by_stream = isinstance(window, Marked) and window.reading != "global"
    repeats = shared.distinct_on if distinct and not by_stream else ()
    return ct.Query(
        name, *aggregates, window=window, by=shared.by, where=shared.where,
        distinct_on=repeats, distinct_within=f"{shared.distinct_within or 1}us",
    )  # fmt: skip


def judge(life: Life, lives: Sequence[Life], steps: Sequence[Step], settings: Any) -> None:
    """What a query gave is right, each window once, and none is missing that must be there."""
    query, name = life.query, life.query.name
    found = [(number, stripped(query, row)) for number, row in life.rows]
    truths = [
        {
            number: [stripped(query, row) for row in results[name]]
            for number, results in zip(numbers, oracle_run([query], seen, **settings), strict=True)
        }
        for seen, numbers in _views(life, lives, steps)
    ]
    left = next((rest for truth in truths if (rest := _rest(found, truth)) is not None), None)
    assert left is not None, f"wrong: {life}\nnot among {truths}"
    reach = life.newest + (query.window.gap if isinstance(query.window, Gap) else 0)
    if isinstance(query.window, Marked) and life.newest > NEVER:
        return  # whether a window is open is known only after an event that tells
    missed = [
        row for number, row in left
        if number >= life.added and (life.newest == NEVER or row["window_start"] > reach)
        and (
            life.removed is None or number < life.removed
            or (life.drain and row["window_start"] <= life.until)
        )
    ]  # fmt: skip
    assert not missed, f"missed: {missed}\nof {life}"
    if life.removed is not None:
        more = [
            row for number, row in found
            if number >= life.removed and not (life.drain and row["window_start"] <= life.until)
        ]  # fmt: skip
        assert not more, f"after it was removed: {more}\nof {life}"


def stripped(query: ct.Query, row: Row) -> Row:
    """Without the numbers of windows that are counted from the first that a query saw."""
    if isinstance(query.window, Marked) and query.window.reading == "ordered":
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
            yield [
                (step[0], [row for row in step[1] if number >= arrival and row["ts"] > time])
                if step[0] == "push" else step
                for number, step in enumerate(steps)
            ], numbers  # fmt: skip


def _rest(
    found: list[tuple[int, Row]], truth: dict[int, list[Row]]
) -> list[tuple[int, Row]] | None:
    """What is true but was not given; None when something given is not true."""
    left = [(number, row) for number, rows in truth.items() for row in rows]
    for number, row in found:
        place = matching(row, [other if at == number else {} for at, other in left])
        if place is None:
            return None
        left.pop(place)
    return left


def matching(row: Row, rows: Sequence[Row]) -> int | None:
    for place, other in enumerate(rows):
        if row.keys() == other.keys() and all(same(other[c], row[c]) for c in row):
            return place
    return None


def without_repeats(scenario: Scenario) -> Scenario:
    """With queries that drop no duplicates."""
    plain = [replace(query, distinct_on=(), distinct_within=0) for query in scenario.queries]
    return replace(scenario, queries=plain)
