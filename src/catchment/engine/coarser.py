"""Partials of a group from those of another one, which has more keys or shorter slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from catchment.engine import partials
from catchment.engine.bound_group import BoundGroup
from catchment.engine.keys import KeyIndex
from catchment.engine.partials import KeyedSlices, Partials
from catchment.engine.rows import Rows, compact, fit

if TYPE_CHECKING:
    from catchment.engine.bound import BoundPlan


def coarser_rows(rows: Rows, fine: BoundGroup, keys: KeyIndex, made: KeyedSlices) -> Rows:
    """Rows of a group, whose keys have these codes, as rows of a group that they cover."""
    coarse = made.bound
    places = {text: place for place, text in enumerate(coarse.group.selections)}
    numbers = np.array([places.get(text, -1) for text in fine.group.selections], np.int64)
    selection = numbers[keys.selections[rows.key]]
    if (selection < 0).any():
        wanted = np.flatnonzero(selection >= 0)
        rows, selection = rows.take(wanted), selection[wanted]
    if not len(rows):
        return fit(rows, coarse.operators)
    columns = dict(zip(fine.group.by, keys.take(rows.key), strict=True))
    code = made.keys.codes_of(selection, [columns[name] for name in coarse.group.by])
    edges = coarse.slicer.edges.around(rows.start, int(rows.start.min()), int(rows.start.max()))
    place = np.searchsorted(edges, rows.start, side="right") - 1
    # One that an older plan cut may go over an edge: it serves the windows that hold all of it.
    inside = rows.end <= edges[place + 1]
    start = np.where(inside, edges[place], rows.start)
    end = np.where(inside, edges[place + 1], rows.end)
    found = Rows(start, end, code, start, start, rows.fields)
    return compact(fit(found, coarse.operators), coarse.operators)


def with_coarser(given: Partials, bound: BoundPlan) -> Partials:
    """Partials, with those of groups that are made of them."""
    made = dict(given.groups)
    for fine in {id: None for id in bound.made_of.values() if id in given.groups}:
        table = given.groups[fine]
        if not table.num_rows:
            continue
        held = KeyedSlices(bound.groups[fine])
        rows = partials.rows_of(held, table)
        for coarse in (id for id, of in bound.made_of.items() if of == fine):
            group = KeyedSlices(bound.groups[coarse])
            found = coarser_rows(rows, held.bound, held.keys, group)
            if len(found):
                made[coarse] = partials.take(group, found, 0, 0)
    return Partials(made, given.events, given.regions)
