"""Against the baselines of the papers, by number of windows. For information: no bars."""

from __future__ import annotations

from collections.abc import Iterator

import catchment as ct
from benchmarks.baselines import Baseline, CeBuffer, DeBucket, DeSW
from benchmarks.events import SECOND, ours, tumbling, workload
from benchmarks.figure import Figure, plain
from benchmarks.quantiles import baseline
from benchmarks.timing import in_turns, ratio, typical

BASELINES: tuple[type[Baseline], ...] = (CeBuffer, DeBucket, DeSW)
FULL = {1: 1_000_000, 10: 1_000_000, 100: 200_000, 1000: 50_000}
"""Windows to events per second: buckets work per event and window, and should take seconds."""
QUICK = {1: 1_000_000, 10: 300_000, 100: 50_000}
BATCHES = 12
"""One batch is one second of event time: the longest window ends once."""


def figures(quick: bool = False) -> Iterator[Figure]:
    """How many times faster than each baseline."""
    for windows, rate in (QUICK if quick else FULL).items():
        load = workload(BATCHES * rate, rate, batch=rate, keys=10)
        lengths = [(1 + number % 10) * SECOND for number in range(windows)]
        queries = tumbling(lengths, ct.avg("v"), ct.sum("v"), by="k")
        runs = 1 if windows > 10 else 3
        actions = [ours(queries, load), *(baseline(kind, queries, load) for kind in BASELINES)]
        times = in_turns(runs, actions, warm_up=windows <= 10)
        speed = f"{load.events / typical(times, 0) / 1e6:.1f} M events/s"
        for place, kind in enumerate(BASELINES, 1):
            yield plain(
                f"{windows} windows, against {kind.__name__}",
                ratio(times, place, 0),
                f"times {kind.__name__}",
                f"tumbling windows of 1 to 10 s, averages and sums in turn; {load.detail}; {speed} "
                f"against {load.events / typical(times, place) / 1e6:.2g}; median of {runs} runs",
            )
