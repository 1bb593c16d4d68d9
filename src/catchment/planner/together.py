"""Which groups of one key share work that comes before their partials.

Groups whose partials are a few numbers may be *sliced together*: they differ in conditions and in
edges only. A slicer can reduce events once for all of them, to cells of slice, key and set of
conditions met (`engine/slicing.py`, `SharedSlicer`).

Groups that are sliced once their events are settled *wait together*: each event is kept, sent and
put in order once for all of them (`engine/waiting.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from catchment.model.plan import Group
from catchment.operators import operator_class
from catchment.planner.cost import periods_of

CONDITIONS = 16
"""Conditions of a set of groups that are sliced together, at most."""


def sliced_together(groups: Iterable[Group]) -> list[list[int]]:
    """Sets of groups, by their ids: in each, those with the fewest conditions and edges first.

    A set has few conditions, since each may double the number of cells.
    """
    found: dict[tuple[Any, ...], list[list[int]]] = {}
    conditions: dict[tuple[Any, ...], set[str]] = {}
    for group in sorted(groups, key=_cells):
        place = group.measure, group.by
        own = {condition for condition in group.selections if condition}
        if not _shares(group) or len(own) > CONDITIONS:
            continue
        if len(conditions.get(place, own) | own) > CONDITIONS:
            found[place].append([])
            conditions[place] = set()
        found.setdefault(place, [[]])[-1].append(group.id)
        conditions.setdefault(place, set()).update(own)
    return [ids for sets in found.values() for ids in sets if len(ids) > 1]


def _shares(group: Group) -> bool:
    plain = group.slicing == "arrival" and group.way == "slices" and not group.distinct_on
    return plain and all(operator_class(kind).small for kind, _, _ in group.operators)


def _cells(group: Group) -> tuple[int, float, int]:
    """How many cells a group adds to those of others, roughly: by conditions, then by edges."""
    conditions = sum(selection is not None for selection in group.selections)
    edges = sum(1 / period.pace for period in periods_of(group.windows) if not period.only)
    return conditions, edges, group.id


def waiting_together(groups: Iterable[Group], apart: Collection[int] = ()) -> list[list[int]]:
    """All groups whose events wait, by their ids, in sets: one for each key and measure of time.

    Some groups are sets by themselves: where duplicates are dropped, every group has events of its
    own; where each stream has windows of its own, events stay on their node; and of the groups that
    are `apart`, somebody else takes the events.
    """
    found: dict[tuple[Any, ...], list[int]] = {}
    for group in groups:
        if group.slicing == "arrival":
            continue
        alone = group.slicing == "stream" or bool(group.distinct_on) or group.id in apart
        place = (group.id,) if alone else (group.measure, group.by, group.whole)
        found.setdefault(place, []).append(group.id)
    return list(found.values())
