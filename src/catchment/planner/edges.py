"""The edges of periodic windows: where slices are cut, and which windows end when."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from catchment.model.scale import Scale
from catchment.model.window import Period
from catchment.operators.grouping import runs
from catchment.operators.ragged import Ints

EARLIEST = -(1 << 62)
LATEST = 1 << 62
"""Beyond any time of an event: a slice that no edge bounds ends here."""


_AHEAD = 3_600_000_000
_FEW = 64
_MANY = 1 << 16
"""How far to look ahead for edges, how few need no arrays, and how many to make at most."""


class Spaced(NamedTuple):
    """Series of edges that are evenly spaced on one scale; None: in microseconds."""

    scale: Scale | None
    slides: Ints
    offsets: Ints

    def within(self, lows: Ints, highs: Ints) -> Ints:
        """Edges around each `[low, high]`: of each series, from the last by `low` to the first
        after `high`."""
        if self.scale is not None:
            lows, highs = self.scale.numbers(lows), self.scale.numbers(highs)
        first = np.floor_divide(lows[:, None] - self.offsets, self.slides)
        last = np.floor_divide(highs[:, None] - self.offsets, self.slides) + 1
        numbers, which = runs(first.ravel(), last.ravel() + 1)
        which %= max(len(self.slides), 1)
        found: Ints = self.offsets[which] + numbers * self.slides[which]
        return found if self.scale is None else self.scale.times(found)

    def covers(self, times: Ints) -> npt.NDArray[np.bool_]:
        """Which of these times are edges: a point of a series is there, and was not just before."""
        found = np.zeros(len(times), np.bool_)
        now, before = times, times - 1
        if self.scale is not None:
            now, before = self.scale.numbers(now), self.scale.numbers(before)
        for slide, offset in zip(self.slides.tolist(), self.offsets.tolist(), strict=True):
            found |= (now - offset) // slide > (before - offset) // slide
        return found

    def holds(self, slide: int, offset: int) -> bool:
        """Whether another series on this scale has no edge but those of one of these."""
        whole = (slide % self.slides == 0) & ((offset - self.offsets) % self.slides == 0)
        return bool(whole.any())


class EdgeSeries(NamedTuple):
    """Evenly spaced edges, in microseconds, in ranks of events, or in points of a scale."""

    slide: int
    offset: int
    scale: Scale | None = None

    @property
    def rate(self) -> float:
        """Edges in a microsecond, or for each event."""
        return 1 / (self.slide if self.scale is None else self.slide * self.scale.pace)


class Edges:
    """All edges of some series of windows, in any range of time."""

    def __init__(self, periods: Iterable[Period], grid: int | None = None) -> None:
        series: dict[Scale | None, set[tuple[int, int]]] = {None: set()}
        points: set[int] = set()
        for length, slide, offset, only, scale in periods:
            if only:
                points |= {offset, offset + length}
                continue
            own = series.setdefault(scale, set())
            own.add((slide, offset % slide))
            own.add((slide, (offset + length) % slide))
        if grid is not None:
            series[None].add((grid, 0))
        self._plain = sorted(_joined(series.pop(None)))
        self._scaled = {scale: sorted(_joined(own)) for scale, own in series.items()}
        self._points = sorted(points)
        self._known: Ints | None = None

    def series(self) -> list[EdgeSeries]:
        """All series of evenly spaced edges."""
        found = [EdgeSeries(slide, offset) for slide, offset in self._plain]
        for scale, own in self._scaled.items():
            found += [EdgeSeries(slide, offset, scale) for slide, offset in own]
        return found

    # Plans of many groups ask only for the rate of edges: arrays are made once somebody cuts.

    @cached_property
    def spaced(self) -> list[Spaced]:
        """The series by their scales, those in microseconds first."""
        made = [Spaced(None, self.slides, self.offsets)] if self._plain else []
        for scale, series in self._scaled.items():
            slides, offsets = np.array(series, np.int64).reshape(-1, 2).T
            made.append(Spaced(scale, slides, offsets))
        return made

    @property
    def plain(self) -> bool:
        """Whether all series are in microseconds."""
        return not self._scaled

    @cached_property
    def slides(self) -> Ints:
        return np.array([slide for slide, _ in self._plain], np.int64)

    @cached_property
    def offsets(self) -> Ints:
        return np.array([offset for _, offset in self._plain], np.int64)

    @cached_property
    def points(self) -> Ints:
        return np.array(self._points, np.int64)

    @cached_property
    def unit(self) -> int:
        """Every edge is a multiple of this."""
        numbers = (number for series in self._plain for number in series)
        grains = (scale.grain for scale in self._scaled if scale is not None)
        return math.gcd(*numbers, *grains, *self._points) or 1

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
        if self._few(low, high) or not self.spaced:
            return self.between(low, high)
        moments = np.unique(times)
        apart = np.flatnonzero(~self._few_each(moments[:-1], moments[1:]))
        firsts = moments[np.concatenate([[0], apart + 1])]
        return self._of_stretches(firsts, moments[np.concatenate([apart, [len(moments) - 1]])])

    @cached_property
    def _per_microsecond(self) -> float:
        """Edges of all series, each counted by itself."""
        scaled = sum(
            1 / (slide * scale.pace)
            for scale, series in self._scaled.items()
            if scale is not None
            for slide, _ in series
        )
        return float((1 / self.slides).sum()) + scaled

    def _few_each(self, low: Ints, high: Ints) -> npt.NDArray[np.bool_]:
        return (high - low).astype(np.float64) * self._per_microsecond < _MANY / 64

    def _few(self, low: int, high: int) -> bool:
        return (high - low) * self._per_microsecond < _MANY

    def _of_stretches(self, lows: Ints, highs: Ints) -> Ints:
        """Sorted edges around each `[low, high]`, which are in order: all that matter in there."""
        inner = [spaced.within(lows, highs) for spaced in self.spaced]
        edges: Ints = np.sort(np.concatenate([*inner, self.points, [EARLIEST, LATEST]]))
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
        for spaced in self.spaced:
            found |= spaced.covers(times)
        return found

    def holds(self, period: Period, edge: int) -> bool:
        """Whether all edges `edge + k * slide` of a period, on its scale, are among these."""
        return any(
            spaced.scale == period.scale and spaced.holds(period.slide, edge)
            for spaced in self.spaced
        )

    @cached_property
    def rate(self) -> float:
        """Distinct edges per second, counted over a while long enough to be typical."""
        scaled = self._per_microsecond * 1e6 - sum(1e6 / slide for slide, _ in self._plain)
        return self._plain_rate() + (0.0 if self.plain else scaled)

    def _plain_rate(self) -> float:
        """The rate of the series in microseconds; edges on other scales seldom meet these."""
        if not self._plain:
            return 0.0
        slides = [slide for slide, _ in self._plain]
        if not self._points and len(set(slides)) == 1:
            return len(slides) * 1e6 / slides[0]
        per_second = sum(1e6 / slide for slide in slides)
        span = int(min(3_600e6, max(60e6, float(max(slides))), 2e4 / per_second * 1e6))
        span = max(span, min(slides))
        return float(self._plain_slices(span)) / (span / 1e6)

    def _plain_slices(self, span: int) -> int:
        """Slices from time 0 on by the series in microseconds; of few, counted without arrays."""
        if sum(span // slide for slide, _ in self._plain) + len(self._points) > _FEW:
            plain = Spaced(None, self.slides, self.offsets)
            inner = plain.within(np.array([0]), np.array([span - 1]))
            found = np.unique(np.concatenate([inner, self.points]))
            return int(np.count_nonzero((found > 0) & (found < span))) + 1
        edges = {point for point in self._points if 0 < point < span}
        for slide, offset in self._plain:
            edges.update(range(offset or slide, span, slide))
        return len(edges) + 1


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
    """Many series of windows, each evenly spaced in time or on a scale, as arrays.

    `first` and `last` bound the numbers of the windows that are asked for.
    """

    def __init__(self, periods: Sequence[Period]) -> None:
        self.lengths = np.array([p.length for p in periods], np.int64)
        self.slides = np.array([p.slide for p in periods], np.int64)
        self.offsets = np.array([p.offset for p in periods], np.int64)
        only = np.array([p.only for p in periods], np.bool_)
        self.first: Ints = np.where(only, 0, EARLIEST).astype(np.int64)
        self.last: Ints = np.where(only, 0, LATEST).astype(np.int64)
        self._scales = dict.fromkeys(p.scale for p in periods if p.scale is not None)
        """The scales there are, besides microseconds, by number."""
        numbers = {scale: number for number, scale in enumerate(self._scales)}
        of = [-1 if p.scale is None else numbers[p.scale] for p in periods]
        self._scale: Ints = np.array(of, np.int64)
        self._only = next(iter(self._scales)) if {*of} == {0} else None
        """The scale of all series, if they have one."""

    def __len__(self) -> int:
        return len(self.lengths)

    def plain(self, kind: int) -> bool:
        """Whether a series is in microseconds."""
        return bool(self._scale[kind] < 0)

    def place(self, kind: Ints, time: Ints | int) -> Ints:
        """Where times are on the scales of series: themselves, or the number of the last point."""
        found: Ints = np.asarray(time, np.int64)
        if not self._scales:
            return found
        if self._only is not None:
            return self._only.numbers(np.atleast_1d(found))
        times: Ints = np.broadcast_to(found, kind.shape)
        return self._convert(kind, times, lambda scale, some: scale.numbers(some))

    def _time(self, kind: Ints, place: Ints) -> Ints:
        """The inverse of `place`, for points."""
        return self._convert(kind, place, lambda scale, numbers: scale.times(numbers))

    def _convert(self, kind: Ints, values: Ints, by: Callable[[Scale, Ints], Ints]) -> Ints:
        if not self._scales:
            return values
        if self._only is not None:
            return by(self._only, values)
        made = values.copy()
        of = self._scale[kind]
        for number, scale in enumerate(self._scales):
            mine = of == number
            made[mine] = by(scale, values[mine])
        return made

    @cached_property
    def _every(self) -> Ints:
        return np.arange(len(self), dtype=np.int64)

    def start_of(self, kind: Ints, number: Ints) -> Ints:
        return self._time(kind, self.offsets[kind] + number * self.slides[kind])

    def end_of(self, kind: Ints, number: Ints) -> Ints:
        last = self.offsets[kind] + number * self.slides[kind] + self.lengths[kind]
        return self._time(kind, last)

    def holding(self, kind: int, times: Ints) -> tuple[Ints, Ints]:
        """The numbers of the first and of the last window of a series that hold each time."""
        at = self.place(np.full(len(times), kind, np.int64), times) - self.offsets[kind]
        slide = self.slides[kind]
        return np.floor_divide(at - self.lengths[kind], slide) + 1, np.floor_divide(at, slide)

    def ending_after(self, time: int) -> Ints:
        """Per series, the number of its first window that ends after `time`."""
        at = self.place(self._every, time)
        number = np.floor_divide(at - self.offsets - self.lengths, self.slides) + 1
        bounded: Ints = np.maximum(number, self.first)
        return bounded

    def starting_by(self, time: int) -> Ints:
        """Per series, the number of its last window that starts at or before `time`."""
        at = self.place(self._every, time)
        number: Ints = np.minimum(np.floor_divide(at - self.offsets, self.slides), self.last)
        return number

    def needed_from(self, frontier: int) -> int:
        """The earliest start of a window that ends after the frontier."""
        number = self.ending_after(frontier)
        open_ = number <= self.last
        if not open_.any():
            return LATEST
        kinds = np.flatnonzero(open_)
        return int(self.start_of(kinds, number[kinds]).min())
