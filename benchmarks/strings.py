"""Keys that are strings: few of them, and very many."""

from __future__ import annotations

from collections.abc import Iterator

import catchment as ct
from benchmarks.events import SECOND, ours, tumbling, workload
from benchmarks.figure import Figure, at_least
from benchmarks.timing import in_turns, ratio, typical

MANY, FEW = 100_000, 10
RATE = 1_000_000


def figures(quick: bool = False) -> Iterator[Figure]:
    """The speed with very many keys against that with few."""
    events, runs = (4_000_000, 3) if quick else (16_000_000, 5)
    many = workload(events, RATE, keys=MANY, strings=True)
    few = workload(events, RATE, keys=FEW, strings=True)
    queries = tumbling([(1 + number) * SECOND for number in range(10)], ct.avg("v"), by="k")
    times = in_turns(runs, [ours(queries, few), ours(queries, many)])
    yield at_least(
        "100,000 string keys",
        ratio(times, 0, 1),
        "of the speed with 10 keys",
        0.25,
        f"avg over 10 tumbling windows of 1 to 10 s; {many.detail}; "
        f"{events / typical(times, 1) / 1e6:.1f} against {events / typical(times, 0) / 1e6:.0f} "
        f"M events/s; median of {runs} runs",
    )
