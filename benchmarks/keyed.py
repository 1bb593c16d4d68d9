"""Desis's workload: averages by key over many tumbling windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

import catchment as ct
from benchmarks.events import SECOND, Workload, ours, tumbling, workload
from benchmarks.figure import Figure, at_least, plain
from benchmarks.timing import in_turns, ratio, typical

KEYS = 10
WINDOWS = 1000
RATE = 1_000_000
ONE = 5 * SECOND
"""The length of the one window that many are compared with."""


def figures(quick: bool = False) -> Iterator[Figure]:
    """Against a plain pass; against one window; with late events; with a session besides."""
    events, runs = (6_000_000, 3) if quick else (12_000_000, 5)
    order = workload(events, RATE, keys=KEYS)
    late = workload(events, RATE, keys=KEYS, late=True)
    many = tumbling(_whole_seconds(), ct.avg("v"), by="k")
    session = ct.Query("session", ct.avg("v"), by="k", window=ct.session("1s"))
    times = in_turns(
        runs,
        [
            one_pass(order),
            ours(many, order),
            ours(tumbling([ONE], ct.avg("v"), by="k"), order),
            ours(many, late),
            ours([*many, session], order),
            ours(tumbling(_milliseconds(), ct.avg("v"), by="k"), order),
        ],
    )
    speed = f"{events / typical(times, 1) / 1e6:.0f} M events/s; median of {runs} runs"
    what = f"avg over {WINDOWS:,} tumbling windows of 1 to 10 s"
    detail = f"{what}; {order.detail}; {speed}"
    name = "keyed average, 1000 windows"
    yield at_least(name, ratio(times, 0, 1), "of one bincount pass", 0.25, detail)
    yield at_least(f"{name}, against one", ratio(times, 2, 1), "of one window's speed", 0.8, detail)
    yield at_least(
        f"{name}, late events",
        ratio(times, 1, 3),
        "of the speed in order",
        0.5,
        f"{what}; {late.detail}; median of {runs} runs",
    )
    yield at_least(
        f"{name} and a session",
        ratio(times, 1, 4),
        "of the speed without",
        0.5,
        f"{what} and a session of gap 1 s; {order.detail}; median of {runs} runs",
    )
    yield plain(
        f"{name} of distinct milliseconds",
        ratio(times, 0, 5),
        "of one bincount pass",
        f"{WINDOWS:,} distinct lengths in whole milliseconds; {order.detail}; "
        f"{events / typical(times, 5) / 1e6:.0f} M events/s",
    )


def one_pass(load: Workload) -> Callable[[], Callable[[], object]]:
    """A plain sum by key of the same events, which no engine can beat in NumPy."""
    columns = list(zip(load.column("k"), load.column("v"), strict=True))
    return lambda: lambda: [np.bincount(keys, weights=values) for keys, values in columns]


def _whole_seconds() -> list[int]:
    return [(1 + number % 10) * SECOND for number in range(WINDOWS)]


def _milliseconds() -> list[int]:
    random = np.random.default_rng(11)
    return [int(ms) * 1000 for ms in 1000 + random.permutation(9001)[:WINDOWS]]
