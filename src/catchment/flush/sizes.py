"""How much a cache may hold at a moment of a slice; in bytes, so that large aggregates count more.

The eager sizes say how much an optimal eager cache would hold, the lazy ones how much can still be
sent by the end of the slice. Both foretell: from the slice before, and from what has come so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from catchment.flush.evictions import Floats
from catchment.flush.line import Line
from catchment.flush.optimal import held, lazy_optimal
from catchment.flush.policy import Policy

GRID = 256
"""Points of a slice at which the sizes of optimal caches are kept for the next one."""


@dataclass(frozen=True)
class Past:
    """What is remembered of the slice before: keys, how often each came, optimal cache sizes."""

    keys: int
    arrivals: int
    each: float
    """Bytes of an update."""
    often: Floats
    """Numbers of arrivals that keys had, and how many keys had so many."""
    many: Floats
    eager: Floats
    lazy: Floats

    @classmethod
    def of(
        cls,
        first: Floats,
        last: Floats,
        count: Floats,
        sizes: Floats,
        length: float,
        bandwidth: float,
    ) -> Past:
        """From the first and last arrival of each key, in seconds since the slice began."""
        often, many = np.unique(count, return_counts=True)
        at = np.linspace(0.0, length, GRID)
        lazy = np.full(GRID, math.inf)
        if 0 < bandwidth < math.inf and len(last):
            late = lazy_optimal(last, sizes, Line.steady(bandwidth), length)
            gone = np.empty(len(last))
            gone[late.keys] = late.depart
            lazy = held(first, gone, at, sizes)
        return cls(
            len(count),
            int(count.sum()),
            float(sizes.mean()) if len(sizes) else 0.0,
            often,
            many.astype(float),
            held(first, last, at, sizes),
            lazy,
        )


@dataclass(frozen=True, slots=True)
class Moment:
    """All that a size depends on."""

    done: float
    """The share of the slice's time that has passed."""
    left: float
    """Seconds until its end."""
    rate: float
    """Arrivals a second, on average so far."""
    misses: float
    """The share of recent arrivals whose key was not there."""
    bandwidth: float
    """Bytes a second, as estimated."""
    each: float
    """Bytes of an update."""
    past: Past | None
    """The slice before; None: this is the first."""

    def over(self, left: float) -> Moment:
        """With another time to go: a slice may be waited for after the last event of it."""
        return replace(self, left=left)


def uniform(now: Moment, past: Past) -> float:
    """As if all keys were equally frequent."""
    often = past.arrivals / max(past.keys, 1)
    return past.keys * now.each * float(_waiting(now.done, np.array([often]))[0])


def nonuniform(now: Moment, past: Past) -> float:
    """As if each key came as often as it did in the slice before, at random times."""
    return now.each * float((_waiting(now.done, past.often) * past.many).sum())


def _waiting(done: float, often: Floats) -> Floats:
    """The chance that a key which comes so often has come by now and will come again."""
    waiting: Floats = 1.0 - done**often - (1.0 - done) ** often
    return np.maximum(waiting, 0.0)


def eager_empirical(now: Moment, past: Past) -> float:
    """What an optimal eager cache would have held at this time of the slice before."""
    return float(past.eager[round(now.done * (GRID - 1))])


def pessimistic(now: Moment) -> float:
    """What can still be sent, if every arrival to come is of a new key."""
    return _sendable(now, 1.0)


def optimistic(now: Moment) -> float:
    """What can still be sent, if as many arrivals as of late are of new keys."""
    return _sendable(now, now.misses)


def _sendable(now: Moment, misses: float) -> float:
    return _room(now, misses * now.rate * now.left)


def _room(now: Moment, misses: float) -> float:
    if math.isinf(now.bandwidth):
        return math.inf
    return max(now.bandwidth * now.left - misses * now.each, 0.0)


def bounded(now: Moment) -> float:
    """As `optimistic`; but no more keys can be new than keys are likely to come at all.

    Where the link carries less than all arrivals, the others see nothing but misses, keep nothing
    back, and so make them come true. The bound is what the slice before tells of the rest of it.
    """
    misses = now.misses * now.rate * now.left
    if now.past is not None:
        misses = min(misses, float(((1.0 - now.done**now.past.often) * now.past.many).sum()))
    return _room(now, misses)


def lazy_empirical(now: Moment) -> float:
    """What an optimal lazy cache would have held at this time of the slice before."""
    if now.past is None:
        return optimistic(now)
    return float(now.past.lazy[round(now.done * (GRID - 1))])


EAGER: dict[str, Callable[[Moment, Past], float]] = {
    "uniform": uniform,
    "nonuniform": nonuniform,
    "empirical": eager_empirical,
}
LAZY: dict[str, Callable[[Moment], float]] = {
    "pessimistic": pessimistic,
    "optimistic": optimistic,
    "empirical": lazy_empirical,
    "bounded": bounded,
}


def size(policy: Policy, now: Moment) -> float:
    """What the cache may hold by a policy; `auto` must have been given its alpha."""
    if policy.kind == "streaming":
        return 0.0
    if policy.kind == "batching":
        return math.inf
    lazy = LAZY[policy.lazy](now) if policy.alpha > 0 or now.past is None else 0.0
    if policy.alpha >= 1 or now.past is None:  # nothing is known that an eager cache could go by
        return lazy
    eager = EAGER[policy.eager](now, now.past)
    return eager if policy.alpha <= 0 else policy.alpha * lazy + (1 - policy.alpha) * eager
