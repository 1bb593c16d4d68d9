"""What slicing costs against its alternatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from catchment.model.plan import StoreKind
from catchment.model.window import Counted, Gap, Periodic, Window
from catchment.operators import OperatorRef, operator_class
from catchment.planner.edges import Edges

EAGER_FROM = 24
"""Slices per window from which a tree over slices beats a list of them."""
FEW_EVENTS = 2.0
"""Events per slice below which slices are hardly fewer than events."""


def session_grid(windows: Sequence[Window]) -> int | None:
    """The width of the slices that sessions need besides the edges there are.

    A slice no longer than the smallest gap holds no break between sessions. Where some window
    type has an edge that often anyway, nothing is added.
    """
    gaps = [window.gap for window in windows if isinstance(window, Gap)]
    if not gaps:
        return None
    smallest = min(gaps)
    slides = [w.slide for w in windows if isinstance(w, Periodic) and not w.only]
    return None if slides and min(slides) <= smallest else smallest


def edges_of(windows: Sequence[Window]) -> Edges:
    return _edges_of(tuple(windows))


@lru_cache(maxsize=64)
def _edges_of(windows: tuple[Window, ...]) -> Edges:
    periodic = [window for window in windows if isinstance(window, Periodic)]
    return Edges(periodic, session_grid(windows))


def overlap(window: Periodic) -> int:
    """How many of the type's windows hold one event, at most."""
    return 1 if window.only else -(-window.length // window.slide)


def slicing_loses(windows: Sequence[Window], rate: float) -> str | None:
    """Why one accumulator per window is cheaper than slices, or None when it is not."""
    if not all(isinstance(window, Periodic) for window in windows):
        return None
    series = [window for window in windows if isinstance(window, Periodic)]
    updates = sum(overlap(window) for window in series)
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
    most = 1.0
    for window in windows:
        if isinstance(window, Periodic):
            most = max(most, rate * window.length / 1e6)
        if isinstance(window, Counted):
            others = [w for w in windows if isinstance(w, Counted)]
            cut = math.gcd(*(w.size for w in others), *(w.step for w in others))
            most = max(most, window.size / cut)
    return most


def choose_store(
    windows: Sequence[Window], operators: Sequence[OperatorRef]
) -> tuple[StoreKind, str]:
    """The aggregate store by slices per window, and why."""
    for ref in operators:
        kind = operator_class(ref.kind)
        if kind.ordered(ref):
            return "lazy", f"{ref.id} is merged in order of time"
        if not kind.constant:
            return "lazy", f"{ref.id} grows with its events, and a tree would hold it many times"
    slices = slices_per_window(windows)
    if slices >= EAGER_FROM:
        return "eager", f"about {slices:,.0f} slices per window: a tree reads 2 log2 of them"
    return "lazy", f"about {slices:,.0f} slices per window: a list is read as fast as a tree"
