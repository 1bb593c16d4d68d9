"""Aggregate stores: settled slices in order of time, as a list (lazy) or a tree (eager)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from catchment.engine.levels import GrowingColumn, KeyedPartials, Level, concat_keyed
from catchment.engine.rows import Operators, Rows, empty_names, identity_fields, merge_fields
from catchment.model.plan import StoreKind
from catchment.operators.grouping import Grouping, runs, sort_order
from catchment.operators.ragged import Array, Ints, lengths_of
from catchment.operators.values import Mask

MANY_KEYS = 1024
FULL = 0.5
"""From this many keys per slice, and this share of all keys in it, slices are added as wholes."""


class SliceStore:
    """Slices in order of their start. Level 0 holds them; level l holds merges of 2^l of them.

    A lazy store has level 0 only: a window reads all its slices. An eager store has all levels: a
    window of n slices reads at most 2 log2(n) entries, and appending costs about one merge for each
    slice.
    """

    def __init__(self, kind: StoreKind, operators: Operators) -> None:
        self.kind = kind
        self.operators = operators
        self.levels = [Level(operators, 0)]
        self._starts = GrowingColumn(np.empty(0, np.int64))
        self._ends = GrowingColumn(np.empty(0, np.int64))

    @property
    def starts(self) -> Ints:
        """The starts of the slices kept."""
        return self._starts.ints()

    def __len__(self) -> int:
        return len(self.starts)

    def append(self, rows: Rows) -> None:
        """Adds slices that all start after those here; rows come sorted by start."""
        if not len(rows):
            return
        new = np.ones(len(rows), np.bool_)
        new[1:] = rows.start[1:] != rows.start[:-1]
        self.append_nodes(rows, np.flatnonzero(new))

    def append_nodes(self, rows: Rows, heads: Ints) -> None:
        """Adds slices that begin at these rows."""
        if not len(heads):
            return
        self._starts.append(rows.start[heads])
        self._ends.append(np.maximum.reduceat(rows.end, heads))
        self.levels[0].append(KeyedPartials(rows.key, rows.fields), lengths_of(heads, len(rows)))
        if self.kind == "eager":
            self._grow(0)

    def _grow(self, below: int) -> None:
        """Merges the complete pairs of entries of a level into entries of the next."""
        lower = self.levels[below]
        if len(lower) < 2:
            return
        if below + 1 == len(self.levels):
            self.levels.append(Level(self.operators, -(-lower.base // 2)))
        upper = self.levels[below + 1]
        nodes = np.arange(len(upper), len(lower) // 2, dtype=np.int64)
        if not len(nodes):
            return
        index, owner = lower.pick(np.arange(2 * nodes[0], 2 * nodes[-1] + 2))
        rows, owner = lower.rows(index), owner >> 1
        if (rows.key != rows.key[0]).any():
            order = sort_order(rows.key, owner)
            rows, owner = rows.take(order), owner[order]
        new = np.ones(len(owner), np.bool_)
        new[1:] = (owner[1:] != owner[:-1]) | (rows.key[1:] != rows.key[:-1])
        heads = np.flatnonzero(new)
        groups = Grouping(None, len(heads), starts=heads, rows=len(owner))
        merged = KeyedPartials(rows.key[heads], merge_fields(rows.fields, groups, self.operators))
        upper.append(merged, np.bincount(owner[heads], minlength=len(nodes)))
        self._grow(below + 1)

    def gather(self, low: Ints, high: Ints, operators: Operators) -> tuple[KeyedPartials, Ints]:
        """Rows that together are the slices `[low, high)` of each window.

        Slices are counted from the first kept. Gives the rows, with the fields of these operators,
        and the number of the window that each is for.
        """
        names = empty_names(operators)
        base = self.levels[0].base
        low, high = low + base, high + base
        if self.kind == "lazy":
            index, owner = runs(*self.levels[0].span(low, np.maximum(low, high)))
            return self.levels[0].rows(index, names), owner
        parts: list[KeyedPartials] = []
        owners: list[Ints] = [np.empty(0, np.int64)]
        window = np.arange(len(low), dtype=np.int64)
        for level in self.levels:
            alive = low < high
            if not alive.any():
                break
            if not alive.all():
                low, high, window = low[alive], high[alive], window[alive]
            for nodes, chosen in (self._left(low), self._right(low, high)):
                index, owner = level.pick(nodes)
                parts.append(level.rows(index, names))
                owners.append(window[chosen][owner])
            low, high = (low + 1) >> 1, high >> 1
        return concat_keyed(parts, operators), np.concatenate(owners)

    def gather_in_order(
        self, low: Ints, high: Ints, operators: Operators
    ) -> tuple[KeyedPartials, Ints]:
        """As `gather`, in order of window and key; of equals, the earlier slice comes first.

        Of a list of slices, fields are copied once, into this order.
        """
        if self.kind == "lazy":
            level = self.levels[0]
            first, last = low + level.base, high + level.base
            index, owner = runs(*level.span(first, np.maximum(first, last)))
            order = sort_order(level.keys.take(index), owner)
            return level.rows(index.take(order), empty_names(operators)), owner.take(order)
        rows, owner = self.gather(low, high, operators)
        order = sort_order(rows.key, owner)
        return rows.take(order), owner.take(order)

    def full(self, low: Ints, high: Ints) -> bool:
        """Whether many keys are in most slices from the first that is in a window to the last."""
        some = low < high
        if not some.any():
            return False
        level = self.levels[0]
        first, last = int(low[some].min()), int(high[some].max())
        begin, end = level.span(*(np.array([node + level.base]) for node in (first, last)))
        rows = int(end[0] - begin[0])
        if rows < MANY_KEYS * (last - first):
            return False
        keys = level.rows(np.arange(begin[0], end[0])).key
        return rows >= int(FULL * (int(keys.max()) + 1) * (last - first))

    def matrix(self, low: int, high: int, names: Iterable[str]) -> tuple[dict[str, Array], Mask]:
        """Fields by slice and key, the identity where a slice lacks a key, and where none lacks."""
        level = self.levels[0]
        nodes = np.arange(low, high + 1) + level.base
        bounds = level.span(nodes, nodes)[0]
        part = level.rows(np.arange(bounds[0], bounds[-1]))
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
    def _left(low: Ints) -> tuple[Ints, Ints]:
        """Windows that start in the middle of a pair take the pair's second entry."""
        chosen = np.flatnonzero(low & 1)
        return low[chosen], chosen

    @staticmethod
    def _right(low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Windows that end in the middle of a pair take the pair's first entry."""
        chosen = np.flatnonzero((high & 1) & (high - 1 >= low + (low & 1)))
        return high[chosen] - 1, chosen

    def all_rows(self) -> Rows:
        """The slices kept, one row per key."""
        rows = self.levels[0].all_rows()
        sizes = self.levels[0].sizes()
        start, end = np.repeat(self.starts, sizes), np.repeat(self._ends.ints(), sizes)
        return Rows(start, end, rows.key, start, start, rows.fields)

    def trim(self, time: int) -> None:
        """Forgets the slices that start before a time."""
        count = int(np.searchsorted(self.starts, time))
        if not count:
            return
        self._starts.drop(count)
        self._ends.drop(count)
        first = self.levels[0].base + count
        for height, level in enumerate(self.levels):
            level.drop(-(-first >> height))

    def recode(self, place: Ints) -> None:
        """Renumbers the keys."""
        for level in self.levels:
            level.recode(place)

    @property
    def keys(self) -> Ints:
        return self.levels[0].all_rows().key

    @property
    def nbytes(self) -> int:
        return sum(level.nbytes for level in self.levels) + 2 * self.starts.nbytes
