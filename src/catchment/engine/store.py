"""Aggregate stores: settled slices in order of time, as a list (lazy) or a tree (eager)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from catchment.engine.rows import (
    Operators,
    Rows,
    concat_rows,
    identity_fields,
    merge_rows,
    no_rows,
)
from catchment.model.plan import StoreKind
from catchment.operators.grouping import Grouping, runs
from catchment.operators.ragged import Array, Field, Ints, Ragged, nbytes, take
from catchment.operators.values import Mask

MANY_KEYS = 1024
FULL = 0.5
"""From this many keys per slice, and this share of all keys in it, slices are added as wholes."""


class Growing:
    """A column that grows at the end and is dropped from the front, at amortized constant cost."""

    def __init__(self, like: Field) -> None:
        self.ragged = isinstance(like, Ragged)
        values = like.values if isinstance(like, Ragged) else like
        self._data = np.empty(16, values.dtype)
        self._from = self._to = 0
        self._lengths = Growing(np.empty(0, np.int64)) if self.ragged else None

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
    """Nodes in order, each a run of rows; node `i` is kept while `i >= base`."""

    def __init__(self, operators: Operators, base: int) -> None:
        self.base = base
        self._ends = Growing(np.empty(0, np.int64))
        self._dropped = 0
        self._total = 0
        empty = no_rows(operators)
        names = ("start", "end", "key", "first", "last")
        self._columns = {n: Growing(c) for n, c in zip(names, empty.columns(), strict=True)}
        self._fields = {name: Growing(field) for name, field in empty.fields.items()}

    def __len__(self) -> int:
        """The number of the next node."""
        return self.base + len(self._view(self._ends))

    @staticmethod
    def _view(column: Growing) -> Ints:
        values = column.view()
        assert isinstance(values, np.ndarray)
        return values

    def append(self, rows: Rows, sizes: Ints) -> None:
        """Adds nodes of these numbers of rows."""
        self._ends.append(self._total + np.cumsum(sizes))
        self._total += int(sizes.sum())
        for column, values in zip(self._columns.values(), rows.columns(), strict=True):
            column.append(values)
        for name, field in self._fields.items():
            field.append(rows.fields[name])

    def span(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Where the rows of the nodes `[low, high)` begin and end."""
        return self._begin(low), self._begin(high)

    def _begin(self, node: Ints) -> Ints:
        place = node - self.base - 1
        ends = self._view(self._ends)
        if not len(ends):
            return np.zeros(len(node), np.int64)
        return np.where(place < 0, self._dropped, ends[np.maximum(place, 0)]) - self._dropped

    def rows(self, index: Ints, lean: bool = False) -> Rows:
        """Some rows; with `lean`, the key stands in for all that is not a field."""
        if lean:
            columns = [self._view(self._columns["key"]).take(index)] * 5
        else:
            columns = [self._view(column).take(index) for column in self._columns.values()]
        fields = {name: take(field.view(), index) for name, field in self._fields.items()}
        return Rows.of(columns, fields)

    def all_rows(self) -> Rows:
        columns = [self._view(column) for column in self._columns.values()]
        return Rows.of(columns, {name: field.view() for name, field in self._fields.items()})

    def drop(self, node: int) -> None:
        """Forgets the nodes before this one."""
        if node <= self.base:
            return
        ends = self._view(self._ends)
        count = min(node - self.base, len(ends))
        if count:
            rows = int(ends[count - 1]) - self._dropped
            self._ends.drop(count)
            for column in (*self._columns.values(), *self._fields.values()):
                column.drop(rows)
            self._dropped += rows
        self.base = node

    def recode(self, place: Ints) -> None:
        keys = self._view(self._columns["key"])
        keys[:] = place[keys]

    @property
    def nbytes(self) -> int:
        columns = (*self._columns.values(), *self._fields.values(), self._ends)
        return sum(nbytes(column.view()) for column in columns)


class Store:
    """Slices in order of their start. Level 0 holds them; level l holds merges of 2^l of them.

    A lazy store has level 0 only: a window reads all its slices. An eager store has all levels:
    a window reads at most 2 log2(n) nodes.
    """

    def __init__(self, kind: StoreKind, operators: Operators) -> None:
        self.kind = kind
        self.operators = operators
        self.levels = [Level(operators, 0)]
        self._starts = Growing(np.empty(0, np.int64))

    @property
    def starts(self) -> Ints:
        """The starts of the slices kept."""
        starts = self._starts.view()
        assert isinstance(starts, np.ndarray)
        return starts

    def __len__(self) -> int:
        return len(self.starts)

    def append(self, rows: Rows) -> None:
        """Adds slices that all start after those here; rows come sorted by start."""
        if not len(rows):
            return
        new = np.ones(len(rows), np.bool_)
        new[1:] = rows.start[1:] != rows.start[:-1]
        heads = np.flatnonzero(new)
        self.append_nodes(rows, heads)

    def append_nodes(self, rows: Rows, heads: Ints) -> None:
        """Adds slices that begin at these rows."""
        self._starts.append(rows.start[heads])
        self.levels[0].append(rows, np.diff(heads, append=len(rows)))
        if self.kind == "eager":
            self._grow(0)

    def _grow(self, below: int) -> None:
        """Merges the pairs of nodes of a level that are complete into nodes of the next."""
        lower = self.levels[below]
        if len(lower) < 2:
            return
        if below + 1 == len(self.levels):
            self.levels.append(Level(self.operators, -(-lower.base // 2)))
        upper = self.levels[below + 1]
        nodes = np.arange(len(upper), len(lower) // 2, dtype=np.int64)
        if not len(nodes):
            return
        index, owner = runs(*lower.span(2 * nodes, 2 * nodes + 2))
        rows = lower.rows(index)
        order = np.lexsort((rows.key, owner))
        rows, owner = rows.take(order), owner[order]
        new = np.ones(len(rows), np.bool_)
        new[1:] = (owner[1:] != owner[:-1]) | (rows.key[1:] != rows.key[:-1])
        heads = np.flatnonzero(new)
        groups = Grouping(None, len(heads), starts=heads, rows=len(rows))
        merged = merge_rows(rows, groups, self.operators)
        upper.append(merged, np.bincount(owner[heads], minlength=len(nodes)))
        self._grow(below + 1)

    def gather(self, low: Ints, high: Ints, lean: bool = False) -> tuple[Rows, Ints]:
        """Rows that together are the slices `[low, high)` of each window.

        Slices are counted from the first kept.
        Gives the rows and the number of the window each is for.
        """
        base = self.levels[0].base
        low, high = low + base, high + base
        if self.kind == "lazy":
            index, owner = runs(*self.levels[0].span(low, np.maximum(low, high)))
            return self.levels[0].rows(index, lean), owner
        parts: list[Rows] = []
        owners: list[Ints] = []
        window = np.arange(len(low), dtype=np.int64)
        for level in self.levels:
            alive = low < high
            if not alive.any():
                break
            low, high, window = low[alive], high[alive], window[alive]
            for nodes, chosen in (self._left(low, high), self._right(low, high)):
                index, owner = runs(*level.span(nodes, nodes + 1))
                parts.append(level.rows(index, lean))
                owners.append(window[chosen][owner])
            low, high = (low + 1) >> 1, high >> 1
        if not parts:
            return no_rows(self.operators), np.empty(0, np.int64)
        return concat_rows(parts, self.operators), np.concatenate(owners)

    def full(self, low: Ints, high: Ints) -> bool:
        """Whether many keys are in most of the slices from the first of these to the last."""
        if self.kind == "eager" or not len(low):
            return False
        level = self.levels[0]
        first, last = int(low.min()), int(high.max())
        if last <= first:
            return False
        begin, end = level.span(*(np.array([node + level.base]) for node in (first, last)))
        rows = int(end[0] - begin[0])
        if rows < MANY_KEYS * (last - first):
            return False
        keys = level.rows(np.arange(begin[0], end[0]), lean=True).key
        return rows >= int(FULL * (int(keys.max()) + 1) * (last - first))

    def matrix(self, low: int, high: int, names: Iterable[str]) -> tuple[dict[str, Array], Mask]:
        """Fields by slice and key, the identity where a slice lacks a key, and where none lacks."""
        level = self.levels[0]
        nodes = np.arange(low, high + 1) + level.base
        bounds = level.span(nodes, nodes)[0]
        part = level.rows(np.arange(bounds[0], bounds[-1]), lean=True)
        keys = int(part.key.max()) + 1
        shape = (high - low, keys)
        place = np.repeat(np.arange(high - low) * keys, np.diff(bounds)) + part.key
        present = np.zeros(shape, np.bool_)
        present.ravel()[place] = True
        nothing = identity_fields(self.operators, 1)
        columns = {}
        for name in names:
            column, empty = part.fields[name], nothing[name]
            assert isinstance(column, np.ndarray) and isinstance(empty, np.ndarray)
            whole = np.full(shape, empty[0], column.dtype)
            whole.ravel()[place] = column
            columns[name] = whole
        return columns, present

    @staticmethod
    def _left(low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Windows that start in the middle of a pair take the pair's second node."""
        chosen = np.flatnonzero(low & 1)
        return low[chosen], chosen

    @staticmethod
    def _right(low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Windows that end in the middle of a pair take the pair's first node."""
        chosen = np.flatnonzero((high & 1) & (high - 1 >= low + (low & 1)))
        return high[chosen] - 1, chosen

    def trim(self, time: int) -> None:
        """Forgets the slices that start before a time."""
        count = int(np.searchsorted(self.starts, time))
        if not count:
            return
        self._starts.drop(count)
        first = self.levels[0].base + count
        for height, level in enumerate(self.levels):
            level.drop(-(-first >> height) if height else first)

    def recode(self, place: Ints) -> None:
        """Renumbers the keys."""
        for level in self.levels:
            level.recode(place)

    @property
    def keys(self) -> Ints:
        return self.levels[0].all_rows().key

    @property
    def nbytes(self) -> int:
        return sum(level.nbytes for level in self.levels) + self.starts.nbytes
