"""Which groups may be sliced together: those of one key, whose partials are a few numbers.

Such groups differ in conditions and in edges only. A slicer can reduce events once for all of them,
to cells of slice, key and set of conditions met (`engine/slicing.py`, `SharedSlicer`).
"""

from __future__ import annotations

from collections.abc import Iterable
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
    edges = sum(1 / period.slide for period in periods_of(group.windows) if not period.only)
    return conditions, edges, group.id
