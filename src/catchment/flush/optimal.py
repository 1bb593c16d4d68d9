"""The best that could be done by someone who knew all arrivals of a slice ahead.

Both schedules send one update for each key, after its last arrival (so no fewer are possible), and
the last one arrives as early as any schedule's can. Every schedule in between does both too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from catchment.flush.line import SendQueue
from catchment.operators.ragged import Floats, Ints


@dataclass(frozen=True)
class Schedule:
    """Keys in the order in which they are sent, when each departs, and when it has arrived."""

    keys: Ints
    depart: Floats
    arrive: Floats

    def staleness(self, end: float) -> float:
        """How long after the end of the slice the last update has arrived."""
        return max(0.0, float(self.arrive[-1]) - end) if len(self.arrive) else 0.0


def eager_optimal(last: Floats, sizes: Floats, line: SendQueue) -> Schedule:
    """Each key is sent right after its last arrival."""
    order = np.argsort(last, kind="stable")
    depart = last[order]
    return Schedule(order, depart, line.finish(depart, sizes[order]))


def lazy_optimal(last: Floats, sizes: Floats, line: SendQueue, end: float) -> Schedule:
    """Each key is sent as late as can be without the last one arriving later than it must."""
    eager = eager_optimal(last, sizes, line)
    if not len(last):
        return eager
    target = line.work(np.array([max(end, float(eager.arrive[-1]))]))[0]
    after = target - np.concatenate([np.cumsum(sizes[eager.keys][::-1])[::-1][1:], [0.0]])
    before = after - sizes[eager.keys]
    # While a link is down it makes no difference when one departs, but nobody may before it came.
    depart = np.maximum(line.when(before), eager.depart)
    return Schedule(eager.keys, depart, line.when(after))


def cached(first: Floats, gone: Floats, at: Floats, sizes: Floats) -> Floats:
    """How much is in a cache at some times, if each key enters at its first arrival and goes once.

    >>> one = np.ones(2)
    >>> cached(np.array([0.0, 1.0]), np.array([2.0, 3.0]), np.array([0.5, 1.5, 2.5]), one).tolist()
    [1.0, 2.0, 1.0]
    """
    into, out = np.argsort(first), np.argsort(gone)
    came = np.concatenate([[0.0], np.cumsum(sizes[into])])
    went = np.concatenate([[0.0], np.cumsum(sizes[out])])
    inside: Floats = (
        came[np.searchsorted(first[into], at, "right")]
        - went[np.searchsorted(gone[out], at, "right")]
    )
    return inside
