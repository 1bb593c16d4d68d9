"""All values in order (the papers' non-decomposable sort), and all distinct values."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from catchment.operators.base import Computed, Input, Operator, register_operator, value_type
from catchment.operators.grouping import Grouping, stable_order
from catchment.operators.ragged import Array, Fields, Ints, Ragged, offsets_of

_FEW = 32
"""Values of a row, on average, below which it is not worth a sort of its own."""


@register_operator
class Sort(Operator):
    """Every value, sorted: one sort serves min, max, count, distinct, mode and all quantiles."""

    kind = "sort"
    small = False
    derives = ("min", "max", "count", "distinct")

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
    if groups.n == 1:
        return Ragged(np.array([0, len(values)]), np.sort(values))
    offsets = offsets_of(groups.count)
    if np.count_nonzero(groups.count) > len(values) // _FEW:
        return Ragged(offsets, _sorted_by_group(values, groups.codes))
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
    return _sorted(Ragged(offsets_of(lengths), gathered.values), own=not together)


def _sorted(rows: Ragged, own: bool) -> Ragged:
    """The same with the values of each row sorted; in place, where the values are our `own`.

    A merge sort would find the runs that rows are made of. But NumPy sorts numbers by vectors of
    the processor, and that takes less time than to merge; to compare objects takes longer.
    """
    values, offsets = rows.values, rows.offsets
    kind: Literal["quicksort", "stable"] = "stable" if values.dtype == object else "quicksort"
    filled = np.flatnonzero(rows.lengths > 1)
    if len(filled) > len(values) // _FEW:
        codes = np.repeat(np.arange(len(rows), dtype=np.int64), rows.lengths)
        return Ragged(offsets, _sorted_by_group(values, codes))
    values = values if own else values.copy()
    for begin, end in zip(offsets[filled].tolist(), offsets[filled + 1].tolist(), strict=True):
        values[begin:end].sort(kind=kind)
    return Ragged(offsets, values)


def unique_within(run: Ragged) -> Ragged:
    """Drops repeated neighbours of each sorted row; NaN equals NaN."""
    values = run.values
    if not len(values):
        return run
    same = values[1:] == values[:-1]
    if values.dtype.kind == "f":
        same = same | (np.isnan(values[1:]) & np.isnan(values[:-1]))
    first = np.ones(len(values), np.bool_)
    first[1:] = ~np.asarray(same, np.bool_)
    lengths = run.lengths
    filled = lengths > 0
    begins = run.offsets[:-1][filled]
    first[begins] = True
    lengths[filled] = np.add.reduceat(first, begins, dtype=np.int64)
    return Ragged(offsets_of(lengths), values[first])


def few_within(values: Array, groups: Grouping) -> Ragged | None:
    """The distinct values of each group, in order, where they are whole numbers of a small range.

    A table has a place for each group and number: nothing is sorted. None where it would be large.

    >>> found = few_within(np.array([7, 5, 7, 5]), Grouping(np.array([0, 1, 0, 0]), 2))
    >>> found.values.tolist(), found.lengths.tolist()
    ([5, 7, 5], [2, 1])
    """
    if values.dtype != np.int64 or not len(values):
        return None
    low, high = int(values.min()), int(values.max())
    span = high - low + 1
    if groups.n * span > 4 * len(values):
        return None
    seen = np.zeros(groups.n * span, np.bool_)
    seen[groups.codes * span + (values - low)] = True
    owner, found = np.divmod(np.flatnonzero(seen), span)
    return Ragged(offsets_of(np.bincount(owner, minlength=groups.n)), found + low)


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
