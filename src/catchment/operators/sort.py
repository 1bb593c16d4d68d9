"""All values in order (the papers' non-decomposable sort), and all distinct values."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator, value_type
from catchment.operators.grouping import Grouping, stable_order
from catchment.operators.ragged import Array, Fields, Ints, Ragged, offsets_of
from catchment.operators.values import Mask

_FEW = 32
"""Values of a row, on average, below which it is not worth a sort of its own."""


@register_operator
class Sort(Operator):
    """Every value, sorted: one sort serves min, max, all counts, mode and all quantiles."""

    kind = "sort"
    small = False
    derives = ("min", "max", "count", "distinct", "counts")

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"run": pa.list_(value_type(self.type))}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        return {"run": decoded(events, sort_within(events.values, events.groups))}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        run = rows[self.ref]["run"]
        assert isinstance(run, Ragged)
        return {"run": merge_runs(run, groups)}

    def derive(self, kind: str, fields: Fields) -> Fields:
        run = fields["run"]
        assert isinstance(run, Ragged)
        if kind == "count":
            return {"count": run.lengths}
        if kind == "distinct":
            return {"set": unique_within(run)}
        if kind == "counts":
            values, times = counted_within(run)
            return {"value": values, "times": Ragged(values.offsets, times)}
        return {"value": _end(run, 0 if kind == "min" else -1)}


@register_operator
class Distinct(Operator):
    """The set of values, sorted."""

    kind = "distinct"
    small = False

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"set": pa.list_(value_type(self.type))}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        few = few_within(events.values, events.groups)
        run = unique_within(sort_within(events.values, events.groups)) if few is None else few
        return {"set": decoded(events, run)}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        sets = rows[self.ref]["set"]
        assert isinstance(sets, Ragged)
        return {"set": unique_within(merge_runs(sets, groups))}


def sort_within(values: Array, groups: Grouping) -> Ragged:
    """The values of each group, sorted."""
    table = table_of(values, groups, 1)
    if table is not None:  # whole numbers of a small range are counted
        held = np.bincount(table.places(values, groups), minlength=groups.n * table.span)
        every = np.arange(table.span) + table.low
        numbers = np.repeat(np.broadcast_to(every, (groups.n, table.span)), held)
        return Ragged(offsets_of(groups.count), numbers)
    if groups.n == 1:
        return Ragged(np.array([0, len(values)]), np.sort(values))
    offsets = offsets_of(groups.count)
    if np.count_nonzero(groups.count) > len(values) // _FEW:
        return Ragged(offsets, _sorted_by_group(values, groups.codes))
    if groups.starts is not None:  # the rows of each group stand together
        return _sorted(Ragged(offsets, values), own=False)
    return _sorted(Ragged(offsets, values.take(groups.segments[0])), own=True)


def _sorted_by_group(values: Array, codes: Ints) -> Array:
    """For many short rows: one sort of all."""
    if values.dtype == np.uint32:  # a code and a value fit one word
        words = (codes.astype(np.uint64) << np.uint64(32)) | values
        words.sort()
        return words.astype(np.uint32)
    return values[order_within(values, codes)]


def order_within(values: Array, codes: Ints) -> Ints:
    """The rows in order of group, those of a group in order of value."""
    if values.dtype == object:
        return np.lexsort((values, codes))
    order = np.argsort(values)  # which, not being stable, is much faster than NumPy's lexsort
    return order[stable_order(codes[order])]


def merge_runs(rows: Ragged, groups: Grouping) -> Ragged:
    """The values of all rows of each group, sorted."""
    order, starts, present = groups.segments
    together = groups.starts is not None
    gathered = rows if together else rows.take(order)
    if len(present) == groups.rows == groups.n:  # one run per group, already in order
        return gathered
    lengths = np.zeros(groups.n, np.int64)
    if len(present):
        lengths[present] = np.add.reduceat(gathered.lengths, starts)
    several = groups.count > 1  # a row of one run is in order
    return _sorted(Ragged(offsets_of(lengths), gathered.values), not together, several)


def _sorted(rows: Ragged, own: bool, some: Mask | None = None) -> Ragged:
    """The same with the values of each row sorted, or of `some` rows, where the others are in
    order; in place, where the values are our `own`.

    A merge sort would find the runs that rows are made of. But NumPy sorts numbers by vectors of
    the processor, and that takes less time than to merge; to compare objects takes longer.
    """
    values, offsets = rows.values, rows.offsets
    kind: Literal["quicksort", "stable"] = "stable" if values.dtype == object else "quicksort"
    filled = np.flatnonzero(rows.lengths > 1 if some is None else (rows.lengths > 1) & some)
    if len(filled) > len(values) // _FEW:
        codes = np.repeat(np.arange(len(rows), dtype=np.int64), rows.lengths)
        return Ragged(offsets, _sorted_by_group(values, codes))
    values = values if own else values.copy()
    for begin, end in zip(offsets[filled].tolist(), offsets[filled + 1].tolist(), strict=True):
        values[begin:end].sort(kind=kind)
    return Ragged(offsets, values)


def heads_within(run: Ragged) -> Mask:
    """Where a value of a sorted row is not that before it; NaN equals NaN."""
    values = run.values
    first = np.ones(len(values), np.bool_)
    if not len(values):
        return first
    same = values[1:] == values[:-1]
    if values.dtype.kind == "f":
        same = same | (np.isnan(values[1:]) & np.isnan(values[:-1]))
    first[1:] = ~np.asarray(same, np.bool_)
    first[run.offsets[:-1][run.lengths > 0]] = True
    return first


def unique_within(run: Ragged) -> Ragged:
    """Drops repeated neighbours of each sorted row; NaN equals NaN."""
    if not len(run.values):
        return run
    first = heads_within(run)
    lengths = run.lengths
    filled = lengths > 0
    lengths[filled] = np.add.reduceat(first, run.offsets[:-1][filled], dtype=np.int64)
    return Ragged(offsets_of(lengths), run.values[first])


def counted_within(run: Ragged) -> tuple[Ragged, Ints]:
    """The different values of each sorted row, and how often each occurs."""
    heads = np.flatnonzero(heads_within(run))
    times = np.diff(heads, append=len(run.values)).astype(np.int64, copy=False)
    return Ragged(np.searchsorted(heads, run.offsets), run.values[heads]), times


def few_within(values: Array, groups: Grouping) -> Ragged | None:
    """The distinct values of each group, in order, where they are whole numbers of a small range.

    A table has a place for each group and number: nothing is sorted. None where it would be large.

    >>> found = few_within(np.array([7, 5, 7, 5]), Grouping(np.array([0, 1, 0, 0]), 2))
    >>> found.values.tolist(), found.lengths.tolist()
    ([5, 7, 5], [2, 1])
    """
    table = table_of(values, groups, 4)
    if table is None:
        return None
    seen = np.zeros(groups.n * table.span, np.bool_)
    seen[table.places(values, groups)] = True
    return table.values(np.flatnonzero(seen), groups.n)


class ValueTable(NamedTuple):
    """A place for each group and each whole number from `low` on, `span` of them."""

    low: int
    span: int

    def places(self, values: Array, groups: Grouping) -> Ints:
        """The place of each value."""
        at: Ints = values - self.low
        if groups.n > 1:
            at += groups.codes * self.span
        return at

    def values(self, places: Ints, groups: int) -> Ragged:
        """The values at some places, which are in order, by group."""
        owner, found = np.divmod(places, self.span)
        return Ragged(offsets_of(np.bincount(owner, minlength=groups)), found + self.low)


def table_of(values: Array, groups: Grouping, room: int) -> ValueTable | None:
    """The table of whole numbers; None where values are others, or where it would have more than
    `room` places for each of them."""
    if values.dtype != np.int64 or not len(values):
        return None
    low = int(values.min())
    span = int(values.max()) - low + 1
    return ValueTable(low, span) if groups.n * span <= room * len(values) else None


def decoded(events: Input, run: Ragged) -> Ragged:
    return Ragged(run.offsets, events.decode(run.values))


def _end(run: Ragged, which: int) -> Array:
    """The first or last value of each row; of an empty row, the identity's stand-in."""
    filled = run.lengths > 0
    at: Ints = (run.offsets[:-1] if which == 0 else run.offsets[1:] - 1)[filled]
    empty = None if run.values.dtype == object else 0
    out = np.full(len(run), empty, run.values.dtype)
    out[filled] = run.values[at]
    return out
