"""How much a cache may hold at a moment of a slice; in bytes, so that large aggregates count more.

The eager sizes say how much an optimal eager cache would hold, the lazy ones how much can still be
sent by the end of the slice. Both foretell: from the slice before, and from what has come so far.
Each is a file in `policies/`, or in an installed package; here is what they go by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from catchment.flush.line import SendQueue
from catchment.flush.optimal import cached, lazy_optimal
from catchment.flush.policy import Policy, cache_policy
from catchment.operators.ragged import Floats

GRID = 256
"""Points of a slice at which the sizes of optimal caches are kept for the next one."""


@dataclass(frozen=True)
class SliceHistory:
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
    ) -> SliceHistory:
        """From the first and last arrival of each key, in seconds since the slice began."""
        often, many = np.unique(count, return_counts=True)
        at = np.linspace(0.0, length, GRID)
        lazy = np.full(GRID, math.inf)
        if 0 < bandwidth < math.inf and len(last):
            late = lazy_optimal(last, sizes, SendQueue.steady(bandwidth), length)
            gone = np.empty(len(last))
            gone[late.keys] = late.depart
            lazy = cached(first, gone, at, sizes)
        return cls(
            len(count),
            int(count.sum()),
            float(sizes.mean()) if len(sizes) else 0.0,
            often,
            many.astype(float),
            cached(first, last, at, sizes),
            lazy,
        )


@dataclass(frozen=True, slots=True)
class SizeInputs:
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
    past: SliceHistory | None
    """The slice before; None: this is the first."""

    def over(self, left: float) -> SizeInputs:
        """With another time to go: a slice may be waited for after the last event of it."""
        return replace(self, left=left)

    def room(self, new: float) -> float:
        """Bytes that the link can still carry until the end, besides those of so many new keys."""
        if math.isinf(self.bandwidth):
            return math.inf
        return max(self.bandwidth * self.left - new * self.each, 0.0)


def waiting(done: float, often: Floats) -> Floats:
    """The chance that a key which comes so often has come by now and will come again."""
    chance: Floats = 1.0 - done**often - (1.0 - done) ** often
    return np.maximum(chance, 0.0)


def size(policy: Policy, now: SizeInputs) -> float:
    """What the cache may hold by a policy; `auto` must have been given its alpha."""
    if policy.kind == "streaming":
        return 0.0
    if policy.kind == "batching":
        return math.inf
    lazy = _lazy(policy.lazy, now) if policy.alpha > 0 or now.past is None else 0.0
    if policy.alpha >= 1 or now.past is None:  # nothing is known that an eager cache could go by
        return lazy
    eager = cache_policy(policy.eager).eager
    assert eager is not None, f"{policy.eager} is not eager"
    held = eager(now, now.past)
    return held if policy.alpha <= 0 else policy.alpha * lazy + (1 - policy.alpha) * held


def _lazy(name: str, now: SizeInputs) -> float:
    lazy = cache_policy(name).lazy
    assert lazy is not None, f"{name} is not lazy"
    return lazy(now)
