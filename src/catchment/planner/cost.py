"""What slicing costs against its alternatives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

from catchment.model.plan import StoreKind
from catchment.model.window import Counted, Period, Window
from catchment.operators import OperatorRef, operator_class
from catchment.planner.edges import Edges

EAGER_FROM = 24
"""Slices per window from which a tree over slices beats a list of them."""
ALIKE = 4
"""How many times as often as its own windows ask for a large partial may be cut."""
FEW_EVENTS = 2.0
"""Events per slice below which slices are hardly fewer than events."""


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


def cut_alike(windows: Iterable[Window], window: Window) -> bool:
    """Whether large partials may be cut at the edges of some windows and of one more.

    To merge sorted values, sets or sketches costs as much as to make them. So together they may
    be cut at most `ALIKE` times as often as any of the windows asks for.

    >>> from catchment.windows import tumbling
    >>> cut_alike([tumbling("10s")], tumbling("20s")), cut_alike([tumbling("1s")], tumbling("60s"))
    (True, False)
    """
    every = dict.fromkeys([*windows, window])
    if len(every) == 1:
        return True
    own = [_series(one) for one in every]
    if not all(own):
        return False  # of windows bounded by marks nobody knows how often they are cut
    series = frozenset[tuple[int, int]]().union(*own)
    needed = [one for one in series if not any(_covers(other, one) for other in series - {one})]
    return _cuts(needed) <= ALIKE * min(map(_cuts, own))


@lru_cache(maxsize=4096)
def _series(window: Window) -> frozenset[tuple[int, int]]:
    """Where a window is cut: evenly, in time or in ranks, from an offset on."""
    if isinstance(window, Counted):
        return frozenset({(window.step, 0), (window.step, window.size % window.step)})
    if window.session_gap is not None:
        return frozenset({(window.session_gap, 0)})
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


def slicing_loses(windows: Sequence[Window], rate: float) -> str | None:
    """Why one accumulator per window is cheaper than slices, or None when it is not.

    An accumulator is known by its start: no two windows of a type may start together.
    """
    if not all(len(window.periods) == 1 for window in windows):
        return None
    updates = sum(overlap(period) for period in periods_of(windows))
    edges = edges_of(windows).rate
    if updates < 2 or edges == 0 or rate / edges >= FEW_EVENTS:
        return None
    sliced = 1 + updates * min(1.0, edges / rate)
    if updates >= sliced:
        return None
    return (
        f"{edges:,.0f} edges a second against {rate:,.0f} events: {rate / edges:.2g} events per "
        f"slice, so an event costs {updates} updates directly and about {sliced:.1f} by slices"
    )


def slices_per_window(windows: Sequence[Window]) -> float:
    """The largest number of slices that one window is assembled from."""
    rate = edges_of(windows).rate
    longest = max((period.length for period in periods_of(windows)), default=0)
    most = max(1.0, rate * longest / 1e6)
    counted = [window for window in windows if isinstance(window, Counted)]
    if counted:
        cut = math.gcd(*(w.size for w in counted), *(w.step for w in counted))
        most = max(most, max(window.size for window in counted) / cut)
    return most


def choose_store(
    windows: Sequence[Window], operators: Sequence[OperatorRef]
) -> tuple[StoreKind, str]:
    """The aggregate store by slices per window, and why."""
    for ref in operators:
        kind = operator_class(ref.kind)
        if kind.ordered(ref):
            return "lazy", f"{ref.id} is merged in order of time"
        if not kind.small:
            return "lazy", f"{ref.id} is large, and a tree would hold it many times"
    slices = slices_per_window(windows)
    if slices >= EAGER_FROM:
        return "eager", f"about {slices:,.0f} slices per window: a tree reads 2 log2 of them"
    return "lazy", f"about {slices:,.0f} slices per window: a list is read as fast as a tree"
