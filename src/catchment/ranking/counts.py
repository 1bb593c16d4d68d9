"""How often values of a group occur: how many of them are wanted, and what a node tells of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from catchment.engine.columns import pack
from catchment.model.plan import Group
from catchment.operators import OperatorRef
from catchment.operators.counts import ValueCounts, most_frequent
from catchment.operators.ragged import Array, Ints, Ragged, nbytes, offsets_of
from catchment.operators.values import objects
from catchment.planner.ranked import value_wants
from catchment.ranking.column import (
    SAMPLE,
    AskedRow,
    SearchedColumn,
    bytes_each,
    list_column,
    rows_of,
)
from catchment.ranking.message import CountAnswer, CountQuestion, CountSummary, RunQuestion
from catchment.ranking.ordered import to_ints

_EVERY = 1 << 40
"""More values than there are."""
_NEAR = 2
"""Values that are this many times less frequent than the last that is told may be in doubt."""


@dataclass(frozen=True, slots=True)
class CountedRow:
    """The different values of a row, in order, and how often each occurs."""

    values: Array
    times: Ints

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        return nbytes(self.values) + int(self.times.nbytes)


class CountedColumn(SearchedColumn):
    """How often values of a group occur: numbers, which are held as integers in their order, or
    texts."""

    ties: ClassVar[bool] = False
    """Whether all values are wanted that are as frequent as the last."""
    nothing: ClassVar[Any] = CountedRow(np.empty(0, np.int64), np.empty(0, np.int64))

    def __init__(self, group: Group, ref: OperatorRef, kind: pa.DataType) -> None:
        self.field = ref.id
        self.value, self.times = f"{ref.id}.value", f"{ref.id}.times"
        self.floats = kind == pa.float64()
        self.texts = not self.floats and kind != pa.int64()
        held: Any = object if self.texts else np.float64 if self.floats else np.int64
        self.fields = {self.value: held, self.times: np.int64}
        wants = [
            function.most_frequent(aggregate) if some_do else None
            for function, aggregate, some_do in value_wants(group, ref)
        ]
        self.all = None in wants
        self.most = max((k for k in wants if k is not None), default=1)
        """How many of the most frequent values are wanted."""

    @property
    def wanted(self) -> int:
        """The same, where some function may need every value."""
        return _EVERY if self.all else self.most

    @property
    def wants(self) -> list[Any]:
        """What is wanted of values."""
        return [self.field, self.wanted]

    def sizes(self, table: pa.Table) -> Ints:
        return np.diff(list_column(table, self.value)[0])

    def costs(self, table: pa.Table, searches: int, overlaps: int) -> tuple[Array, Array]:
        found = counts_in(table, self)
        sizes = found.values.lengths
        near = near_the_last(found, self.most)
        # The most frequent; and for each window, those in doubt, and candidates of other nodes.
        wanted = np.minimum(sizes, self.most) + (near + self.most) * overlaps
        alone, again = _bytes_each(found.values.values)
        times = bytes_each(found.times)
        whole: Array = sizes * (alone + times)
        asked: Array = wanted * (again + times)
        return whole, asked

    def held(self, table: pa.Table) -> list[Any]:
        found = counts_in(table, self)
        times = rows_of(Ragged(found.values.offsets, found.times))
        return [CountedRow(*row) for row in zip(rows_of(found.values), times, strict=True)]

    def lists(self, rows: list[Any]) -> dict[str, pa.Array[Any]]:
        offsets = pa.array(offsets_of(np.array([len(row) for row in rows], np.int64)), pa.int64())
        values = np.concatenate(
            [np.empty(0, object if self.texts else np.int64), *(row.values for row in rows)]
        )
        flat = pa.array(values, pa.string() if self.texts else pa.int64())
        times = pa.array(np.concatenate([np.empty(0, np.int64), *(row.times for row in rows)]))
        made: list[pa.Array[Any]] = [
            pa.LargeListArray.from_arrays(offsets, part) for part in (flat, times)
        ]
        return dict(zip((self.value, self.times), made, strict=True))

    def summary(self, table: pa.Table, searches: int) -> CountSummary:
        found = counts_in(table, self)
        offsets, sizes = found.values.offsets, found.values.lengths
        sums = np.append(0, np.cumsum(found.times))
        total = sums[offsets[1:]] - sums[offsets[:-1]]
        best = most_frequent(found, self.most + 1)
        # The first that is not told says how often others occur at most.
        rest = np.where(sizes > self.most, _least_of(best), 0)
        best = most_frequent(best, self.most)
        row = np.repeat(np.arange(len(sizes), dtype=np.int64), best.values.lengths)
        values, texts = told_values(best.values.values)
        order = np.lexsort((values, row))
        return CountSummary(
            self.field,
            sizes,
            total,
            rest,
            best.values.lengths,
            values[order],
            best.times[order],
            texts,
        )

    def answer(self, question: RunQuestion | CountQuestion, rows: list[AskedRow]) -> CountAnswer:
        assert isinstance(question, CountQuestion)
        ends = offsets_of(question.sent).tolist()
        others = listed_values(question.values, question.texts)
        parts = [
            _row_answer(
                row.values,
                int(question.above[row.place]),
                int(question.upto[row.place]),
                others[ends[row.place] : ends[row.place + 1]],
            )
            for row in rows
        ]
        rest, values, times = zip(*parts, strict=True)
        flat, texts = told_values(np.concatenate(values))
        return CountAnswer(
            self.field,
            np.array([row.number for row in rows], np.int64),
            np.array(rest, np.int64),
            np.array([len(some) for some in values], np.int64),
            flat,
            np.concatenate(times),
            texts,
        )


def _row_answer(row: CountedRow, above: int, upto: int, others: Array) -> tuple[int, Array, Ints]:
    """The most that a value which is not frequent occurs, and what is told of values, in order."""
    rare = row.times <= above
    rest = int(row.times[rare].max(initial=0))
    frequent = np.flatnonzero(~rare & (row.times <= upto))
    if not len(others):
        return rest, row.values[frequent], row.times[frequent]
    at = np.minimum(np.searchsorted(row.values, others), len(row) - 1)
    here = np.asarray(row.values[at] == others, np.bool_)
    times = np.where(here, row.times[at], 0)
    known = times > above
    values = np.concatenate([row.values[frequent], others[~known]])
    times = np.concatenate([row.times[frequent], times[~known]])
    order = np.argsort(values, kind="stable")
    return rest, values[order], times[order]


def near_the_last(found: ValueCounts, most: int) -> Ints:
    """How many values of each row may be in doubt where so many of the most frequent are wanted."""
    sizes = found.values.lengths
    row = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    last = _least_of(most_frequent(found, most))
    return np.bincount(row[found.times * _NEAR > last[row]], minlength=len(sizes))


def counts_in(table: pa.Table, column: CountedColumn) -> ValueCounts:
    """The counts of a table of partials; numbers as integers in their order."""
    offsets, flat = list_column(table, column.value)
    _, times = list_column(table, column.times)
    if column.texts:
        values = objects(flat.to_pylist())
    else:
        values = to_ints(flat.to_numpy(zero_copy_only=False))
    return ValueCounts(Ragged(offsets, values), times.to_numpy().astype(np.int64, copy=False))


def told_values(values: Array) -> tuple[Ints, list[str]]:
    """Values as both sides tell them: integers; texts as their places among these, in order.

    >>> told_values(np.array(["b", "a", "b"], object))
    (array([1, 0, 1]), ['a', 'b'])
    """
    if values.dtype != object:
        return values, []
    texts, places = np.unique(values, return_inverse=True)
    return places.astype(np.int64), texts.tolist()


def listed_values(values: Ints, texts: list[str]) -> Array:
    """The inverse of `told_values`."""
    return objects(texts)[values] if texts else values


def _least_of(found: ValueCounts) -> Ints:
    """How often the last value of each row occurs, the most frequent being first; of none, 0."""
    last = np.append(found.times, 0)[found.values.offsets[1:] - 1]
    return np.where(found.values.lengths > 0, last, 0)


def _bytes_each(values: Array) -> tuple[float, float]:
    """Bytes that a value takes on the way, about, in partials and in answers: there each text is
    told once, and has a place."""
    if values.dtype != object:
        return bytes_each(values), bytes_each(values)
    some = values[:SAMPLE].tolist()
    body = pack(pa.table({"text": pa.array(some, pa.string())}))
    each = len(pa.Codec("zstd").compress(body, asbytes=True)) / max(len(some), 1)
    return each, each * len({*some}) / max(len(some), 1) + 1.0
