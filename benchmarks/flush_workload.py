"""Arrivals shaped like those of a content network's download analytics, at any number of edges.

Keys are as frequent as a lognormal law has it, come in bursts, and more by day than by night. How
uneven the law is was set so that as many keys come only once as in the published traces: 15 %,
29 % and 56 % for the small, medium and large query (`tests/test_flush_edge.py` checks it).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from catchment.operators.ragged import Floats, Ints
from catchment.simulate.arrivals import Arrivals

LENGTH = 3600.0
"""The length of a window, in seconds."""
LOW, HIGH = 25_000, 200_000
"""Arrivals of a window at a node, on average: the high rate is eight times the low one."""
_DAY = 24
_SWING = 0.5
"""By how much the rate differs from its average by day and by night."""


@dataclass(frozen=True)
class ArrivalStatistics:
    """The arrivals that a node has for a query, as numbers."""

    name: str
    possible: int
    """Keys that there may be."""
    spread: float
    """The standard deviation of the logarithm of their frequencies."""
    burst: float
    """Arrivals of a burst, on average."""
    once: float
    """The share of keys that come once, as published, and how often the median key comes."""
    median: float


SMALL = ArrivalStatistics("small", 100, 3.0, 1.2, 0.15, 9.0)
MEDIUM = ArrivalStatistics("medium", 10_000, 2.5, 1.75, 0.29, 4.0)
LARGE = ArrivalStatistics("large", 1_000_000, 3.1, 1.35, 0.56, 1.0)
SHAPES = {shape.name: shape for shape in (SMALL, MEDIUM, LARGE)}


def arrivals(
    shape: ArrivalStatistics,
    windows: int = 8,
    per_window: int = LOW,
    seed: int = 0,
    first: int = 6,
    length: float = LENGTH,
) -> Arrivals:
    """The arrivals at one node; `first` is the hour of the day of the first window."""
    dice = np.random.default_rng([seed, 1])
    weight = np.exp(
        shape.spread * np.random.default_rng([7, shape.possible]).normal(size=shape.possible)
    )
    weight *= np.exp(0.5 * dice.normal(size=shape.possible))  # each site has its favourites
    chance = np.cumsum(weight / weight.sum())
    hours = (first + np.arange(windows)) % _DAY
    by_hour = 1 + _SWING * np.sin(2 * np.pi * (hours - 8) / _DAY) + 0.05 * dice.normal(size=windows)
    times, keys = [], []
    for window, share in enumerate(by_hour.tolist()):
        t, k = _bursts(dice, chance, shape.burst, int(per_window * share), length)
        times.append(window * length + t)
        keys.append(k)
    return Arrivals.at(np.concatenate(times), np.concatenate(keys), length, windows)


def _bursts(
    dice: np.random.Generator, chance: Floats, burst: float, count: int, length: float
) -> tuple[Floats, Ints]:
    """Arrivals of a window: bursts of one key each, of different lengths, at random times."""
    sizes = dice.geometric(1 / burst, size=int(1.2 * count / burst) + 100)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), count)) + 1]
    keys = np.searchsorted(chance, dice.random(len(sizes)))
    begin = dice.random(len(sizes)) * length
    lasts = length * np.exp(dice.normal(-4.0, 1.5, size=len(sizes)))
    times = np.repeat(begin, sizes) + np.repeat(lasts, sizes) * dice.random(int(sizes.sum()))
    inside = times < length
    return times[inside], np.repeat(keys, sizes)[inside].astype(np.int64)


@dataclass(frozen=True)
class ArrivalProfile:
    """What the arrivals at a node look like, as figure 2 of the paper has it."""

    once: float
    """The share of a window's keys that come once."""
    median: float
    per_key: float
    """Arrivals of a key on average: what streaming sends over what is needed."""
    keys: Floats
    """Keys in each window."""
    variation: Floats
    """The coefficient of variation of the times between arrivals, of keys with 25 or more."""


def look(given: Arrivals) -> ArrivalProfile:
    span = int(given.keys.max()) + 1
    _, count = np.unique(given.of * span + given.keys, return_counts=True)
    order = np.lexsort((given.times, given.keys, given.of))
    cell = (given.of * span + given.keys)[order]
    gaps = np.diff(given.times[order])
    same = cell[1:] == cell[:-1]
    place = np.unique(cell[1:][same], return_inverse=True)[1]
    n = np.bincount(place)
    mean = np.bincount(place, gaps[same]) / n
    var = np.bincount(place, gaps[same] ** 2) / n - mean**2
    often = n >= 24
    return ArrivalProfile(
        float((count == 1).mean()),
        float(np.median(count)),
        float(count.mean()),
        given.distinct().astype(float),
        np.sqrt(np.maximum(var[often], 0)) / mean[often],
    )
