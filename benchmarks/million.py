"""A million queries: the seconds and the memory that they take, in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from time import perf_counter

import catchment as ct
from benchmarks.events import workload
from benchmarks.figure import Figure, below, plain
from benchmarks.process import environment, gigabytes, python
from catchment import functions

QUERIES = 1_000_000
LENGTHS = 100
FUNCTIONS = (
    "sum",
    "count",
    "avg",
    "min",
    "max",
    "range",
    "variance",
    "stddev",
    "product",
    "geometric_mean",
)


def figures(quick: bool = False) -> Iterator[Figure]:
    """Seconds and memory to plan, and proof that the plan runs."""
    del quick  # a million is the point
    found = alone(QUERIES)
    what = (
        f"{QUERIES:,} queries, {LENGTHS} sliding windows of 1 to {LENGTHS} s every second, "
        f"{len(FUNCTIONS)} functions each"
    )
    yield below("a million queries, planned", found["seconds"], "s", 60, what)
    yield below("a million queries, memory", found["gigabytes"], "GB", 4, f"{what}, after running")
    yield plain(
        "a million queries, result rows",
        found["rows"],
        "rows",
        f"{what}; {found['events']:,.0f} events pushed and 120 s of event time passed in "
        f"{found['run_seconds']:.1f} s; {found['read']:,.0f} queries' tables read",
    )


def alone(queries: int) -> dict[str, float]:
    """What `measure` finds in a process of its own."""
    done = subprocess.run(
        python("benchmarks.million", queries),
        env=environment(),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(queries: int) -> dict[str, float]:
    """Makes and plans the queries, then runs them over a few events."""
    begin = perf_counter()
    made = [_query(number) for number in range(queries)]
    engine = ct.Engine(made)
    planned = perf_counter() - begin
    load = workload(120_000, 1_000, batch=30_000, keys=10)
    begin = perf_counter()
    rows = 0
    for table, frontier in load.steps:
        engine.push(table)
        rows += (results := engine.advance(frontier)).rows()
    last = engine.close()
    rows += last.rows()
    some = [query.name for query in made[:: max(1, queries // 1000)]]
    read = sum(1 for name in some if results[name].num_rows or last[name].num_rows)
    return {
        "seconds": planned,
        "gigabytes": gigabytes(),
        "rows": rows,
        "read": read,
        "events": load.events,
        "run_seconds": perf_counter() - begin,
    }


def _query(number: int) -> ct.Query:
    """The combinations of windows and functions take turns."""
    function = FUNCTIONS[number % len(FUNCTIONS)]
    seconds = 1 + number // len(FUNCTIONS) % LENGTHS
    return ct.Query(
        f"query {number}",
        functions.make(function, "v", ()),
        by="k",
        window=ct.sliding(f"{seconds}s", "1s"),
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(int(sys.argv[1]))))
