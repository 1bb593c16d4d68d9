"""What the language costs: cubes, lookbacks, many functions, calendars, early results.

Each figure sets one query, or one set of queries, against a plainer one over the same events, by
the time that processors worked: in one process, whatever else the machine does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import process_time
from typing import Any

import numpy as np
import pyarrow as pa

import catchment as ct
from benchmarks.events import Step, Workload, drive, ours, workload
from benchmarks.figure import Figure, at_least, at_most
from benchmarks.timing import Prepare, in_turns, ratio
from catchment.engine.bound import BoundPlan
from catchment.model.rules import EventRules
from catchment.planner import plan
from catchment.planner.edges import LATEST

FUNCTIONS = (
    *("avg", "sum", "count", "min", "max", "range", "variance", "variance_pop", "stddev"),
    *("stddev_pop", "skewness", "kurtosis", "product", "geometric_mean", "first", "last"),
    *("any_value", "bool_and", "bool_or", "approx_count_distinct"),
)
"""Twenty functions of one column."""


def figures(quick: bool = False) -> Iterator[Figure]:
    """All of them; `quick` takes fewer events."""
    events, runs = (200_000, 1) if quick else (2_000_000, 5)
    yield from cube(events, runs)
    yield lookbacks(events, runs)
    yield functions(events, runs)
    yield calendar(events, runs)
    yield early(events, runs)


def _in_turns(runs: int, actions: Sequence[Prepare]) -> list[list[float]]:
    return in_turns(runs, actions, clock=process_time)


def _keyed(events: int, keys: Sequence[int], rate: int, batch: int) -> Workload:
    """Events with several keys, named a, b and so on, and truths."""
    made = workload(events, rate, batch=batch)
    random = np.random.default_rng(5)
    steps = []
    for table, frontier in made.steps:
        columns: dict[str, Any] = {n: table.column(n) for n in table.column_names}
        for name, size in zip("abcd", keys, strict=False):
            columns[name] = pa.array(random.integers(0, size, table.num_rows))
        columns["t"] = pa.array(random.random(table.num_rows) < 0.5)
        steps.append(Step(pa.table(columns), frontier))
    sizes = " by ".join(f"{size:,}" for size in keys)
    return Workload(tuple(steps), events, f"{made.detail}, {sizes} keys")


def cube(events: int, runs: int) -> Iterator[Figure]:
    """Sixteen sets of four keys, of which the finest has as many rows as events allow."""
    load = _keyed(events, (20, 10, 5, 3), 20_000, 100_000)
    keys = ["a", "b", "c", "d"]
    chosen = [[key for bit, key in enumerate(keys) if sets >> bit & 1] for sets in range(16)]
    values = ct.sum("v").alias("s"), ct.count().alias("n"), ct.max("v").alias("m")
    window = ct.tumbling("10s")
    finest = ct.Query("finest", *values, by=keys, window=window)
    whole = ct.Query("cube", *values, by=keys, window=window, grouping_sets=chosen)
    times = _in_turns(runs, [ours([finest], load), ours([whole], load)])
    yield at_most(
        "a cube of four keys, time",
        ratio(times, 1, 0),
        "times its finest set",
        1.3,
        f"16 sets, three functions, tumbling 10 s; {load.detail}; median of {runs} runs",
    )
    yield at_most(
        "a cube of four keys, bytes on a link",
        _sent(whole, load) / _sent(finest, load),
        "times its finest set",
        1.05,
        f"partials of a node that reads all events; {load.detail}",
    )


def _sent(query: ct.Query, load: Workload) -> int:
    """The bytes of the partials that a node sends of a query."""
    bound = BoundPlan(plan([query]), EventRules("ts"), load.steps[0].table.schema)
    merger = bound.merger()
    slicer = bound.slicer(encoder=merger.encoder)
    total = 0
    for table, frontier in load.steps:
        for sliced in slicer.slice(table):
            merger.add(sliced)
        total += sum(part.nbytes for part in merger.release(frontier).groups.values())
    return total + sum(part.nbytes for part in merger.release(LATEST).groups.values())


def lookbacks(events: int, runs: int) -> Figure:
    """The last ten seconds, twenty seconds and so on, as of each 500 seconds, of many keys."""
    load = workload(events, events // 2_000, keys=100_000, batch=events // 8)
    hundred = [
        ct.Query(f"q{n}", ct.sum("v").alias("s"), by="k", window=ct.sliding(f"{n}0s", "500s"))
        for n in range(1, 101)
    ]
    times = _in_turns(runs, [ours(hundred[-1:], load), ours(hundred, load)])
    return at_least(
        "100 lookbacks of 100,000 keys",
        ratio(times, 0, 1),
        "of the speed of one",
        0.8,
        "sums of the last 10 to 1000 seconds, as of every 500 seconds, as results of their own; "
        f"{load.detail}; every result is read; median of {runs} runs",
    )


def functions(events: int, runs: int) -> Figure:
    """Twenty functions of one column together."""
    load = _keyed(events, (100,), 100_000, 200_000)
    window = ct.tumbling("1s")

    def made(name: str) -> ct.Query:
        column = "t" if name.startswith("bool") else "v"
        aggregate = ct.Aggregate(name, column, (), name)
        return ct.Query(name, aggregate, by="a", window=window)

    every = [made(name) for name in FUNCTIONS]
    times = _in_turns(runs, [ours(every[:1], load), ours(every, load)])
    return at_most(
        "20 functions together",
        ratio(times, 1, 0),
        "times avg alone",
        3,
        f"{', '.join(FUNCTIONS)}, tumbling 1 s; {load.detail}; median of {runs} runs",
    )


def calendar(events: int, runs: int) -> Figure:
    """Days by the clocks of a zone against days of 24 hours."""
    load = workload(events, 4, keys=100, batch=events // 10)
    fixed = ct.Query("fixed", ct.avg("v"), by="k", window=ct.tumbling("1d"))
    local = ct.Query("local", ct.avg("v"), by="k", window=ct.tumbling("1d", zone="Europe/Berlin"))
    times = _in_turns(runs, [ours([fixed], load), ours([local], load)])
    return at_least(
        "days of a zone",
        ratio(times, 0, 1),
        "of the speed of days of 24 hours",
        0.9,
        f"avg by key, Europe/Berlin; {load.detail}; median of {runs} runs",
    )


def early(events: int, runs: int) -> Figure:
    """Running values every ten seconds of windows of a minute."""
    load = workload(events, 10_000, keys=100, batch=10_000)
    query = ct.Query("means", ct.avg("v"), by="k", window=ct.tumbling("1m"))

    def driven(emit: str) -> Callable[[], Callable[[], int]]:
        def prepare() -> Callable[[], int]:
            engine = ct.Engine([query], emit=emit)
            return lambda: drive(engine, load.steps)

        return prepare

    times = _in_turns(runs, [driven("final"), driven("every(10s)")])
    return at_least(
        "early results every 10 s",
        ratio(times, 0, 1),
        "of the speed of final results only",
        0.8,
        f"avg by key, tumbling 1 min, a frontier each second; {load.detail}; median of {runs} runs",
    )
