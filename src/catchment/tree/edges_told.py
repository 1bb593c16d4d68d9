"""When nodes say how far they are without being asked: whenever that may complete a window.

Windows whose edges are known ahead are complete when the frontier passes an edge, and sessions end
where the data says. Nodes speak of sessions once a slice, which is no longer than the smallest gap;
in between, the root asks them (`Root.due`). Of count windows that are found by asking the root asks
too. Where user-defined windows are found by their marks, nodes speak of marks, and of the frontier
with them, twice in a second of event time. Where each stream has windows of its own, nodes tell
their frontier once in a second, and when such a window has ended (`Merger.follow_streams`); the
root asks the other nodes when they have passed its end. For all other windows, each step of the
frontier is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from catchment.model.plan import Group, Plan
from catchment.planner.cost import edges_of, periods_of, smallest_gap
from catchment.planner.edges import EARLIEST, LATEST, Series

_MARKS, _STREAMS = 500_000, 1_000_000
"""Microseconds of event time between two words about marks, and about windows of streams."""


def passes_edge(
    plan: Plan, asked: Collection[int], marked: Collection[int], low: int, high: int
) -> bool:
    """Whether a node must tell its parent that its frontier moved: it may complete a window.

    For the groups in `asked` a node tells nothing until the root asks. Windows of the groups in
    `marked` are found by their marks, and for these a node tells its frontier now and then. Windows
    of single streams that have ended are not looked at here.
    """
    if low == high:
        return False
    if high >= LATEST or low <= EARLIEST:
        return True
    if _next_word(plan, marked, low) <= high:
        return True
    groups = [group for group in plan.groups if group.id not in {*asked, *marked}]
    return not all(map(_tells_edges, groups)) or any(
        edge <= high for group in (*groups, *plan.nested) for edge in _next_edges(group, low)
    )


def next_edge(plan: Plan, asked: Collection[int], marked: Collection[int], time: int) -> int:
    """The next time after which nodes tell their frontier without being asked."""
    groups = [group for group in plan.groups if group.id not in {*asked, *marked}]
    if not all(map(_tells_edges, groups)):
        return time  # they speak of every step
    every = (*groups, *plan.nested)
    word = _next_word(plan, marked, time)
    return min([word, *(edge for group in every for edge in _next_edges(group, time))])


def _tells_edges(group: Group) -> bool:
    """Whether nodes tell their frontier for a group only when it passes an edge."""
    return group.slicing == "stream" or all(
        window.periods or window.session_gap is not None for window in group.windows
    )


def _next_word(plan: Plan, marked: Collection[int], time: int) -> int:
    """When nodes speak again of marks, or of windows of streams."""
    by_stream = any(group.slicing == "stream" for group in plan.groups)
    every = _MARKS if marked else _STREAMS if by_stream else None
    return LATEST if every is None else (time // every + 1) * every


def _next_edges(group: Group, time: int) -> Iterator[int]:
    """The next edges of a group after a time."""
    series = Series(periods_of(group.windows))
    numbers = series.ending_after(time)
    kinds = np.flatnonzero(numbers <= series.last)
    yield from series.end_of(kinds, numbers[kinds]).tolist()
    if smallest_gap(group.windows) is not None and group.slicing != "stream":
        yield int(edges_of(group.windows).between(time, time)[-1])
