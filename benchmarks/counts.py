"""What is counted rather than timed: operator calls and slices (Desis, figures 9b and 8b)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import catchment as ct
from benchmarks.events import SECOND, Workload, drive, tumbling, workload
from benchmarks.figure import Figure, exactly
from catchment.engine.stats import Stats

RATE = 1_000
MINUTES = 2


def figures(quick: bool = False) -> Iterator[Figure]:
    """Operator calls per event, and slices per minute."""
    del quick  # counts are exact on any number of events
    detail = _load().detail
    lengths = [(1 + number % 50) * SECOND for number in range(100)]
    stats = _stats(tumbling(lengths, ct.avg("v"), ct.sum("v"), by="k"))
    yield exactly(
        "operator calls, 100 windows, average and sum",
        stats.operator_calls / stats.events,
        "per event",
        2,
        f"50 lengths of 1 to 50 s, each of an average and a sum; {detail}",
    )
    lengths = [(1 + number % 10) * SECOND for number in range(1000)]
    stats = _stats(tumbling(lengths, ct.avg("v"), by="k"))
    yield exactly(
        "slices, 1000 tumbling windows of 1 to 10 s",
        stats.slices / MINUTES,
        "per minute",
        60,
        f"whole seconds; {MINUTES} minutes; {detail}",
    )


def _load() -> Workload:
    return workload(MINUTES * 60 * RATE, RATE, batch=10 * RATE, keys=10)


def _stats(queries: Sequence[ct.Query]) -> Stats:
    engine = ct.Engine(queries)
    drive(engine, _load().steps)
    engine.advance(MINUTES * 60 * SECOND)
    return engine.stats
