"""Arrivals of keys at simulated nodes, as arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from catchment.operators.ragged import Floats, Ints


@dataclass(frozen=True)
class Arrivals:
    """What came to a node: when, of which key, for which window; windows follow each other."""

    times: Floats
    """Times of arrivals, in seconds, in order."""
    keys: Ints
    length: float
    """The length of a window, in seconds."""
    windows: int
    of: Ints
    """The window of each: that of its time, unless a child sent it late."""
    each: float | Floats = 1.0
    """The size of an update: of all, or by key."""

    @classmethod
    def at(
        cls, times: Floats, keys: Ints, length: float, windows: int, each: float | Floats = 1.0
    ) -> Arrivals:
        order = np.argsort(times, kind="stable")
        times, keys = np.asarray(times, float)[order], np.asarray(keys, np.int64)[order]
        of = np.minimum((times / length).astype(np.int64), windows - 1)
        return cls(times, keys, length, windows, of, each)

    def size_of(self, keys: Ints) -> Floats:
        if isinstance(self.each, np.ndarray):
            sizes: Floats = self.each[keys]
            return sizes
        return np.full(len(keys), self.each)

    def hopping(self, parts: int) -> Arrivals:
        """The same with each window in so many parts: what a node sees of windows that hop."""
        shorter = self.length / parts
        made = Arrivals.at(self.times, self.keys, shorter, self.windows * parts, self.each)
        return replace(made, each=self.each)

    @property
    def rate(self) -> float:
        """Arrivals a second."""
        return len(self.times) / (self.length * self.windows)

    def distinct(self) -> Ints:
        """Keys in each window: the least number of updates."""
        span = int(self.keys.max(initial=0)) + 1
        cells = np.unique(self.of * span + self.keys)
        return np.bincount(cells // span, minlength=self.windows)
