"""One cell of the benchmark of count windows: a load, a scheme, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import mean
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.count_load import TICK, Load, messages, streams, truth
from benchmarks.count_simulation import Counting, NodeArrivals, Sums
from catchment.counting.fold import Fold
from catchment.counting.scheme import CountOptions, Predictor
from catchment.counting.wire import Columns, dump, load
from catchment.windows.count import count_tumbling

EXACT = ("monitor", "sync", "async", "auto")
PATIENT = 1_000
"""A link's delay where nothing else is said, in microseconds."""


@dataclass(frozen=True)
class Ground:
    """Events, what one node would make of them, and the bytes to bring all of them there."""

    streams: dict[int, NodeArrivals]
    sums: list[float]
    ends: list[dict[int, int]]
    central: int
    lean: int

    @property
    def events(self) -> int:
        return sum(len(stream.times) for stream in self.streams.values())


@lru_cache(maxsize=2)
def ground(load: Load) -> Ground:
    found = streams(load)
    sums, ends = truth(found, load.window)
    central, lean = (sum(map(len, messages(found, lean))) for lean in (False, True))
    return Ground(found, sums, ends, central, lean)


@dataclass(frozen=True)
class Outcome:
    """What a scheme did with a load."""

    nbytes: int
    up: int
    down: int
    exact: int
    """Windows whose sum is what one node would say."""
    windows: int
    corrections: float
    """For 100 windows."""
    rounds: float
    """Orders for a window; each has an answer."""
    blocked: float
    """Seconds that a node waited for the root, for a window."""
    latency: float
    """Milliseconds from the last event of a window to its result, on average."""
    work: float
    """Seconds that the root worked, by the wall clock."""
    using: str


class Timed(Counting):
    """Also measures how long the root works."""

    work = 0.0

    def _arrive(self, body: bytes) -> None:
        begin = perf_counter()
        super()._arrive(body)
        self.work += perf_counter() - begin


def run(
    load: Load,
    scheme: str,
    predictor: Predictor = "pace",
    delay: int = PATIENT,
    fold: Any = None,
) -> tuple[Outcome, Timed]:
    """Runs a scheme over a load in simulation."""
    there = ground(load)
    world = Timed(
        [count_tumbling(load.window)],
        there.streams,
        fold or Sums("v"),
        scheme,
        options=CountOptions(predictor),
        delay=delay,
        tick=TICK,
    )
    tally = world.run()
    emitted = sorted(tally.emitted, key=lambda pair: pair[1].number)
    totals = [Sums.total(w.partial) for _, w in emitted if w.partial]
    exact = sum(a == b for a, b in zip(totals, there.sums, strict=False))
    root, count = world.root, max(len(there.sums), 1)
    waits = [now - end for (now, _), end in zip(emitted, _ends(there), strict=False)]
    return Outcome(
        tally.up + tally.down,
        tally.up,
        tally.down,
        exact,
        len(there.sums),
        100 * root.corrections / count,
        root.rounds / count,
        tally.blocked / 1e6 / count / load.nodes,
        mean(waits[3:] or [0]) / 1e3,
        world.work,
        root.using,
    ), world


def _ends(there: Ground) -> list[int]:
    """The time of each window's last event."""
    return [
        max(int(there.streams[n].times[end - 1]) for n, end in ends.items() if end)
        for ends in there.ends
    ]


class Ranges(Fold):
    """Which events a window holds, as ranges of each node's positions."""

    def lift(self, events: Columns) -> bytes:
        ids = events["id"]
        return dump({"low": ids[:1], "high": ids[-1:] + 1})

    def merge(self, partials: Sequence[bytes]) -> bytes:
        found = [self.ranges(partial) for partial in partials]
        return dump({name: np.concatenate([p[name] for p in found]) for name in ("low", "high")})

    @staticmethod
    def ranges(partial: bytes) -> Columns:
        return load(Columns, partial)


_NODE = 1 << 40


def correctness(load: Load, scheme: str) -> float:
    """The share of events that are in the window where they belong, event by event."""
    there = ground(load)
    numbered = {
        n: NodeArrivals(s.times, s.comes, {"id": n * _NODE + np.arange(len(s.times))})
        for n, s in there.streams.items()
    }
    world = Counting([count_tumbling(load.window)], numbered, Ranges(), scheme, tick=TICK)
    right = 0
    for _, window in world.run().emitted:
        ends = there.ends[window.number]
        starts = there.ends[window.number - 1] if window.number else dict.fromkeys(ends, 0)
        ranges = Ranges.ranges(window.partial)
        for low, high in zip(ranges["low"], ranges["high"], strict=True):
            node, first = divmod(int(low), _NODE)
            last = int(high) - node * _NODE
            right += max(0, min(last, ends[node]) - max(first, starts[node]))
    return right / (len(there.sums) * load.window)
