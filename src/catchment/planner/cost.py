"""What slicing costs against its alternatives, by the constants of a `CostModel`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from catchment.model.costs import RECORDED, CostModel, shown
from catchment.model.plan import StoreKind
from catchment.model.window import Counted, Period, Window
from catchment.operators import OperatorRef, operator_class
from catchment.planner.edges import Edges, EdgeSeries

_MOST_EDGES = 1024.0
"""Edges between two events that are made at most: of longer stretches they are left out."""


def periods_of(windows: Iterable[Window]) -> list[Period]:
    """All series of windows whose edges are known ahead."""
    return [period for window in windows for period in window.periods]


def smallest_gap(windows: Iterable[Window]) -> int | None:
    """The shortest pause that ends a session; None where no window is one."""
    gaps = [window.session_gap for window in windows]
    return min((gap for gap in gaps if gap is not None), default=None)


def session_grid(windows: Sequence[Window]) -> int | None:
    """The width of the slices that sessions need besides the edges there are.

    A slice no longer than the smallest gap holds no break between sessions. Where some window
    type has an edge that often anyway, nothing is added.
    """
    smallest = smallest_gap(windows)
    if smallest is None:
        return None
    slides = [period.slide for period in periods_of(windows) if _even(period)]
    return None if slides and min(slides) <= smallest else smallest


def _even(period: Period) -> bool:
    """Whether windows come again and again, after the same time."""
    return not period.only and period.scale is None


def edges_of(windows: Sequence[Window]) -> Edges:
    return _edges_of(tuple(windows))


@lru_cache(maxsize=64)
def _edges_of(windows: tuple[Window, ...]) -> Edges:
    return Edges(periods_of(windows), session_grid(windows))


class PartialCuts(NamedTuple):
    """Where large partials of some windows are cut together.

    To merge sorted values, sets or sketches costs as much as to make them. So together they may
    be cut only some times as often as any of the windows asks for (`alike`). An open session is
    merged again whenever something joins it: it has only what is asked of it.

    >>> from catchment.windows import tumbling
    >>> one, ten, twenty = (cuts_of(tumbling(length)) for length in ("1s", "10s", "20s"))
    >>> ten.joined(twenty).alike(4), one.joined(twenty).alike(4)
    (True, False)
    """

    series: frozenset[EdgeSeries]
    """Evenly, in time, on a scale or in ranks, from an offset on; no series has all edges of
    another. Empty for sessions, and for windows bounded by marks: nobody knows how often these are
    cut."""
    rate: float
    """Cuts in a microsecond, or for each event."""
    least: float
    """Cuts that the window asks for which is cut least often."""

    def joined(self, other: PartialCuts) -> PartialCuts:
        """The cuts of all windows of both."""
        if not (self.series and other.series):
            return PartialCuts(frozenset(), math.inf, 0.0)
        if self.series == other.series:
            return self if self.least <= other.least else other
        every = self.series | other.series
        needed = frozenset(
            one for one in every if not any(_covers(finer, one) for finer in every if finer != one)
        )
        return PartialCuts(needed, _rate(needed), min(self.least, other.least))

    def alike(self, most: float) -> bool:
        """Whether together they are cut at most so many times as often as each asks for."""
        return self.rate <= most * self.least


@lru_cache(maxsize=4096)
def cuts_of(window: Window) -> PartialCuts:
    """Where a window is cut."""
    series: frozenset[EdgeSeries]
    if isinstance(window, Counted):
        step, rest = window.step, window.size % window.step
        series = frozenset({EdgeSeries(step, 0), EdgeSeries(step, rest)})
    elif window.session_gap is not None:
        series = frozenset()
    else:
        # A single window is cut as rarely as if it came again and again.
        series = frozenset(Edges(each._replace(only=False) for each in window.periods).series())
    return PartialCuts(series, _rate(series), _rate(series))


def _covers(finer: EdgeSeries, coarser: EdgeSeries) -> bool:
    """Whether one series has all edges of another."""
    slide = finer.slide
    whole = coarser.slide % slide == 0 and (coarser.offset - finer.offset) % slide == 0
    return whole and finer.scale == coarser.scale


def _rate(series: Iterable[EdgeSeries]) -> float:
    return sum(each.rate for each in series)


def overlap(period: Period) -> int:
    """How many of a series' windows hold one event, at most."""
    return 1 if period.only else -(-period.length // period.slide)


def on_scale(window: Window) -> bool:
    """Whether a window is bounded by the points of a scale, and not by plain time."""
    return any(period.scale is not None for period in window.periods)


class EventCosts(NamedTuple):
    """What an event costs by slices, and by one accumulator for each window."""

    sliced: float
    direct: float
    edges: float
    """Edges a second."""
    updates: int
    """Windows that hold one event."""
    types: int
    """Window types, each of which is a group of accumulators."""
    margin: float
    """How many times cheaper accumulators must be."""

    @property
    def direct_wins(self) -> bool:
        return self.direct * self.margin < self.sliced

    def describe(self, rate: float) -> str:
        """Both costs, and what they are made of."""
        return (
            f"{shown(rate)} events and {shown(self.edges)} edges a second: an event costs "
            f"{self.sliced:.3g} by slices, {self.direct:.3g} by accumulators "
            f"({self.updates:,} updates in {self.types:,} group(s))"
        )


def ways_of(
    windows: Sequence[Window], rate: float, costs: CostModel = RECORDED
) -> EventCosts | None:
    """What both ways cost; None where windows cannot have accumulators, or need none.

    An accumulator is known by its start: no two windows of a type may start together, as those of
    a calendar do where a day is left out. Windows that do not overlap are slices already.
    """
    updates = 0
    for window in windows:
        periods = window.periods
        if len(periods) != 1 or periods[0].scale is not None:
            return None
        updates += overlap(periods[0])
    edges = edges_of(windows).rate if updates >= 2 else 0.0
    if edges == 0:
        return None
    sliced = 1.0 + costs.edge * min(edges / rate, _MOST_EDGES)
    direct = costs.group * len(windows) + costs.update * updates
    return EventCosts(sliced, direct, edges, updates, len(windows), costs.margin)


def slices_per_window(windows: Sequence[Window]) -> float:
    """The largest number of slices that one window is assembled from."""
    if len(windows) == 1:  # most groups of many queries have but one window
        return _slices_of(windows[0])
    periods = periods_of(windows)
    longest = max((period.reach for period in periods), default=0)
    most = 1.0 if longest == 0 else max(1.0, edges_of(windows).rate * longest / 1e6)
    counted = [window for window in windows if isinstance(window, Counted)]
    if counted:
        cut = math.gcd(*(w.size for w in counted), *(w.step for w in counted))
        most = max(most, max(window.size for window in counted) / cut)
    return most


def _slices_of(window: Window) -> float:
    """The number of slices that a window of a group by itself is assembled from."""
    if isinstance(window, Counted):
        return window.size / math.gcd(window.size, window.step)
    periods = window.periods
    if len(periods) > 1:
        return max(1.0, edges_of((window,)).rate * max(each.reach for each in periods) / 1e6)
    if not periods or periods[0].only:
        return 1.0
    length, slide = periods[0].length, periods[0].slide
    return max(1.0, length / slide * (1 if length % slide == 0 else 2))


def choose_store(
    windows: Sequence[Window], operators: Sequence[OperatorRef], eager_from: float
) -> tuple[StoreKind, str]:
    """The aggregate store by slices per window, and why."""
    for ref in operators:
        kind = operator_class(ref.kind)
        if kind.ordered(ref):
            return "lazy", f"{ref.id} is merged in order of time"
        if not kind.small:
            return "lazy", f"{ref.id} is large, and a tree would hold it many times"
    slices = slices_per_window(windows)
    if slices >= eager_from:
        return "eager", f"about {slices:,.0f} slices per window: a tree reads 2 log2 of them"
    return "lazy", f"about {slices:,.0f} slices per window: a list is read as fast as a tree"
