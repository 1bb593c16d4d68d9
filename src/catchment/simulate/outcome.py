"""What a way of sending cost: traffic and staleness, window by window; and the best there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from catchment.flush.line import SendQueue
from catchment.flush.optimal import eager_optimal
from catchment.operators.ragged import Floats, Ints
from catchment.simulate.arrivals import Arrivals


@dataclass(frozen=True)
class Outcome:
    """What a policy cost, window by window."""

    traffic: Floats
    """Bytes (updates, where each has size 1)."""
    least: Floats
    """The least number of updates: one for each key."""
    staleness: Floats
    """Staleness, in lengths of the window."""
    updates: Arrivals
    """When they arrived at the parent."""

    def ratio(self, skip: int = 0) -> float:
        """Traffic over the least possible, without the first windows."""
        return float(self.traffic[skip:].sum() / max(self.least[skip:].sum(), 1e-12))

    def stale(self, skip: int = 0) -> float:
        """Staleness on average, in lengths of the window."""
        return float(self.staleness[skip:].mean())

    def cost(self, weight: float, skip: int = 0) -> float:
        """Traffic over the least possible, plus so much for staleness of a whole window."""
        return self.ratio(skip) + weight * self.stale(skip)


def outcome(
    arrivals: Arrivals,
    depart: Floats,
    keys: Ints,
    of: Ints,
    line: SendQueue | None,
    arrive: Floats | None = None,
) -> Outcome:
    """The outcome of updates that leave over a link in this order, or arrive at known times."""
    sizes = arrivals.size_of(keys)
    if arrive is None:
        assert line is not None
        order = np.argsort(depart, kind="stable")
        keys, of, sizes = keys[order], of[order], sizes[order]
        arrive = line.finish(depart[order], sizes)
    ends = (1 + np.arange(arrivals.windows)) * arrivals.length
    latest = np.zeros(arrivals.windows)
    np.maximum.at(latest, of, arrive)
    updates = Arrivals(arrive, keys, arrivals.length, arrivals.windows, of, arrivals.each)
    return Outcome(
        _sums(of, sizes, arrivals.windows),
        _least(arrivals),
        np.maximum(latest - ends, 0.0) / arrivals.length,
        updates,
    )


def _least(arrivals: Arrivals) -> Floats:
    span = int(arrivals.keys.max(initial=0)) + 1
    cells = np.unique(arrivals.of * span + arrivals.keys)
    return _sums(cells // span, arrivals.size_of(cells % span), arrivals.windows)


def _sums(place: Ints, sizes: Floats, count: int) -> Floats:
    return np.bincount(place, sizes, count).astype(float)


def streaming(arrivals: Arrivals, line: SendQueue) -> Outcome:
    """Every arrival is sent as it comes: exactly, without ticks."""
    return outcome(arrivals, arrivals.times, arrivals.keys, arrivals.of, line)


def optimal(arrivals: Arrivals, line: SendQueue) -> Outcome:
    """The eager offline optimum of each window, one after the other over the link."""
    span = int(arrivals.keys.max(initial=0)) + 1
    _, index = np.unique((arrivals.of * span + arrivals.keys)[::-1], return_index=True)
    last = len(arrivals.keys) - 1 - index
    plan = eager_optimal(arrivals.times[last], arrivals.size_of(arrivals.keys[last]), line)
    order = last[plan.keys]
    return outcome(arrivals, plan.depart, arrivals.keys[order], arrivals.of[order], line)


def merged(outcomes: Sequence[Outcome]) -> Arrivals:
    """What several nodes sent, as it comes to their parent."""
    given = [made.updates for made in outcomes]
    times = np.concatenate([part.times for part in given])
    order = np.argsort(times, kind="stable")
    first = given[0]
    return Arrivals(
        times[order],
        np.concatenate([part.keys for part in given])[order],
        first.length,
        first.windows,
        np.concatenate([part.of for part in given])[order],
        first.each,
    )


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of several nodes under one parent: all traffic, and the staleness of the last
    one."""
    stale = np.max([made.staleness for made in outcomes], axis=0)
    return Outcome(
        np.sum([made.traffic for made in outcomes], axis=0),
        np.sum([made.least for made in outcomes], axis=0),
        stale,
        merged(outcomes),
    )
