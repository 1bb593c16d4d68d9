"""Hypothesis strategies: random queries of all kinds together, events, batches, frontiers, nodes.

Times and durations are small multiples of one unit, so that edges, gaps and events collide often.
Numbers are multiples of 1/4 of modest size, so that sums in doubles are exact in any order. Two
columns are decimals, of few digits and of as many as Spark has, and one is unsigned; rows have
these as decimals, with the scale of their column: so the oracle knows them from integers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from hypothesis import strategies as st

from catchment.model.calendar import time_zone
from catchment.model.query import Aggregate, Query
from catchment.model.window import READINGS, Window
from catchment.testing.oracle import Row, Step
from catchment.windows import (
    between,
    count_sliding,
    count_tumbling,
    count_within,
    cumulate,
    cut,
    fixed,
    session,
    sliding,
    tumbling,
)

T = TypeVar("T")

UNITS = (1, 1_000, 1_000_000)
SPAN = 40
"""Events lie within this many units of the base."""
BASES = (0, -20, 1_000_003)
"""In units: the epoch, before and after it, a time that no window is aligned to."""

_COLUMNS: dict[str, pa.DataType] = {
    "ts": pa.timestamp("us", "UTC"),
    "k": pa.string(),
    "j": pa.int64(),
    "v": pa.float64(),
    "n": pa.int64(),
    "d": pa.decimal128(12, 2),
    "w": pa.decimal128(38, 3),
    "u": pa.uint64(),
    "s": pa.string(),
    "m": pa.bool_(),
    "id": pa.int64(),
}
SCHEMA = pa.schema(_COLUMNS)
KINDS = (
    "tumbling",
    "sliding",
    "session",
    "cut",
    "between",
    "count_tumbling",
    "count_sliding",
    "fixed",
    "cumulate",
    "calendar",
)
CHAINED = ("limited_session", "gaps_of_events", "count_within")
"""Kinds of windows that late events cannot correct: each begins where the one before ends."""
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia")
NUMERIC = (
    "sum",
    "avg",
    "range",
    "product",
    "geometric_mean",
    "variance",
    "variance_pop",
    "stddev",
    "stddev_pop",
    "median",
    "quantile",
    "quantiles",
    "quantile_disc",
    "sum_distinct",
    "avg_distinct",
)
ORDERED = ("min", "max", "mode", "first", "last", "any_value", "count", "count_distinct")
TRUTHS = ("bool_and", "bool_or")
BITS = ("bit_and", "bit_or", "bit_xor")
EXTREMES_BY = ("max_by", "min_by")
OF_PAIRS = (
    "covar_pop",
    "covar_samp",
    "corr",
    "regr_count",
    "regr_avgx",
    "regr_avgy",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
    "regr_slope",
    "regr_intercept",
    "regr_r2",
)
LISTS = ("collect_list", "collect_set", "listagg")
SHAPES = ("skewness", "kurtosis")
COUNTED = ("top_k", "approx_top_k", "histogram_numeric", "ewma")
SERIES = ("time_weighted_avg", "increase", "rate")
"""Functions to which the order of events matters, which not all windows and rules go with."""
EXACT = (*NUMERIC, *ORDERED, *TRUTHS, *BITS, *EXTREMES_BY, *OF_PAIRS, *SHAPES, *LISTS, *COUNTED)
"""All functions that are drawn whose results are exact."""
SKETCHES = (
    "hll_sketch_agg",
    "theta_sketch_agg",
    "kll_sketch_agg_bigint",
    "kll_sketch_agg_double",
    "kll_sketch_agg_float",
)
APPROXIMATE = (
    "approx_median",
    "approx_quantile",
    "approx_count_distinct",
    "quantile_dd",
    *SKETCHES,
)
DECIMALS = ("d", "w", "u", "d + n", "d * 3", "-w", "d - w", "abs(d)")
NUMBERS = ("v", "n", "v * n", "v / n", "n + 1", "CASE WHEN m THEN v ELSE 0.5 END", *DECIMALS)
CONDITIONS = (
    "v > 0",
    "v <= 0",
    "k = 'a'",
    "k = 'b'",
    "k <> 'a'",
    "n IN (1, 2)",
    "n = 4",
    "m",
    "NOT m",
    "v IS NULL",
    "d > 0",
    "w <= 0.25",
    "u > 3",
    "s LIKE 'x%'",
    "n % 2 = 0",
    "v > 1 AND n < 2",
    "v BETWEEN -1 AND 1 OR k IS NULL",
)
PAIRS = (
    ("v", "n"),
    ("s", "v"),
    ("d", "s"),
    ("n", "w"),
    ("w", "u"),
    ("m", "d"),
    ("s", "m"),
    ("u", "n"),
)
MODEST = ("v", "d", "j", "id", "v * 2", "d + 1", "CASE WHEN m THEN v ELSE 0.5 END")
"""Numbers whose third powers and products do not cancel beyond what doubles hold."""
MODEST_PAIRS = ("v", "d"), ("d", "v"), ("v", "id"), ("id", "j"), ("v * 2", "v"), ("j", "d + 1")
WHOLE = ("n", "n + 1", "j", "length(s)")
MARKERS = ("m", "n > 0", "v > 1", "k = 'a' AND m", "s IS NULL", "NOT m")


@dataclass(frozen=True)
class Scenario:
    """Everything one random run needs; `oracle_run(queries, steps, **settings)` is the truth."""

    queries: list[Query]
    steps: list[Step]
    lateness: int
    late: str
    keep: int | None
    nodes: list[int]
    """For each event in order of arrival, the node (0, 1, ...) where it arises."""

    @property
    def events(self) -> list[Row]:
        return [row for step in self.steps if step[0] == "push" for row in step[1]]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings in the form that the engine and the oracle take."""
        kept = {} if self.keep is None else {"keep": f"{self.keep}us"}
        return {"lateness": f"{self.lateness}us", "late": self.late, **kept}


def to_table(events: Sequence[Row]) -> pa.Table:
    """Generated events as an Arrow table; no events give an empty table of the same columns."""
    rows = [
        row if row.get("u") is None else {**row, "u": int(row["u"])} for row in map(dict, events)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def values(special: bool = False, huge: bool = False) -> st.SearchStrategy[Row]:
    """An event but its time; `special` adds NaN and infinities, `huge` integers that overflow."""
    quarters = [i / 4 for i in range(-12, 13)]
    odd = [-0.0, math.nan, math.inf, -math.inf] if special else [0.0]
    whole = [-2, -1, 0, 1, 2, 4]
    large = [2**62, -(2**62), 2**63 - 1] if huge else []
    cents = [Decimal(25 * i).scaleb(-2) for i in range(-12, 13)]
    wide = [Decimal("0.250"), Decimal("-1.500"), Decimal("0.001"), Decimal("12345678901234567.125")]
    wide += [Decimal("9" + 34 * "0" + ".000")] if huge else []
    wide += [value.copy_negate() for value in wide]
    unsigned = [Decimal(0), Decimal(3), Decimal(2**64 - 1)]
    return st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", "å", None]),
            "j": st.sampled_from([0, 1, None]),
            "v": _one_of([None], quarters, odd),
            "n": _one_of([None], whole, large),
            "d": _one_of([None], cents),
            "w": _one_of([None], wide),
            "u": _one_of([None], unsigned),
            "s": st.sampled_from(["x", "xy", "", "z", None]),
            "m": st.sampled_from([True, False, False, None]),
            "id": st.integers(0, 5),
        }
    )


def _one_of(*lists: list[Any]) -> st.SearchStrategy[Any]:
    """A value of one of some lists, each of them as often as another.

    Two draws, of the list and then of the value, would take twice as long: most of the time of a
    property test goes into drawing its events.
    """
    some = [values for values in lists if values]
    size = math.lcm(*map(len, some))
    return st.sampled_from([value for values in some for value in values * (size // len(values))])


@st.composite
def events(
    draw: st.DrawFn,
    unit: int = 1_000_000,
    base: int = 0,
    max_size: int = 40,
    special: bool = False,
    huge: bool = False,
) -> list[Row]:
    """Events in order of arrival: mostly in order of time, with ties, duplicates and stragglers.

    In some draws all events share a few instants, so that windows of one key have equal bounds.
    """
    # The size is drawn first: lists left to themselves stay short.
    size = draw(st.integers(0, max_size))
    delays = st.sampled_from([0, 0, 0, 2, 6, 12, SPAN])
    event = st.tuples(st.integers(0, SPAN), delays, values(special, huge))
    drawn = draw(st.lists(event, min_size=size, max_size=size))
    drawn.sort(key=lambda e: e[0] + e[1])
    grain = draw(st.sampled_from([1, 1, 1, 8, 20]))
    made = [{"ts": (base + at // grain * grain) * unit, **row} for at, _, row in drawn]
    for i in draw(st.lists(st.integers(0, max(len(made) - 1, 0)), max_size=3)):
        if made:
            made.append(dict(made[i]))
    return made


class Dice(Protocol):
    """What a window is drawn with: `random.Random`, or Hypothesis behind the same two methods."""

    def choice(self, seq: Sequence[T], /) -> T: ...

    def randint(self, a: int, b: int, /) -> int: ...


def _drawn_chained(dice: Dice, kind: str, length: int, other: int, unit: int) -> Window:
    """A window that begins where the one before ends."""
    if kind == "limited_session":
        longest = dice.choice([None, f"{length * unit}us"])
        fewest = dice.choice([1, 2, 3]) if longest is not None else dice.choice([2, 3])
        return session(f"{min(other, 5) * unit}us", max_length=longest, min_events=fewest)
    if kind == "gaps_of_events":
        longest = dice.choice([None, None, f"{length * unit}us"])
        seconds = dice.choice(["v", "n", "abs(v)"])
        gap = seconds if unit == 1_000_000 else f"{seconds} / {1_000_000 // unit}"
        return session(gap_from=gap, max_length=longest, min_events=dice.choice([1, 1, 2]))
    return count_within(min(length, 6), f"{other * unit}us")


def drawn_window(
    dice: Dice,
    kinds: Sequence[str],
    unit: int = 1_000_000,
    base: int = 0,
    readings: Sequence[str] = READINGS,
    corrected: bool = False,
) -> Window:
    """A window of one of the kinds, in one of those readings that it takes; with `corrected`, in
    one by which late events may correct it."""
    window = _drawn_window(dice, kinds, unit, base)
    taken = [replace(window, reading=how) for how in window.readings if how in readings]
    if corrected:
        taken = [one for one in taken if one.stream_reading is None or one.by_node]
    return dice.choice(taken) if len(taken) > 1 else [*taken, window][0]


def _drawn_window(dice: Dice, kinds: Sequence[str], unit: int, base: int) -> Window:
    kind, length, other = dice.choice(list(kinds)), dice.randint(1, 12), dice.randint(1, 12)
    offset = f"{dice.choice([0, 0, 1, 5]) * unit}us"
    if kind == "tumbling":
        return tumbling(f"{length * unit}us", offset=offset)
    if kind == "sliding":
        return sliding(f"{length * unit}us", f"{other * unit}us", offset=offset)
    if kind == "session":
        return session(f"{dice.randint(1, 5) * unit}us")
    if kind == "cut":
        return cut(dice.choice(MARKERS))
    if kind == "between":
        return between(dice.choice(MARKERS), dice.choice(MARKERS))
    if kind == "count_tumbling":
        return count_tumbling(min(length, 6))
    if kind == "count_sliding":
        return count_sliding(min(length, 6), min(other, 6))
    if kind == "cumulate":
        step = min(length, 4)
        size = step * min(other, 6)
        return cumulate(f"{size * unit}us", f"{step * unit}us", offset=offset)
    if kind in CHAINED:
        return _drawn_chained(dice, kind, length, other, unit)
    if kind == "calendar":  # a day begins while events come
        zone, edge = dice.choice(ZONES), (base + dice.randint(0, SPAN)) * unit
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=edge)
        ahead = at.astimezone(time_zone(zone)).utcoffset() or timedelta()
        clock = (edge + ahead // timedelta(microseconds=1)) % 86_400_000_000
        length, slide = dice.choice([(1, 1), (1, 1), (2, 1), (1, 2)])
        return sliding(f"{length}d", f"{slide}d", offset=f"{clock}us", zone=zone)
    start = (base + dice.randint(-5, SPAN)) * unit
    assert kind == "fixed", f"say here how {kind} is drawn"
    return fixed(start, start + length * unit)


PERIODIC = tuple(kind for kind in KINDS if drawn_window(random.Random(0), [kind]).periods)
"""The kinds whose edges are known ahead of the data."""


class _Drawn:
    """Dice that Hypothesis throws, and makes smaller where a test fails."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def choice(self, seq: Sequence[T], /) -> T:
        return self._draw(st.sampled_from(seq))

    def randint(self, a: int, b: int, /) -> int:
        return self._draw(st.integers(a, b))


@st.composite
def windows(
    draw: st.DrawFn,
    unit: int = 1_000_000,
    base: int = 0,
    kinds: Sequence[str] = KINDS,
    readings: Sequence[str] = READINGS,
    corrected: bool = False,
) -> Window:
    """A window of one of the kinds, in one of those readings that it takes."""
    return drawn_window(_Drawn(draw), kinds, unit, base, readings, corrected)


def columns_for(function: str) -> list[str | None]:
    """The columns that a function is drawn over; without one it is of whole events.

    Spreads are in doubles, which have not the digits to tell large decimals apart.
    """
    if function in TRUTHS:
        return list(CONDITIONS)
    if function in EXTREMES_BY:
        return [f"arguments({one}, {other})" for one, other in PAIRS]
    if function in OF_PAIRS:
        return [f"arguments({one}, {other})" for one, other in MODEST_PAIRS]
    if function in (*SHAPES, *SERIES, "histogram_numeric", "ewma", "kll_sketch_agg_float"):
        return list(MODEST)
    if function == "listagg":
        return ["s", "k", "upper(s)"]
    if function in (*BITS, "kll_sketch_agg_bigint"):
        return list(WHOLE)
    if function in ("hll_sketch_agg", "theta_sketch_agg"):
        return [*WHOLE, "s"]
    if function == "count":
        return [None, "v", "m", "s"]
    if function in ("min", "max", "mode"):
        return [*NUMBERS, "s"]
    if (
        function in (*ORDERED, *LISTS, "top_k", "approx_top_k")
        or function == "approx_count_distinct"
    ):
        return [*NUMBERS, "s", "m"]
    spread = function.startswith(("variance", "stddev"))
    return [number for number in NUMBERS if not (spread and "w" in number)]


PARAMS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "listagg": ((), (", ",)),
    "theta_sketch_agg": ((), (10,)),
    "top_k": ((), (1,), (2,)),
    "approx_top_k": ((1,), (2, 1000)),
    "histogram_numeric": ((100,),),
    "quantile_dd": ((0.5,), (0.9, 0.05), (0.0, 0.2)),
    "ewma": (("5s",), ("3us",), ("1h",)),
    "time_weighted_avg": ((), ("linear",)),
}
"""What follows the column of a function; shares of quantiles are drawn by themselves."""


@st.composite
def aggregates(draw: st.DrawFn, approximate: bool = False) -> Aggregate:
    """Any function over a column that suits it."""
    functions = EXACT + (APPROXIMATE if approximate else ())
    function = draw(st.sampled_from(functions))
    column = draw(st.sampled_from(columns_for(function)))
    share = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.95, 1.0])
    shared = ("quantile", "quantile_disc", "approx_quantile")
    params: tuple[Any, ...] = (draw(share),) if function in shared else ()
    if function == "quantiles":
        params = tuple(draw(st.lists(share, min_size=1, max_size=3)))
    return Aggregate(function, column, draw(st.sampled_from(PARAMS.get(function, (params,)))))


@st.composite
def queries(
    draw: st.DrawFn,
    unit: int = 1_000_000,
    base: int = 0,
    max_size: int = 5,
    approximate: bool = False,
    kinds: Sequence[str] = KINDS,
    readings: Sequence[str] = READINGS,
    corrected: bool = False,
) -> list[Query]:
    """One to `max_size` queries of all window types, named q0, q1, ..."""
    made = []
    for number in range(draw(st.integers(1, max_size))):
        wanted = draw(st.lists(aggregates(approximate), min_size=1, max_size=4))
        window = draw(windows(unit, base, kinds, readings, corrected))
        repeats = draw(st.integers(0, 5)) == 0 and window.reading == "global"
        made.append(
            Query(
                f"q{number}",
                *(a.alias(f"a{i}") for i, a in enumerate(wanted)),
                window=window,
                by=draw(st.sampled_from([(), (), ("k",), ("j",), ("k", "j")])),
                where=draw(st.none() | st.none() | st.sampled_from(CONDITIONS)),
                distinct_on=draw(st.sampled_from([("id",), ("k", "n")])) if repeats else (),
                distinct_within=f"{draw(st.integers(1, 20)) * unit}us",
            )
        )
    return made


@st.composite
def steps(draw: st.DrawFn, rows: list[Row], unit: int, base: int, late: bool) -> list[Step]:
    """The events cut into batches (some empty), frontier steps between them, a close at the end.

    Frontiers lie around the newest event so far; stragglers are late, unless `late` is False.
    """
    count = draw(st.integers(0, 6))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), min_size=count, max_size=count)))
    made: list[Step] = []
    for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        made.append(("push", rows[first:last]))
        if draw(st.integers(0, 3)):
            newest = max((row["ts"] for row in rows[:last]), default=base * unit)
            at = newest + draw(st.integers(-10, 6)) * unit + draw(st.sampled_from([0, 0, 1]))
            ahead = [row["ts"] for row in rows[last:]]
            made.append(("advance", at if late else min([at, *ahead])))
    return [*made, ("close",)]


@st.composite
def scenarios(
    draw: st.DrawFn,
    late: str | None = None,
    max_queries: int = 5,
    max_events: int = 40,
    special: bool = False,
    huge: bool = False,
    approximate: bool = False,
    max_nodes: int = 3,
    kinds: Sequence[str] = KINDS,
    readings: Sequence[str] = READINGS,
) -> Scenario:
    """A whole random run: queries, events, batches, frontiers, settings and nodes.

    `late` is "none" (no event is ever late), "drop" or "update"; None draws one of the three.
    What late events may correct is not cut on its node.
    """
    unit, base = draw(st.sampled_from(UNITS)), draw(st.sampled_from(BASES))
    mode = late or draw(st.sampled_from(["none", "drop", "update"]))
    rows = draw(events(unit, base, max_events, special, huge))
    kept = st.sampled_from([3, 12, 2 * SPAN, 2 * SPAN])
    return Scenario(
        queries=draw(
            queries(
                unit,
                base,
                max_queries,
                approximate,
                kinds,
                readings,
                mode == "update",
            )
        ),
        steps=draw(steps(rows, unit, base, mode != "none")),
        lateness=0 if mode == "none" else draw(st.sampled_from([0, 0, 1, 4])) * unit,
        late="drop" if mode == "none" else mode,
        keep=draw(kept) * unit if mode == "update" else None,
        nodes=draw(node_splits(len(rows), max_nodes)),
    )


def node_splits(size: int, max_nodes: int = 3) -> st.SearchStrategy[list[int]]:
    """The node at which each of `size` events arises."""
    return st.lists(st.integers(0, max_nodes - 1), min_size=size, max_size=size)
