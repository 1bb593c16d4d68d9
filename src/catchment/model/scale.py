"""Points in time that are numbered: the days of a zone, the months of a calendar, a user's own.

A series of windows is evenly spaced on a scale. Where the scale is plain microseconds, numbers are
times, and nobody asks one; on any other scale, window k reaches from the point that is numbered
`offset + k * slide` to the one `length` points further on, however far apart the points are.

        number     -1      0       1           2   3
        time      --|------|-------|-----------|---|--->

Two questions are all that slicing and assembling need: when a point is, and which point was the
last by a time. Both are asked of many at once, and only in the range of the events at hand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from catchment.model.arrays import Ints


class Scale(ABC):
    """Numbered points in time, in order; several may fall together. Equal scales must be equal as
    values, and hash alike: what is computed of one serves the other.
    """

    @abstractmethod
    def times(self, numbers: Ints) -> Ints:
        """When each of these points is, in microseconds since 1970: the higher the number, the
        later, or as late."""

    def numbers(self, times: Ints) -> Ints:
        """The highest number of a point at or before each of these times.

        Where a scale says nothing else, points are searched for: from where the pace would have
        them, in steps that double, and then between two.
        """
        times = np.asarray(times, np.int64)
        low: Ints = np.floor(times / self.pace).astype(np.int64)
        step = 1
        while (after := self.times(low) > times).any():
            low, step = np.where(after, low - step, low), step * 2
        high, step = low + 1, 1
        while (by := self.times(high) <= times).any():
            low, high, step = np.where(by, high, low), np.where(by, high + step, high), step * 2
        while (apart := high - low > 1).any():
            middle = np.where(apart, (low + high) // 2, low)
            by = self.times(middle) <= times
            low, high = np.where(by, middle, low), np.where(by, high, middle)
        return low

    @property
    @abstractmethod
    def pace(self) -> float:
        """Microseconds from one point to the next, typically: for costs."""

    @abstractmethod
    def reach(self, points: int) -> int:
        """Microseconds that so many points may take at most."""

    @property
    def grain(self) -> int:
        """Every point is a multiple of so many microseconds."""
        return 1
