"""Which user-defined windows, read over all nodes, can be found from their marks alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from catchment.model.plan import Group
from catchment.model.window import Marked
from catchment.operators import OperatorRef, operator_class
from catchment.planner.together import waiting_together

_LIST = "list"
"""The operator that keeps values with their times, which are longer than the events are."""


def why_events(group: Group) -> str | None:
    """Why all events of a group that waits for its marks must climb; None: its marks do."""
    if group.measure != "event":
        return "its windows go by the clock"
    if group.distinct_on:
        return "duplicates are found where all events meet"
    if group.slicing != "settled" or not all(isinstance(w, Marked) for w in group.windows):
        return "windows are bounded by other events than marks"
    if any(window.reads for window in group.windows):
        return "windows hold events of those streams only that have begun them"
    refs = (OperatorRef(*ref) for ref in group.operators)
    needing = [ref.id for ref in refs if _needs_events(ref)]
    return f"{', '.join(needing)} needs all of them" if needing else None


def _needs_events(ref: OperatorRef) -> bool:
    """Whether the order of events matters, or partials hold all of them with their times."""
    return operator_class(ref.kind).ordered(ref) or ref.kind == _LIST


class MarkedSet(NamedTuple):
    """Groups that wait together: a name for good, and their ids."""

    name: str
    groups: tuple[int, ...]


def waiting_sets(groups: Iterable[Group], apart: Collection[int] = ()) -> dict[int, MarkedSet]:
    """The sets of groups that wait together and that others may join, by the id of the first."""
    known = {group.id: group for group in groups}
    found: dict[int, MarkedSet] = {}
    for ids in waiting_together(known.values(), apart):
        first = known[ids[0]]
        alone = first.slicing != "settled" or bool(first.distinct_on) or first.id in apart
        if not alone and first.measure == "event":
            name = ", ".join([*(["all keys"] if first.whole else []), *first.by])
            found[first.id] = MarkedSet(name, tuple(ids))
    return found


def marked_sets(groups: Iterable[Group], apart: Collection[int] = ()) -> dict[int, MarkedSet]:
    """Those of the sets of which nodes send marks only."""
    known = {group.id: group for group in groups}
    return {
        id: one
        for id, one in waiting_sets(known.values(), apart).items()
        if all(why_events(known[member]) is None for member in one.groups)
    }
