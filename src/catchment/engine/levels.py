"""Columns and rows that grow at one end and are dropped from the other: the levels of a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from catchment.engine.rows import Operators, empty_fields, empty_names
from catchment.operators.grouping import runs
from catchment.operators.ragged import Field, Ints, Ragged, concat, nbytes, take


class KeyedPartials(NamedTuple):
    """Partials without their bounds: key codes and fields."""

    key: Ints
    fields: dict[str, Field]

    def take(self, index: Ints) -> KeyedPartials:
        return KeyedPartials(
            self.key.take(index), {name: take(c, index) for name, c in self.fields.items()}
        )


def concat_keyed(parts: Sequence[KeyedPartials], operators: Operators) -> KeyedPartials:
    parts = [part for part in parts if len(part.key)]
    if not parts:
        return KeyedPartials(np.empty(0, np.int64), empty_fields(operators))
    if len(parts) == 1:
        return parts[0]
    fields = {name: concat([p.fields[name] for p in parts]) for name in empty_names(operators)}
    return KeyedPartials(np.concatenate([part.key for part in parts]), fields)


class GrowingColumn:
    """A column that grows at the end and is dropped from the front, at amortized constant cost."""

    def __init__(self, like: Field) -> None:
        self.ragged = isinstance(like, Ragged)
        values = like.values if isinstance(like, Ragged) else like
        self._data = np.empty(16, values.dtype)
        self._from = self._to = 0
        self._lengths = GrowingColumn(np.empty(0, np.int64)) if self.ragged else None

    def append(self, field: Field) -> None:
        values = field.values if isinstance(field, Ragged) else field
        if self._lengths is not None and isinstance(field, Ragged):
            self._lengths.append(field.lengths)
        if values.dtype != self._data.dtype and not self._to - self._from:
            self._data = np.empty(16, values.dtype)
        if self._to + len(values) > len(self._data):
            self._move(len(values))
        self._data[self._to : self._to + len(values)] = values
        self._to += len(values)

    def _move(self, more: int) -> None:
        live = self._data[self._from : self._to]
        data = np.empty(max(16, 2 * (len(live) + more)), self._data.dtype)
        data[: len(live)] = live
        self._data, self._from, self._to = data, 0, len(live)

    def view(self) -> Field:
        values = self._data[self._from : self._to]
        if self._lengths is None:
            return values
        lengths = self._lengths.view()
        assert isinstance(lengths, np.ndarray)
        return Ragged(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), values)

    def ints(self) -> Ints:
        """What `view` gives, for a column of integers."""
        values = self.view()
        assert isinstance(values, np.ndarray)
        return values

    def drop(self, count: int) -> None:
        """Forgets the first rows."""
        if self._lengths is not None:
            lengths = self._lengths.view()
            assert isinstance(lengths, np.ndarray)
            self._lengths.drop(count)
            count = int(lengths[:count].sum())
        self._from += count
        if self._from > 64 and self._from > (self._to - self._from):
            self._move(0)


class Level:
    """Entries in order, each a run of rows: slices, or merges of slices. Entry `i` is kept while `i
    >= base`."""

    def __init__(self, operators: Operators, base: int) -> None:
        self.base = base
        self._ends = GrowingColumn(np.empty(0, np.int64))
        self._dropped = 0
        self._total = 0
        self._key = GrowingColumn(np.empty(0, np.int64))
        self._fields = {
            name: GrowingColumn(field) for name, field in empty_fields(operators).items()
        }

    def __len__(self) -> int:
        """The number that the next entry gets."""
        return self.base + len(self._ends.ints())

    def append(self, rows: KeyedPartials, sizes: Ints) -> None:
        """Adds entries that have these numbers of rows."""
        self._ends.append(self._total + np.cumsum(sizes))
        self._total += int(sizes.sum())
        self._key.append(rows.key)
        for name, field in self._fields.items():
            field.append(rows.fields[name])

    @property
    def keys(self) -> Ints:
        """The keys of all rows."""
        return self._key.ints()

    def span(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Where the rows of the entries `[low, high)` begin and end."""
        return self._begin(low), self._begin(high)

    def _begin(self, node: Ints) -> Ints:
        place = node - self.base - 1
        ends = self._ends.ints()
        if not len(ends):
            return np.zeros(len(node), np.int64)
        return np.where(place < 0, self._dropped, ends[np.maximum(place, 0)]) - self._dropped

    def pick(self, nodes: Ints) -> tuple[Ints, Ints]:
        """The rows of these entries, and for each row the place of its entry among them."""
        kept = len(self._ends.ints())
        if self._total - self._dropped == kept:  # no key but one: a node is a row
            return nodes - self.base, np.arange(len(nodes), dtype=np.int64)
        return runs(self._begin(nodes), self._begin(nodes + 1))

    def rows(self, index: Ints, names: Iterable[str] | None = None) -> KeyedPartials:
        """The rows at these places, with these fields or all."""
        wanted = self._fields if names is None else names
        fields = {name: take(self._fields[name].view(), index) for name in wanted}
        return KeyedPartials(self._key.ints().take(index), fields)

    def all_rows(self) -> KeyedPartials:
        return KeyedPartials(self._key.ints(), {name: f.view() for name, f in self._fields.items()})

    def sizes(self) -> Ints:
        """Rows per entry."""
        return np.diff(self._ends.ints(), prepend=self._dropped)

    def drop(self, node: int) -> None:
        """Forgets the entries before this one."""
        if node <= self.base:
            return
        ends = self._ends.ints()
        count = min(node - self.base, len(ends))
        if count:
            rows = int(ends[count - 1]) - self._dropped
            self._ends.drop(count)
            for column in (self._key, *self._fields.values()):
                column.drop(rows)
            self._dropped += rows
        self.base = node

    def recode(self, place: Ints) -> None:
        """Renumbers the keys."""
        keys = self._key.ints()
        keys[:] = place[keys]

    @property
    def nbytes(self) -> int:
        columns = (self._key, *self._fields.values(), self._ends)
        return sum(nbytes(column.view()) for column in columns)
