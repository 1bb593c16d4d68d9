"""Many quantiles of one window: one sort, or a sort each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import catchment as ct
from benchmarks.baselines import Baseline
from benchmarks.events import Workload, ours, workload
from benchmarks.figure import Figure, at_least
from benchmarks.timing import in_turns, ratio, typical

QUERIES = 1000
RATE = 100_000


def figures(quick: bool = False) -> Iterator[Figure]:
    """1000 quantiles against DeSW, which shares nothing between two of them."""
    from benchmarks.baselines import DeSW

    events, runs = (200_000, 1) if quick else (300_000, 3)
    load = workload(events, RATE, batch=RATE)
    shares = [number / (QUERIES - 1) for number in range(QUERIES)]
    queries = [
        ct.Query(f"q{n}", ct.quantile("v", q), window=ct.tumbling("1s"))
        for n, q in enumerate(shares)
    ]
    times = in_turns(runs, [ours(queries, load), baseline(DeSW, queries, load)], warm_up=False)
    yield at_least(
        "1000 quantiles of one window",
        ratio(times, 1, 0),
        "times DeSW",
        20,
        f"{QUERIES:,} quantiles of a tumbling window of 1 s; {load.detail}; "
        f"{events / typical(times, 0) / 1e6:.2g} M events/s; median of {runs} runs",
    )


def baseline(
    kind: type[Baseline], queries: Sequence[ct.Query], load: Workload
) -> Callable[[], Callable[[], int]]:
    """Prepares a fresh baseline; it is timed over the same steps as the engine."""

    def prepare() -> Callable[[], int]:
        state = kind(queries)

        def run() -> int:
            rows = 0
            for table, frontier in load.steps:
                state.push(table)
                rows += sum(len(answer.keys) for answer in state.advance(frontier))
            return rows

        return run

    return prepare
