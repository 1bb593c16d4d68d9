"""How often each value occurs: exactly, of the most frequent values alone, and by relative size."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from catchment.operators.base import (
    Computed,
    Input,
    Operator,
    register_operator,
    value_type,
)
from catchment.operators.grouping import Grouping, sort_order
from catchment.operators.ragged import Array, Fields, Ints, Ragged, offsets_of, plain
from catchment.operators.sort import (
    ValueTable,
    counted_within,
    decoded,
    heads_within,
    order_within,
    sort_within,
    table_of,
)

INFINITE, NO_NUMBER = 1 << 50, 1 << 51
"""The buckets of infinity and of NaN, which is larger than any number."""
_ROOM = 8
"""Places of a table for each count that is added: with more, sorting takes less time."""
_MIDDLE = 1 << 40
"""The bucket of the number 1: those of negative numbers are below zero, that of zero is 0."""


class ValueCounts(NamedTuple):
    """The different values of each group, in order, and how often each occurs."""

    values: Ragged
    times: Ints


@register_operator
class Counts(Operator):
    """Every different value, sorted, and how often it occurs."""

    kind = "counts"
    small = False
    derives = ("distinct",)

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"value": pa.list_(value_type(self.type)), "times": pa.list_(pa.int64())}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        found = _counted(events.values, events.groups)
        return _fields(ValueCounts(decoded(events, found.values), found.times))

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        return _fields(_added(counts_of(rows[self.ref]), groups))

    def derive(self, kind: str, fields: Fields) -> Fields:
        return {"set": fields["value"]}


@register_operator
class Frequent(Operator):
    """As many values as the first parameter says, and how often each occurs, or fewer times.

    Where there are more (Misra and Gries; Agarwal et al., Mergeable Summaries), as many times as
    the first value that has no place occurs are taken from all of them. The sum of what was taken
    is what any count may lack; it is at most the number of values divided by the places.
    """

    kind = "frequent"
    small = False

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {
            "value": pa.list_(value_type(self.type)),
            "times": pa.list_(pa.int64()),
            "lacks": pa.int64(),
        }

    def lift(self, events: Input, lifted: Computed) -> Fields:
        found = _counted(events.values, events.groups)
        known, lacks = _most(found, self.ref.params[0])
        return _fields(ValueCounts(decoded(events, known.values), known.times)) | {"lacks": lacks}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        own = rows[self.ref]
        known, lacks = _most(_added(counts_of(own), groups), self.ref.params[0])
        return _fields(known) | {"lacks": lacks + groups.add(plain(own["lacks"]))}


@register_operator
class RelativeBuckets(Operator):
    """How many values lie in each bucket of DDSketch; the parameter is the relative error.

    Bucket i holds the numbers in (g**(i-1), g**i], where g = (1 + error) / (1 - error): whatever
    number stands for a bucket is within the error of all of them. The buckets of negative numbers
    mirror these. Which buckets there are follows from the values alone.
    """

    kind = "relative_buckets"
    small = False
    reads = "doubles"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"value": pa.list_(pa.int64()), "times": pa.list_(pa.int64())}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        numbers = events.values.astype(np.float64, copy=False)
        buckets = _buckets(numbers, self.ref.params[0])
        return _fields(_counted(buckets, events.groups))

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        return _fields(_added(counts_of(rows[self.ref]), groups))


def _log_base(error: float) -> float:
    """The logarithm of the quotient of the ends of a bucket."""
    return float(np.log1p(error) - np.log1p(-error))


def _buckets(values: Array, error: float) -> Ints:
    size = np.abs(values)
    counted = np.isfinite(size) & (size > 0)
    logs = np.log(size, where=counted, out=np.zeros(len(values)))
    place = np.ceil(logs / _log_base(error)).astype(np.int64) + _MIDDLE
    place[np.isinf(size)] = INFINITE
    place[size == 0] = 0
    signed: Ints = np.where(values < 0, -place, place)
    signed[np.isnan(values)] = NO_NUMBER
    return signed


def numbers_of(buckets: Ints, error: float) -> Array:
    """What stands for each bucket: the number that is equally far, relatively, from its ends."""
    place = np.abs(buckets)
    with np.errstate(over="ignore"):
        size = np.exp((place - _MIDDLE) * _log_base(error) + np.log1p(-error))
    size = np.minimum(size, np.finfo(np.float64).max)
    size[place == INFINITE] = np.inf
    size[place == NO_NUMBER] = np.nan
    size[place == 0] = 0.0
    made: Array = np.where(buckets < 0, -size, size)
    return made


def counts_of(fields: Fields) -> ValueCounts:
    """The values and counts of any operator of this file."""
    values, times = fields["value"], fields["times"]
    assert isinstance(values, Ragged) and isinstance(times, Ragged)
    return ValueCounts(values, times.values)


def _fields(found: ValueCounts) -> Fields:
    return {"value": found.values, "times": Ragged(found.values.offsets, found.times)}


def _counted(values: Array, groups: Grouping) -> ValueCounts:
    """The different values of each group; whole numbers of a small range are not sorted."""
    table = table_of(values, groups, 1)
    if table is None:
        return ValueCounts(*counted_within(sort_within(values, groups)))
    held = Grouping(table.places(values, groups), groups.n * table.span).count
    return _in_table(table, held, groups.n)


def _in_table(table: ValueTable, held: Ints, groups: int) -> ValueCounts:
    """The counts of a table that holds one for each group and value."""
    places = np.flatnonzero(held)
    return ValueCounts(table.values(places, groups), held[places])


def _added(found: ValueCounts, groups: Grouping) -> ValueCounts:
    """The counts of all rows of each group, added up."""
    codes = np.repeat(groups.codes, found.values.lengths)
    several = Grouping(codes, groups.n)
    table = table_of(found.values.values, several, _ROOM)
    if table is not None:
        places = Grouping(table.places(found.values.values, several), groups.n * table.span)
        return _in_table(table, places.add(found.times), groups.n)
    order = order_within(found.values.values, codes)
    lengths = np.bincount(codes, minlength=groups.n).astype(np.int64, copy=False)
    run = Ragged(offsets_of(lengths), found.values.values[order])
    heads = np.flatnonzero(heads_within(run))
    times = found.times[order]
    added = np.add.reduceat(times, heads) if len(heads) else times
    return ValueCounts(Ragged(np.searchsorted(heads, run.offsets), run.values[heads]), added)


def _most(found: ValueCounts, places: int) -> tuple[ValueCounts, Ints]:
    """The counts that have a place, and what was taken from each row's."""
    values, times = found.values, found.times
    taken = np.zeros(len(values), np.int64)
    over = np.flatnonzero(values.lengths > places)
    if not len(over):
        return found, taken
    codes = np.repeat(np.arange(len(values), dtype=np.int64), values.lengths)
    order = sort_order(-times, codes)
    taken[over] = times[order[values.offsets[over] + places]]
    left = times - taken[codes]
    stays = left > 0
    lengths = np.bincount(codes[stays], minlength=len(values)).astype(np.int64, copy=False)
    return ValueCounts(Ragged(offsets_of(lengths), values.values[stays]), left[stays]), taken


def most_frequent(found: ValueCounts, k: int) -> ValueCounts:
    """The k most frequent values of each row, of equals the least, the most frequent first."""
    values, times = found.values, found.times
    codes = np.repeat(np.arange(len(values), dtype=np.int64), values.lengths)
    order = sort_order(-times, codes)
    chosen = order[np.arange(len(order)) - values.offsets[:-1][codes] < k]
    lengths = np.minimum(values.lengths, k)
    return ValueCounts(Ragged(offsets_of(lengths), values.values[chosen]), times[chosen])
