"""Scotty's workload: a sum over windows whose edges hardly ever coincide, and a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np

import catchment as ct
from benchmarks.events import Workload, ours, tumbling, workload
from benchmarks.figure import Figure, at_least, plain
from benchmarks.timing import Clock, in_turns, ratio, typical

WINDOWS = 1000
RATE = 100_000
BATCH, SMALL = 4_000_000, 1_000_000
"""Events pushed before the results are read. Each reading makes a table for each of the thousand
queries, so how many events share that cost decides the figure: 40 and 10 seconds' worth here."""
SLICES = 100
"""Slices per second of event time in the plain pass."""


class Share(NamedTuple):
    """A speed as a share of the plain pass's, and the bar of large batches."""

    name: str
    value: float
    bar: float
    detail: str


UNIT = "of one reduceat pass"


def figures(quick: bool = False) -> Iterator[Figure]:
    """Against a plain pass over slices, in order and with late events."""
    for share in shares(quick, BATCH):
        yield at_least(share.name, share.value, UNIT, share.bar, share.detail)
    for share in shares(quick, SMALL):
        yield plain(f"{share.name}, batches of {SMALL:,}", share.value, UNIT, share.detail)


def shares(quick: bool, batch: int, clock: Clock = perf_counter) -> Iterator[Share]:
    """In order, then with late events, the results read after every batch."""
    events, runs = (8_000_000, 3) if quick else (24_000_000, 5)
    lengths = np.random.default_rng(13).integers(1_000, 20_001, WINDOWS) * 1000
    queries = tumbling(lengths.tolist(), ct.sum("v"))
    queries.append(ct.Query("session", ct.sum("v"), window=ct.session("1s")))
    what = f"sum over {WINDOWS:,} tumbling windows of 1 to 20 s in whole ms, a session of gap 1 s"
    loads = [workload(events, RATE, batch=batch, pauses=5, late=late) for late in (False, True)]
    actions = [one_pass(loads[0]), *(ours(queries, load) for load in loads)]
    times = in_turns(runs, actions, clock=clock)
    for which, (load, bar) in enumerate(zip(loads, (0.08, 0.03), strict=True), 1):
        name = "unkeyed sum, 1000 random windows and a session" + ", late events" * (which > 1)
        speed = f"{events / typical(times, which) / 1e6:.0f} M events/s; median of {runs} runs"
        yield Share(name, ratio(times, 0, which), bar, f"{what}; {load.detail}; {speed}")


def one_pass(load: Workload) -> Callable[[], Callable[[], object]]:
    """A plain sum of each slice of the same events, in order."""
    step = RATE // SLICES
    columns = [(values, np.arange(0, len(values), step)) for values in load.column("v")]
    return lambda: lambda: [np.add.reduceat(values, starts) for values, starts in columns]
