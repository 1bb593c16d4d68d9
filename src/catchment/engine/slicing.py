"""The first verb, for one group: a batch of events to rows of slice and key.

Edges of all windows of the group in the range of the batch are one sorted array. Events in order
are cut by a search of the edges among the times; out of order, the slice of each event is looked
up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from catchment.engine.batch import Batch, Chosen
from catchment.engine.keys import LocalKeys
from catchment.engine.rows import Rows, concat_rows, empty_names, flat, merge_fields, no_rows
from catchment.model.plan import Group
from catchment.model.window import Period
from catchment.operators import Computed, Grouping, Input, Operator, grouped
from catchment.operators.base import QUIET, InputForm
from catchment.operators.grouping import sort_order
from catchment.operators.ragged import Fields, Ints, take
from catchment.planner.cost import edges_of, overlap, periods_of, session_grid, smallest_gap
from catchment.planner.edges import Edges

_FINEST = 2
"""Where slices would outnumber events by this, those of sessions are found without all edges."""
_LONG = 256
"""Events in a slice from which it is worth a step of its own."""
EVENTS_A_CELL = 4
"""Events in a cell, on average, from which groups are sliced together."""
_FINDING = 4
"""Operator calls that finding the slice and key of an event is worth."""


class SlicedGroup(NamedTuple):
    """Partials whose keys are codes local to the batch, and what the codes stand for."""

    rows: Rows
    keys: LocalKeys
    calls: int
    """Operator calls: events times operators."""


class GroupSlicer:
    """Slices batches for one group of a plan."""

    def __init__(self, group: Group, operators: Mapping[str, Operator]) -> None:
        self.group = group
        self.operators = operators
        self.edges = edges_of(group.windows)
        self.gap = session_grid(group.windows)
        self.smallest_gap = smallest_gap(group.windows) or 0
        self.coarse = Edges(periods_of(group.windows)) if self.gap else self.edges

    def slice(self, batch: Batch, kept: Chosen) -> SlicedGroup:
        """The partials of a batch, one row per slice and key, or a few."""
        parts = self._parts(batch.of(kept), kept.selection)
        rows = concat_rows([part for part, _ in parts], self.operators)
        return SlicedGroup(rows, batch.keys(self.group.by), sum(calls for _, calls in parts))

    def _parts(self, events: Batch, selection: Ints | None) -> list[tuple[Rows, int]]:
        """Without keys, events in order need no scatter: where most are, late ones go apart.

        To merge the partials of the two costs nothing against that.
        """
        alone = not self.group.by and selection is None
        if not alone or self.group.way == "accumulators" or not len(events):
            return [self._part(events, selection)]
        if events.in_order:
            return [self._in_order(events)]
        if events.in_time is None:
            return [self._part(events, selection)]
        in_time, late = events.in_time
        return [self._in_order(in_time), self._part(late, selection)]

    def _in_order(self, events: Batch) -> tuple[Rows, int]:
        """Slices events that are in order."""
        times, count = events.times, len(events)
        low, high = events.span
        if self.gap and (high - low) // self.gap > _FINEST * count:
            return self._part(events, None)
        edges = self.edges.around(times, low, high)
        starts = np.concatenate([[0], np.searchsorted(times, edges[1:-1])])
        filled = np.flatnonzero(np.diff(starts, append=count))
        starts = starts[filled]
        groups = Grouping(None, len(filled), starts=starts, rows=count)
        fields = lift(events, groups, self.operators)
        first, last = times[starts], times[np.append(starts[1:], count) - 1]
        key = np.zeros(len(filled), np.int64)
        made = Rows(edges[filled], edges[filled + 1], key, first, last, flat(fields))
        return made, count * len(self.operators)

    def _part(self, events: Batch, selection: Ints | None) -> tuple[Rows, int]:
        if not len(events):
            return no_rows(self.operators), 0
        keys = events.keys(self.group.by)
        code = keys.codes
        if selection is not None:
            base = selection * keys.count
            code = base if code is None else base + code
        if self.group.way == "accumulators":
            some, groups, start, end, present = self._by_window(events.times, code, keys.count)
            events = events.some(some)
        else:
            groups, start, end, present = self._by_slice(events, code, keys.count)
        rows = self._rows(events, groups, start, end, present)
        return rows, len(events) * len(self.operators)

    def _by_slice(
        self, events: Batch, code: Ints | None, keys: int
    ) -> tuple[Grouping, Ints, Ints, Ints]:
        """Groups events by slice and key: the grouping, and each group's bounds and key."""
        width = keys * len(self.group.selections)
        times = events.times
        low, high = events.span
        if self.gap and (high - low) // self.gap > _FINEST * len(times):
            return self._by_gap(times, code)
        edges = self.edges.around(times, low, high)
        slices = len(edges) - 1
        if events.in_order:
            bounds = np.concatenate([[0], np.searchsorted(times, edges[1:-1]), [len(times)]])
            codes = _numbered(bounds, width, code)
        else:
            codes = self._slice_of(events, edges)
            codes = codes if width == 1 else codes * width
            codes = codes if code is None else codes + code
        groups, present = _grouping(codes, slices * width)
        place, key = np.divmod(present, width)
        return groups, edges[place], edges[place + 1], key

    def _slice_of(self, events: Batch, edges: Ints) -> Ints:
        """The number of each event's slice, by a table over the edges' common unit if small."""
        inner, grid = edges[1:-1], events.grid(self.edges.unit)
        if grid is None:
            return np.searchsorted(inner, events.times, side="right").astype(np.int64, copy=False)
        return np.searchsorted(inner, grid.lines, side="right").take(grid.cells)

    def joint_rows(self, events: Batch, code: Ints, codes: int) -> Rows:
        """Rows of slice and code; the codes of the events are below `codes`."""
        groups, start, end, present = self._by_slice(events, code, codes)
        return self._rows(events, groups, start, end, present)

    def merged(self, rows: Rows, key: Ints, batch: Batch, keys: int) -> Rows:
        """Rows of finer slices, under these codes of keys, merged into those of this group."""
        fields = {name: rows.fields[name] for name in empty_names(self.operators)}
        if not len(rows):
            return no_rows(self.operators)
        edges = self.edges.around(batch.times, *batch.span)
        place = np.searchsorted(edges, rows.start, side="right") - 1
        width = keys * len(self.group.selections)
        groups, present = grouped(place * width + key, (len(edges) - 1) * width)
        place, key = np.divmod(present, width)
        start, end = edges[place], edges[place + 1]
        if groups.n == groups.rows:
            order = groups.segments[0]
            fields = {name: take(column, order) for name, column in fields.items()}
        else:
            fields = merge_fields(fields, groups, self.operators)
        first = last = start
        if self.smallest_gap:
            first, last = groups.min(rows.first), groups.max(rows.last)
        return Rows(start, end, key, first, last, fields)

    def _by_gap(self, times: Ints, code: Ints | None) -> tuple[Grouping, Ints, Ints, Ints]:
        """The same slices, of few events among many edges: only those that hold events are made."""
        assert self.gap is not None
        key = np.zeros(len(times), np.int64) if code is None else code
        order = sort_order(times, key)
        ordered, owner = times[order], key[order]
        edges = self.coarse.around(times, int(times.min()), int(times.max()))
        place = np.searchsorted(edges, ordered, side="right") - 1
        cell = ordered // self.gap
        new = np.ones(len(times), np.bool_)
        new[1:] = (owner[1:] != owner[:-1]) | (place[1:] != place[:-1]) | (cell[1:] != cell[:-1])
        codes = np.empty(len(times), np.int64)
        codes[order] = np.cumsum(new) - 1
        heads = np.flatnonzero(new)
        groups = Grouping(codes, len(heads))
        begin = cell[heads] * self.gap
        start = np.maximum(edges[place[heads]], begin)
        end = np.minimum(edges[place[heads] + 1], begin + self.gap)
        return groups, start, end, owner[heads]

    def _by_window(
        self, times: Ints, code: Ints | None, keys: int
    ) -> tuple[Ints, Grouping, Ints, Ints, Ints]:
        """Groups events by window and key: the events, once for every window that holds them, and
        their grouping, with the bounds and the key of each group."""
        (period,) = periods_of(self.group.windows)
        width = keys * len(self.group.selections)
        latest = (times - period.offset) // period.slide
        pieces, numbers, codes = [], [], []
        for back in range(overlap(period)):
            number = latest - back
            start = period.offset + number * period.slide
            inside = times < start + period.length
            if period.only:
                inside &= number == 0
            at = np.flatnonzero(inside)
            pieces.append(at)
            numbers.append(number[at])
            codes.append(np.zeros(len(at), np.int64) if code is None else code[at])
        number, key = np.concatenate(numbers), np.concatenate(codes)
        lowest = int(number.min()) if len(number) else 0
        span = int(number.max()) - lowest + 1 if len(number) else 0
        groups, present = _grouping((number - lowest) * width + key, span * width)
        place, owner = np.divmod(present, width)
        start = period.offset + (place + lowest) * period.slide
        return np.concatenate(pieces), groups, start, start + period.length, owner

    def _rows(self, events: Batch, groups: Grouping, start: Ints, end: Ints, key: Ints) -> Rows:
        fields = flat(lift(events, groups, self.operators))
        present = None
        if groups.n > len(start):  # some groups of a dense grouping are empty
            present = np.flatnonzero(groups.count)
            fields = {name: take(column, present) for name, column in fields.items()}
        first = last = start
        if self.smallest_gap and len(events):
            first, last = self._ends(events.times, groups, present, start, end, key)
        return Rows(start, end, key, first, last, fields)

    def _ends(
        self,
        times: Ints,
        groups: Grouping,
        present: Ints | None,
        start: Ints,
        end: Ints,
        key: Ints,
    ) -> tuple[Ints, Ints]:
        """The first and last times, of those slices where a session may begin or end.

        Of two neighbours so close that no break fits between them, neither the last of the one
        nor the first of the other can matter: the slice's start stands in for both.
        """
        order = sort_order(start, key)
        close = np.zeros(len(order) + 1, np.bool_)
        close[1:-1] = (key[order][1:] == key[order][:-1]) & (
            end[order][1:] - start[order][:-1] <= self.smallest_gap
        )
        matters = np.empty(len(order), np.bool_)
        matters[order] = ~(close[:-1] & close[1:])
        if 2 * int(matters.sum()) > len(matters):
            first, last = groups.min(times), groups.max(times)
            return (first, last) if present is None else (first[present], last[present])
        wanted = np.zeros(groups.n, np.bool_)
        wanted[matters if present is None else present[matters]] = True
        events = np.flatnonzero(wanted.take(groups.codes))
        some = Grouping(groups.codes[events], groups.n)
        first, last = some.min(times[events]), some.max(times[events])
        if present is not None:
            first, last = first[present], last[present]
        return np.where(matters, first, start), np.where(matters, last, start)


class SharedSlicer:
    """Slices batches for several groups of one key at once; some of them may have no key.

    Events are reduced once, to cells: one row for each slice between the edges of all the groups,
    key, and set of conditions met. What each group makes of the batch is put together from the
    cells that meet its conditions. Where cells are not far fewer than events, groups without keys
    are sliced apart from the others, and then the last groups are left out: they slice by
    themselves.
    """

    def __init__(self, groups: Mapping[int, GroupSlicer]) -> None:
        self._ids = list(groups)
        self._groups = groups
        keyed = {id: slicer for id, slicer in groups.items() if slicer.group.by}
        others = {id: slicer for id, slicer in groups.items() if not slicer.group.by}
        both = (keyed, others) if keyed and others else ()
        self._parts = [SharedSlicer(part) for part in both]
        """Groups with keys and those without."""
        self.measure = groups[self._ids[0]].group.measure
        self._joint: dict[int, GroupSlicer] = {}

    def slice(self, batch: Batch) -> dict[int, SlicedGroup]:
        """What the groups make of a batch, as far as it pays to slice them together."""
        some = len(self._ids)
        if self._parts:
            cells = self._cells(batch, list(self._groups.values()), some)
            if cells is None:
                return {id: made for part in self._parts for id, made in part.slice(batch).items()}
            return self._from(cells, some)
        while some > 1:
            cells = self._cells(batch, [self._groups[id] for id in self._ids[:some]], some)
            if cells is not None:
                return self._from(cells, some)
            some //= 2
        return {}

    def _from(self, cells: _EventCells, some: int) -> dict[int, SlicedGroup]:
        """What the first groups make of cells."""
        return {
            id: cells.group(self._groups[id], shared=number > 0)
            for number, id in enumerate(self._ids[:some])
        }

    def _cells(self, batch: Batch, slicers: list[GroupSlicer], some: int) -> _EventCells | None:
        """The cells of the first groups; None where they are too many."""
        joint = self._joint.get(some)
        if joint is None:
            joint = self._joint[some] = joined(slicers)
        keys = batch.keys(joint.group.by)
        low, high = batch.span
        if joint.gap and (high - low) // joint.gap > _FINEST * len(batch):
            return None
        edges = joint.edges.around(batch.times, low, high)
        most = len(batch) // EVENTS_A_CELL
        if (len(edges) - 1) * keys.count > most:
            return None
        conditions = tuple(dict.fromkeys(c for s in slicers for c in s.group.selections if c))
        sets, place = batch.sets(conditions)
        events = batch
        if all(None not in slicer.group.selections for slicer in slicers):
            wanted = np.flatnonzero(sets[place])  # nobody wants the others
            events, place = batch.some(wanted), place.take(wanted)
        rows = len(events)
        met = _Met(conditions, sets, np.bincount(place, minlength=len(sets)))
        alone = sum(_work(met.events(slicer.group), slicer.operators) for slicer in slicers)
        cells = (len(edges) - 1) * keys.count * len(sets)
        if cells > most or not rows or _work(rows, joint.operators) > alone:
            return None
        local = events.keys(joint.group.by).codes
        code = place if local is None else local * len(sets) + place
        made = joint.joint_rows(events, code, keys.count * len(sets))
        return _EventCells(batch, keys, conditions, sets, made, rows * len(joint.operators))


class _Met(NamedTuple):
    """How many events meet each set of conditions."""

    conditions: tuple[str, ...]
    sets: Ints
    events_met: Ints

    def events(self, group: Group) -> int:
        """How many events a group wants."""
        if None in group.selections:
            return int(self.events_met.sum())
        bits = (1 << self.conditions.index(c) for c in group.selections if c)
        return sum(int(self.events_met[(self.sets & bit) != 0].sum()) for bit in bits)


def _work(events: int, operators: Mapping[str, Operator]) -> int:
    """What it takes to reduce events, in operator calls: to find their slices is worth a few."""
    return events * (_FINDING + len(operators))


class _EventCells(NamedTuple):
    """A batch, reduced to rows whose keys are `key * len(sets) + set of conditions met`."""

    batch: Batch
    keys: LocalKeys
    conditions: tuple[str, ...]
    sets: Ints
    """Which conditions each set has, as bits."""
    rows: Rows
    calls: int

    def group(self, slicer: GroupSlicer, shared: bool) -> SlicedGroup:
        """The partials of a group; what `shared` cells took to compute is another's."""
        rows, selections = self.rows, slicer.group.selections
        key, place = np.divmod(rows.key, len(self.sets))
        keys = self.keys
        if not slicer.group.by:
            key, keys = np.zeros_like(key), self.batch.keys(())
        if selections != (None,):
            selection = np.full(len(self.sets), -1, np.int64)
            for number, condition in enumerate(selections):
                bit = 0 if condition is None else 1 << self.conditions.index(condition)
                selection[(self.sets & bit) == bit] = number
            chosen = np.flatnonzero(selection[place] >= 0)
            key = (selection[place] * keys.count + key)[chosen]
            rows = rows.take(chosen)
        made = slicer.merged(rows, key, self.batch, keys.count)
        return SlicedGroup(made, keys, 0 if shared else self.calls)


def joined(slicers: Sequence[GroupSlicer]) -> GroupSlicer:
    """A slicer at all edges of several groups, with all their operators.

    Every slice of it lies in one slice of each group, also where a group's edges are only the grid
    that its sessions need.
    """
    windows = dict.fromkeys(window for s in slicers for window in s.group.windows)
    operators = {id: operator for s in slicers for id, operator in s.operators.items()}
    by = max((slicer.group.by for slicer in slicers), key=len)
    group = replace(slicers[0].group, by=by, windows=tuple(windows), selections=(None,))
    made = GroupSlicer(group, operators)
    grids = {slicer.gap for slicer in slicers if slicer.gap}
    made.edges = Edges([*periods_of(windows), *(Period(grid, grid) for grid in grids)])
    made.gap = min(grids, default=None)
    return made


def _numbered(bounds: Ints, width: int, code: Ints | None) -> Ints:
    """The codes of rows that stand in order of slice; slices of many rows are done in place."""
    slices = len(bounds) - 1
    if code is None or slices * _LONG > len(code):
        codes = np.repeat(np.arange(slices, dtype=np.int64) * width, np.diff(bounds))
        return codes if code is None else codes + code
    codes = code.astype(np.int64)
    for number in range(1, slices):
        codes[bounds[number] : bounds[number + 1]] += number * width
    return codes


def _grouping(codes: Ints, cells: int) -> tuple[Grouping, Ints]:
    """A dense grouping where cells are few, whose empty cells are dropped after the lifting."""
    if cells <= len(codes) // 2 + 64:
        groups = Grouping(codes, cells)
        return groups, np.flatnonzero(groups.count)
    return grouped(codes, cells)


@QUIET
def lift(events: Batch, groups: Grouping, operators: Mapping[str, Operator]) -> dict[str, Fields]:
    """Every operator's partials; the nulls of a column are dropped once for all its operators."""
    inputs: dict[tuple[str | None, InputForm], Input] = {}
    out: dict[str, Fields] = {}
    for id, operator in operators.items():
        place = (operator.ref.column, operator.reads)
        if place not in inputs:
            inputs[place] = _input(events, groups, *place)
        out[id] = operator.lift(inputs[place], Computed(operators, out))
    return {id: out[id] for id in operators}


def _input(events: Batch, groups: Grouping, text: str | None, reads: InputForm) -> Input:

    def times() -> Ints:
        return events.times

    def arrivals(rows: Ints | None = None) -> Ints:
        return events.arrivals_at(rows)

    if text is None:  # whole events, which have no value
        return Input(np.empty(0, np.int64), groups, times, arrivals)
    column = events.column(text, reads)
    if reads == "parts":
        return Input(column.values, groups, times, arrivals, None, column.parts)
    if column.valid is None:
        return Input(column.values, groups, times, arrivals, column.levels)
    valid = np.flatnonzero(column.valid)
    return Input(
        column.values[valid],
        groups.select(valid),
        lambda: events.times[valid],
        lambda rows=None: events.arrivals_at(valid if rows is None else valid[rows]),
        column.levels,
    )
