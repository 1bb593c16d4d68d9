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
from catchment.planner.edges import Edges

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
    slides = [period.slide for period in periods_of(windows) if not period.only]
    return None if slides and min(slides) <= smallest else smallest


def edges_of(windows: Sequence[Window]) -> Edges:
    return _edges_of(tuple(windows))


@lru_cache(maxsize=64)
def _edges_of(windows: tuple[Window, ...]) -> Edges:
    return Edges(periods_of(windows), session_grid(windows))


def cut_alike(windows: Iterable[Window], window: Window, most: float = RECORDED.alike) -> bool:
    """Whether large partials may be cut at the edges of some windows and of one more.

    To merge sorted values, sets or sketches costs as much as to make them. So together they may
    be cut at most `most` times as often as any of the windows asks for. An open session is merged
    again whenever something joins it: it has only what is asked of it.

    >>> from catchment.windows import tumbling
    >>> cut_alike([tumbling("10s")], tumbling("20s")), cut_alike([tumbling("1s")], tumbling("60s"))
    (True, False)
    """
    every = dict.fromkeys([*windows, window])
    if len(every) == 1:
        return True
    if any(one.session_gap is not None for one in every):
        return False
    own = [_series(one) for one in every]
    if not all(own):
        return False  # of windows bounded by marks nobody knows how often they are cut
    series = frozenset[tuple[int, int]]().union(*own)
    needed = [one for one in series if not any(_covers(other, one) for other in series - {one})]
    return _cuts(needed) <= most * min(map(_cuts, own))


@lru_cache(maxsize=4096)
def _series(window: Window) -> frozenset[tuple[int, int]]:
    """Where a window is cut: evenly, in time or in ranks, from an offset on."""
    if isinstance(window, Counted):
        return frozenset({(window.step, 0), (window.step, window.size % window.step)})
    # A single window is cut as rarely as if it came again and again.
    edges = Edges(period._replace(only=False) for period in window.periods)
    return frozenset(zip(edges.slides.tolist(), edges.offsets.tolist(), strict=True))


def _covers(finer: tuple[int, int], coarser: tuple[int, int]) -> bool:
    """Whether one series has all edges of another."""
    return coarser[0] % finer[0] == 0 and (coarser[1] - finer[1]) % finer[0] == 0


def _cuts(series: Iterable[tuple[int, int]]) -> float:
    return sum(1 / slide for slide, _ in series)


def overlap(period: Period) -> int:
    """How many of a series' windows hold one event, at most."""
    return 1 if period.only else -(-period.length // period.slide)


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

    An accumulator is known by its start: no two windows of a type may start together. Windows that
    do not overlap are slices already.
    """
    if not all(len(window.periods) == 1 for window in windows):
        return None
    updates = sum(overlap(period) for period in periods_of(windows))
    edges = edges_of(windows).rate if updates >= 2 else 0.0
    if edges == 0:
        return None
    sliced = 1.0 + costs.edge * min(edges / rate, _MOST_EDGES)
    direct = costs.group * len(windows) + costs.update * updates
    return EventCosts(sliced, direct, edges, updates, len(windows), costs.margin)


def slices_per_window(windows: Sequence[Window]) -> float:
    """The largest number of slices that one window is assembled from."""
    periods = periods_of(windows)
    longest = max((period.length for period in periods), default=0)
    if longest == 0:
        most = 1.0
    elif len(windows) == 1 == len(periods):  # most groups of many queries have but one window
        length, slide, _, only = periods[0]
        most = 1.0 if only else max(1.0, length / slide * (1 if length % slide == 0 else 2))
    else:
        most = max(1.0, edges_of(windows).rate * longest / 1e6)
    counted = [window for window in windows if isinstance(window, Counted)]
    if counted:
        cut = math.gcd(*(w.size for w in counted), *(w.step for w in counted))
        most = max(most, max(window.size for window in counted) / cut)
    return most


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
