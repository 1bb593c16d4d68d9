"""A million queries of which no two are alike: to plan them, and to change and move such a plan.

Each size is measured in a process of its own, whose memory is then that of the plan.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TypeVar

import catchment as ct
from benchmarks.figure import Figure, below, plain
from benchmarks.process import environment, gigabytes, python
from benchmarks.random_queries import random_queries
from catchment.planner import explain, replan

QUERIES = 1_000_000
RUNNING = 100_000
"""Queries of a plan that is changed, written and explained."""


def figures(quick: bool = False) -> Iterator[Figure]:
    """Seconds and memory to plan; seconds to add a query, to write and read a plan, to explain."""
    found = alone(QUERIES // 10 if quick else QUERIES)
    what = (
        f"{found['queries']:,.0f} distinct random queries: keys, windows, functions, measures of "
        f"time, {found['conditions']:,.0f} conditions; {found['groups']:,.0f} groups"
    )
    yield below("distinct queries, planned", found["plan"], "s", 60, what)
    yield below("distinct queries, memory", found["gigabytes"], "GB", 4, what)
    yield plain("distinct queries, made", found["make"], "s", f"{what}; drawn and checked")
    running = alone(RUNNING, "running")
    what = f"{RUNNING:,} distinct random queries in {running['groups']:,.0f} groups"
    yield below("one query added to a plan", running["add"], "s", 2, what)
    size = f"{what}; {running['bytes'] / 1e6:.0f} MB"
    yield plain("a plan written", running["write"], "s", size)
    yield plain("a plan read", running["read"], "s", size)
    yield plain("a plan explained", running["explain"], "s", what)


def alone(queries: int, *words: str) -> dict[str, float]:
    """What `measure` finds in a process of its own."""
    done = subprocess.run(
        python("benchmarks.planning", queries, *words),
        env=environment(),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(number: int, running: bool) -> dict[str, float]:
    """Makes and plans the queries; of a `running` plan, also what is done with it."""
    make, queries = _timed(lambda: list(random_queries(number)))
    plan, made = _timed(lambda: ct.plan(queries))
    found = {
        "queries": len(queries),
        "conditions": len({query.where for query in queries}),
        "groups": len(made.groups),
        "make": make,
        "plan": plan,
        "gigabytes": gigabytes(),
    }
    return found | (_changed(made, queries) if running else {})


def _changed(made: ct.Plan, queries: list[ct.Query]) -> dict[str, float]:
    more = ct.Query("more", ct.sum("v0"), by="k0", where="v0 < 0", window=ct.tumbling("7s"))
    add, _ = _timed(lambda: replan(made, [*queries, more]))
    write, data = _timed(made.to_bytes)
    read, again = _timed(lambda: ct.Plan.from_bytes(data))
    assert again == made
    told, _ = _timed(lambda: explain(made))
    return {"add": add, "write": write, "read": read, "bytes": len(data), "explain": told}


T = TypeVar("T")


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    """The seconds that something takes, and what it gives."""
    begin = perf_counter()
    done = work()
    return perf_counter() - begin, done


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(int(sys.argv[1]), "running" in sys.argv)))
