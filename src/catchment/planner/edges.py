"""The edges of periodic windows: where slices are cut, and which windows end when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from catchment.model.window import Period
from catchment.operators.grouping import runs
from catchment.operators.ragged import Ints

EARLIEST = -(1 << 62)
LATEST = 1 << 62
"""Beyond any time of an event: a slice that no edge bounds ends here."""


_AHEAD = 3_600_000_000
_MANY = 1 << 16
"""How far to look ahead for edges, and how many to make at most."""


class Edges:
    """All edges of some series of windows, in any range of time."""

    def __init__(self, periods: Iterable[Period], grid: int | None = None) -> None:
        series: set[tuple[int, int]] = set()
        points: set[int] = set()
        for length, slide, offset, only in periods:
            if only:
                points |= {offset, offset + length}
                continue
            series.add((slide, offset % slide))
            series.add((slide, (offset + length) % slide))
        if grid is not None:
            series.add((grid, 0))
        self._series = sorted(_joined(series))
        self._points = sorted(points)
        self._known: Ints | None = None

    # Plans of many groups ask only for the rate of edges: arrays are made once somebody cuts.

    @cached_property
    def slides(self) -> Ints:
        return np.array([slide for slide, _ in self._series], np.int64)

    @cached_property
    def offsets(self) -> Ints:
        return np.array([offset for _, offset in self._series], np.int64)

    @cached_property
    def points(self) -> Ints:
        return np.array(self._points, np.int64)

    @cached_property
    def unit(self) -> int:
        """Every edge is a multiple of this."""
        numbers = (number for series in self._series for number in series)
        return math.gcd(*numbers, *self._points) or 1

    def between(self, low: int, high: int) -> Ints:
        """Sorted edges around `[low, high]`: the first is at most `low`, the last above `high`."""
        edges = self._known
        if edges is None or not (edges[0] <= low and high < edges[-1]):
            # Streams go on: look ahead, so that the next batches find their edges made.
            ahead = high + min(8 * (high - low), _AHEAD)
            high_enough = ahead if self._few(low, ahead) else high
            edges = self._known = self._of_stretches(np.array([low]), np.array([high_enough]))
        begin = int(np.searchsorted(edges, low, side="right")) - 1
        end = int(np.searchsorted(edges, high, side="right")) + 1
        return edges[begin:end]

    def around(self, times: Ints, low: int, high: int) -> Ints:
        """As `between`, of the least and greatest of some times, leaving out long empty stretches.

        One time far from the rest must not bring up all the edges on the way there.
        """
        if self._few(low, high) or not len(self.slides):
            return self.between(low, high)
        moments = np.unique(times)
        apart = np.flatnonzero(~self._few_each(moments[:-1], moments[1:]))
        firsts = moments[np.concatenate([[0], apart + 1])]
        return self._of_stretches(firsts, moments[np.concatenate([apart, [len(moments) - 1]])])

    def _few_each(self, low: Ints, high: Ints) -> npt.NDArray[np.bool_]:
        per_microsecond = float((1 / self.slides).sum())
        return (high - low).astype(np.float64) * per_microsecond < _MANY / 64

    def _few(self, low: int, high: int) -> bool:
        return float(((high - low) / self.slides).sum()) < _MANY

    def _of_stretches(self, lows: Ints, highs: Ints) -> Ints:
        """Sorted edges around each `[low, high]`, which are in order: all that matter in there."""
        first = np.floor_divide(lows[:, None] - self.offsets, self.slides)
        last = np.floor_divide(highs[:, None] - self.offsets, self.slides) + 1
        numbers, which = runs(first.ravel(), last.ravel() + 1)
        which %= max(len(self.slides), 1)
        inner = self.offsets[which] + numbers * self.slides[which]
        edges: Ints = np.sort(np.concatenate([inner, self.points, [EARLIEST, LATEST]]))
        edges = edges[np.append(True, edges[1:] != edges[:-1])]
        begin = int(np.searchsorted(edges, lows[0], side="right")) - 1
        end = int(np.searchsorted(edges, highs[-1], side="right")) + 1
        return edges[begin:end]

    def last_by(self, time: int) -> int:
        """The last edge at or before a time.

        >>> Edges([Period(4, 4), Period(6, 6)]).last_by(7)
        6
        """
        at = np.array([time])
        return int(self._of_stretches(at, at)[0])

    def covers(self, times: Ints) -> npt.NDArray[np.bool_]:
        """Which of these times are edges.

        >>> Edges([Period(2, 2), Period(3, 3)]).covers(np.array([0, 1, 2, 3, 5])).tolist()
        [True, False, True, True, False]
        """
        found = np.isin(times, self.points)
        for slide, offset in zip(self.slides.tolist(), self.offsets.tolist(), strict=True):
            found |= (times - offset) % slide == 0
        return found

    @cached_property
    def rate(self) -> float:
        """Distinct edges per second, counted over a while long enough to be typical."""
        if not self._series:
            return 0.0
        slides = [slide for slide, _ in self._series]
        if not self._points and len(set(slides)) == 1:
            return len(slides) * 1e6 / slides[0]
        per_second = sum(1e6 / slide for slide in slides)
        span = int(min(3_600e6, max(60e6, float(max(slides))), 2e4 / per_second * 1e6))
        span = max(span, min(slides))
        slices = len(self._of_stretches(np.array([0]), np.array([span - 1]))) - 1
        return float(slices) / (span / 1e6)


def _joined(series: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The same edges in fewer series: those of one slide that divide it evenly are one.

    >>> sorted(_joined({(6, 0), (6, 2), (6, 4), (9, 0), (9, 1)}))
    [(2, 0), (9, 0), (9, 1)]
    """
    by_slide: dict[int, list[int]] = {}
    for slide, offset in sorted(series):
        by_slide.setdefault(slide, []).append(offset)
    made: set[tuple[int, int]] = set()
    for slide, offsets in by_slide.items():
        part, rest = divmod(slide, len(offsets))
        even = not rest and all(after - one == part for one, after in pairwise(offsets))
        made |= {(part, offsets[0])} if even else {(slide, offset) for offset in offsets}
    return made


class Series:
    """Many evenly spaced series of windows, as arrays.

    `first` and `last` bound the numbers of the windows that are asked for.
    """

    def __init__(self, periods: Sequence[Period]) -> None:
        self.lengths = np.array([p.length for p in periods], np.int64)
        self.slides = np.array([p.slide for p in periods], np.int64)
        self.offsets = np.array([p.offset for p in periods], np.int64)
        only = np.array([p.only for p in periods], np.bool_)
        self.first: Ints = np.where(only, 0, EARLIEST).astype(np.int64)
        self.last: Ints = np.where(only, 0, LATEST).astype(np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    def start_of(self, kind: Ints, number: Ints) -> Ints:
        return self.offsets[kind] + number * self.slides[kind]

    def ending_after(self, time: int) -> Ints:
        """Per series, the number of its first window that ends after `time`."""
        number = np.floor_divide(time - self.offsets - self.lengths, self.slides) + 1
        bounded: Ints = np.maximum(number, self.first)
        return bounded

    def starting_by(self, time: int) -> Ints:
        """Per series, the number of its last window that starts at or before `time`."""
        return np.minimum(np.floor_divide(time - self.offsets, self.slides), self.last)

    def needed_from(self, frontier: int) -> int:
        """The earliest start of a window that ends after the frontier."""
        number = self.ending_after(frontier)
        open_ = number <= self.last
        if not open_.any():
            return LATEST
        kinds = np.flatnonzero(open_)
        return int(self.start_of(kinds, number[kinds]).min())
