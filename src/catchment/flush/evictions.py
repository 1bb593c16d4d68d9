"""Which aggregates leave a cache first: those that are least likely to change again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from catchment.operators.ragged import Floats, Ints

# The constants were chosen by trying some on the arrivals of the large query of
# `benchmarks/flush_workload.py`.
_MEMORY = 0.7
"""What a count of the slice before still counts."""
_FAINT = 0.3
_BURST = 8.0
"""A key that has just come is as likely to come again as one that comes so often in a slice..."""
_FADES = 0.03
"""...and a third as likely after this share of the slice."""


@dataclass(frozen=True, slots=True)
class CachedAggregates:
    """What is known of the aggregates in a cache; times are in seconds since the slice began."""

    last: Floats
    """When each was touched last."""
    count: Floats
    """How often in this slice."""
    before: Floats
    """How often in slices before."""
    now: float
    length: float
    """The length of the slice."""


Eviction = Callable[[CachedAggregates], Floats]
"""An order: the least goes first."""


def lru(held: CachedAggregates) -> Floats:
    """The one that was touched longest ago."""
    return held.last


def lfu(held: CachedAggregates) -> Floats:
    """The one that was touched least often; of equals, the one touched longest ago."""
    return held.count + 0.5 * held.last / max(held.length, 1e-9)


def likely(held: CachedAggregates) -> Floats:
    """The one least likely to come again: by how often it came, now and before, and how lately."""
    often = (held.count + held.before) / (1.0 + held.now / max(held.length, 1e-9))
    idle = (held.now - held.last) / max(_FADES * held.length, 1e-9)
    order: Floats = often + _BURST * np.exp(-idle)
    return order


EVICTIONS: dict[str, Eviction] = {"lru": lru, "lfu": lfu, "likely": likely}


class KeyHistory:
    """How often keys came in the slices before; older ones count less, and are forgotten."""

    def __init__(self) -> None:
        self._keys = np.empty(0, np.int64)
        self._counts = np.empty(0)

    def recall(self, keys: Ints) -> Floats:
        if not len(self._keys):
            return np.zeros(len(keys))
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        counts: Floats = np.where(self._keys[place] == keys, self._counts[place], 0.0)
        return counts

    def learn(self, keys: Ints, counts: Floats) -> None:
        """A slice has ended."""
        both = np.concatenate([self._keys, keys])
        known, place = np.unique(both, return_inverse=True)
        faded = np.concatenate([_MEMORY * self._counts, counts])
        total: Floats = np.bincount(place, faded, len(known)).astype(float)
        kept = total > _FAINT
        self._keys, self._counts = known[kept], total[kept]


def first_out(order: Floats, sizes: Floats, surplus: float) -> Ints:
    """The fewest, in order, whose sizes come to the surplus at least.

    >>> first_out(np.array([3.0, 1.0, 2.0]), np.array([5.0, 5.0, 5.0]), 7.0).tolist()
    [1, 2]
    """
    if surplus <= 0 or not len(order):
        return np.empty(0, np.int64)
    smallest = float(sizes.min())
    most = len(order) if smallest <= 0 else min(len(order), int(np.ceil(surplus / smallest)))
    chosen = np.argpartition(order, most - 1)[:most] if most < len(order) else np.arange(most)
    chosen = chosen[np.argsort(order[chosen], kind="stable")]
    enough = int(np.searchsorted(np.cumsum(sizes[chosen]), surplus * (1 - 1e-12), "left")) + 1
    return chosen[:enough].astype(np.int64)
