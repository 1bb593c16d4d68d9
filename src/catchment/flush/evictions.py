"""Which aggregates leave a cache first: those that are least likely to change again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]

Eviction = Callable[[Floats, Floats], Floats]
"""From the time of the last arrival and the number of arrivals to an order: the least goes first."""


def lru(last: Floats, count: Floats) -> Floats:
    """The one that was touched longest ago."""
    return last


def lfu(last: Floats, count: Floats) -> Floats:
    """The one that was touched least often; of equals, the one touched longest ago."""
    if not len(last):
        return last
    low, high = float(last.min()), float(last.max())
    return count + (last - low) / (2 * (high - low) or 1.0)


EVICTIONS: dict[str, Eviction] = {"lru": lru, "lfu": lfu}


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
