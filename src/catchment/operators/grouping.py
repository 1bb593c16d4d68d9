"""Grouped reduction: rows to groups by an integer code, the only place that scatters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from catchment.native import Kernels, kernels
from catchment.operators.ragged import Array, Ints, lengths_of, spans

_LOWEST = np.iinfo(np.int64).min
_HIGHEST = np.iinfo(np.int64).max
_BITS = 63
_NEARLY = 64
"""If at most one in so many values is less than the one before, a merge sort is faster."""
_COMPILED = (np.dtype(np.int64), np.dtype(np.float64))
"""What compiled loops take."""
_NARROW = 1 << 16
"""NumPy sorts whole numbers below this by counting: the fastest stable sort that it has."""


class Grouping:
    """`rows` rows, each in one of `n` groups.

    Where the rows of each group stand together, in the order of the groups, `starts` says where
    each begins (no group may then be empty), and reductions need no scatter at all.

    >>> g = Grouping(np.array([0, 1, 0]), 2)
    >>> g.add(np.array([1.0, 2.0, 3.0])).tolist(), g.count.tolist()
    ([4.0, 2.0], [2, 1])
    """

    def __init__(
        self, codes: Ints | None, n: int, *, starts: Ints | None = None, rows: int | None = None
    ) -> None:
        self._codes = codes
        self.n = n
        self.starts = starts
        self.rows = len(codes) if codes is not None else int(rows or 0)

    @cached_property
    def codes(self) -> Ints:
        if self._codes is not None:
            return self._codes
        assert self.starts is not None
        return np.repeat(np.arange(self.n, dtype=np.int64), self._run_lengths)

    @property
    def _run_lengths(self) -> Ints:
        assert self.starts is not None
        return lengths_of(self.starts, self.rows)

    @cached_property
    def count(self) -> Ints:
        """Rows per group."""
        if self.starts is not None:
            return self._run_lengths
        if self.kernels is not None:
            return self.kernels.count(self.codes, self.n)
        return np.bincount(self.codes, minlength=self.n).astype(np.int64, copy=False)

    @cached_property
    def kernels(self) -> Kernels | None:
        """The compiled loops, where they may be used: they do not look whether codes are in range,
        nor whether there are as many as values."""
        found = kernels(self.rows)
        if found is None or self.codes.dtype != np.int64:
            return None
        return found if int(self.codes.view(np.uint64).max()) < self.n else None

    def _scatter(self, values: Array) -> Kernels | None:
        """The compiled loops, where these values of all rows need to be scattered."""
        plain = values.dtype in _COMPILED and len(values) == self.rows
        return self.kernels if plain and self.starts is None else None

    def select(self, keep: npt_bool | Ints) -> Grouping:
        """The same groups over the rows kept, a mask or the places of rows."""
        return Grouping(self.codes[keep], self.n)

    def add(self, values: Array) -> Array:
        return self.reduce(np.add, values, 0)

    def min(self, values: Array) -> Array:
        """The least per group; NaN is the largest number, and stands for a group without rows."""
        compiled = self._scatter(values)
        if compiled is not None:
            return self._least(compiled, values)
        if values.dtype.kind == "i":
            return self.reduce(np.minimum, values, _HIGHEST)
        if values.dtype == object:
            return self._by_segment(np.minimum, values)
        if np.isnan(values).any():
            return self.reduce(np.fmin, values, np.nan)
        least = self.reduce(np.minimum, values, np.inf)
        least[self.count == 0] = np.nan
        return least

    def _least(self, compiled: Kernels, values: Array) -> Array:
        if values.dtype.kind == "i":
            return compiled.least(values, self.codes, self.n, _HIGHEST)
        least = compiled.least(values, self.codes, self.n, np.inf)
        lost = least == np.inf
        if lost.any():  # of no number, or of infinities
            least[lost] = np.nan
            if self.count[lost].any():
                infinite = np.zeros(self.n, np.bool_)
                infinite[self.codes[values == np.inf]] = True
                least[lost & infinite] = np.inf
        return least

    def max(self, values: Array) -> Array:
        """The greatest per group; NaN is the largest number."""
        if values.dtype == object:
            return self._by_segment(np.maximum, values)
        none = _LOWEST if values.dtype.kind == "i" else -np.inf
        compiled = self._scatter(values)
        if compiled is not None:
            return compiled.greatest(values, self.codes, self.n, none)
        return self.reduce(np.maximum, values, none)

    def differences(self, values: Array, centers: Array) -> Array:
        """The sum of the differences of doubles from the center of their group."""
        compiled = self._compiled(values, centers)
        if compiled is not None:
            return compiled.differences(values, self.codes, centers)
        return self.add(values - centers[self.codes])

    def squares(self, values: Array, centers: Array) -> Array:
        """The sum of the squares of the same differences."""
        compiled = self._compiled(values, centers)
        if compiled is not None:
            return compiled.squares(values, self.codes, centers)
        difference = values - centers[self.codes]
        return self.add(difference * difference)

    def powers(self, values: Array, centers: Array) -> tuple[Array, Array, Array, Array]:
        """The sums of the first to fourth powers of the same differences."""
        compiled = self._compiled(values, centers)
        if compiled is not None:
            first, second, third, fourth = compiled.powers(values, self.codes, centers)
            return first, second, third, fourth
        d = values - centers[self.codes]
        square = d * d
        return self.add(d), self.add(square), self.add(square * d), self.add(square * square)

    def _compiled(self, values: Array, centers: Array) -> Kernels | None:
        doubles = values.dtype == centers.dtype == np.float64
        fit = len(values) == self.rows and len(centers) == self.n
        return self.kernels if doubles and fit else None

    def reduce(self, function: np.ufunc, values: Array, identity: Any) -> Array:
        """One value per group, by a NumPy function; `identity` is that of a group without rows."""
        if self.starts is not None:
            if self.n == 0:
                return np.empty(0, values.dtype)
            return function.reduceat(values, self.starts)
        out = np.full(self.n, identity, values.dtype)
        function.at(out, self.codes, values)
        return out

    def _by_segment(self, function: np.ufunc, values: Array) -> Array:
        """For objects, which have no identity: a group without rows gets None."""
        order, starts, present = self.segments
        out = np.full(self.n, None, object)
        if len(present):
            out[present] = function.reduceat(values[order], starts)
        return out

    @cached_property
    def segments(self) -> tuple[Ints, Ints, Ints]:
        """The rows in order of group (stable), where each group that has rows begins, and which."""
        if self.starts is not None:
            every = np.arange(self.n, dtype=np.int64)
            return np.arange(self.rows, dtype=np.int64), self.starts, every
        order = stable_order(self.codes)
        present = np.flatnonzero(self.count)
        starts = (np.cumsum(self.count) - self.count)[present]
        return order, starts, present

    def stretches(self) -> Iterator[tuple[int, int, int]]:
        """Each group that has rows, and where it begins and ends in the order of `segments`."""
        order, starts, present = self.segments
        ends = np.append(starts[1:], len(order))[: len(starts)]
        return zip(present.tolist(), starts.tolist(), ends.tolist(), strict=True)

    def first(self, times: Ints) -> tuple[Ints, Ints]:
        """Per group that has rows: the group, and the row of least time, the first of equals."""
        return self._end(times, reverse=True)

    def last(self, times: Ints) -> tuple[Ints, Ints]:
        """Per group that has rows: the group, and the row of greatest time, the last of equals."""
        return self._end(times, reverse=False)

    def _end(self, times: Ints, *, reverse: bool) -> tuple[Ints, Ints]:
        compiled = self._scatter(times)
        if compiled is not None:
            chosen = compiled.end_rows(times, self.codes, self.n, latest=not reverse)
            present = np.flatnonzero(chosen >= 0)
            return present, chosen[present]
        extreme = self.min(times) if reverse else self.max(times)
        if self.starts is not None:
            ends = self.starts if reverse else self.starts + self._run_lengths - 1
            if np.array_equal(times[ends], extreme):  # as where the rows of a group are in order
                return np.arange(self.n, dtype=np.int64), ends
        rows = np.flatnonzero(times == extreme[self.codes])
        if reverse:
            rows = rows[::-1]
        chosen = np.full(self.n, -1, np.int64)
        chosen[self.codes[rows]] = rows  # of rows with one code the last assigned stays
        present = np.flatnonzero(chosen >= 0)
        return present, chosen[present]


def sort_order(*columns: Ints) -> Ints:
    """The rows in order of the last column, of equals in order of the one before it, and so on.

    The result is that of `np.lexsort`. Where all columns and the number of the row fit into one
    word, sorting those words is several times as fast as any sort of indices. Columns that are in
    order already, or nearly, cost less still.

    >>> sort_order(np.array([1, 0, 2, 3]), np.array([5, 5, 4, 5])).tolist()
    [2, 1, 0, 3]
    >>> sort_order(np.array([2**63 - 1, -(2**63)])).tolist()
    [1, 0]
    """
    rows = len(columns[-1])
    while columns and not _falls(columns[0]):
        columns = columns[1:]  # of equals, the earlier row comes first anyway
    if not columns:
        return np.arange(rows, dtype=np.int64)
    if len(columns) == 1:
        if _falls(columns[0]) < rows // _NEARLY:
            return np.argsort(columns[0], kind="stable")  # a merge sort that finds long runs
        low = int(columns[0].min())
        if int(columns[0].max()) - low < _NARROW:
            return np.argsort((columns[0] - low).astype(np.uint16), kind="stable")
    packed = _words(columns)
    if packed is not None:
        packed.words.sort()
        return packed.rows(packed.words)
    order = np.argsort(columns[0], kind="stable")
    for column in columns[1:]:
        order = order[sort_order(column[order])]
    return order


def sort_rows(
    ties: Ints, *columns: Ints, keep: npt_bool | None = None
) -> tuple[Ints, tuple[Ints, ...]]:
    """The rows kept, or all, in order of the last column, of equals in order of the one before it,
    and so on, at last of `ties`; and the columns in this order.

    >>> rows, (first, second) = sort_rows(
    ...     np.arange(4), np.array([1, 0, 2, 0]), np.array([5, 5, 4, 5])
    ... )
    >>> rows.tolist(), first.tolist(), second.tolist()
    ([2, 1, 3, 0], [2, 0, 0, 1], [4, 5, 5, 5])
    """
    packed = None if _falls(ties) else _words(columns)
    if packed is None:
        rows = np.arange(len(ties), dtype=np.int64) if keep is None else np.flatnonzero(keep)
        rows = rows[sort_order(*(column.take(rows) for column in (ties, *columns)))]
        return rows, tuple(column.take(rows) for column in columns)
    words = packed.words if keep is None else packed.words[keep]
    if _falls(words):
        words.sort()
    return packed.unpacked(words)


def _falls(values: Ints) -> int:
    """How many values are less than the one before them."""
    compiled = kernels(len(values)) if values.dtype == np.int64 else None
    if compiled is not None:
        return compiled.falls(values)
    return int(np.count_nonzero(values[1:] < values[:-1]))


class _HashWords(NamedTuple):
    """Words of all columns, the last one foremost, and of the row."""

    words: Ints
    lowest: list[int]
    shifts: list[int]
    """Where the bits of the row end, and those of each column."""

    def rows(self, words: Ints) -> Ints:
        """The rows in some of the words."""
        return words & ((1 << self.shifts[0]) - 1)

    def unpacked(self, words: Ints) -> tuple[Ints, tuple[Ints, ...]]:
        """The rows in some of the words, and all columns in their order."""
        compiled = kernels(len(words)) if len(self.lowest) == 2 else None
        if compiled is None:
            every = range(len(self.lowest))
            return self.rows(words), tuple(self.column(words, number) for number in every)
        (low, high), (shift, top, _) = self.lowest, self.shifts
        rows, *columns = compiled.unpack(words, np.array([low, shift, high, top], np.int64))
        return rows, tuple(columns)

    def column(self, words: Ints, number: int) -> Ints:
        """A column, in the order of some of the words."""
        low, shift, end = self.lowest[number], *self.shifts[number : number + 2]
        if shift == end:
            return np.full(len(words), low, np.int64)
        values = words >> shift
        if number + 1 < len(self.lowest):
            values &= (1 << (end - shift)) - 1
        values += low
        return values


def _words(columns: Sequence[Ints]) -> _HashWords | None:
    """Columns as words; None where 63 bits do not hold them, or there are no rows."""
    rows = len(columns[0])
    if not rows:
        return None
    whole = all(column.dtype == np.int64 for column in columns)
    compiled = kernels(rows) if whole else None
    ends = [_ends(column) if compiled is None else compiled.ends(column) for column in columns]
    lowest = [low for low, _ in ends]
    shifts = [(rows - 1).bit_length()]
    for low, high in ends:
        shifts.append(shifts[-1] + (high - low).bit_length())
    if shifts[-1] > _BITS:
        return None
    if compiled is not None and len(columns) == 2:
        first, second = columns
        layout = np.array([lowest[0], shifts[0], lowest[1], shifts[1]], np.int64)
        return _HashWords(compiled.pack(first, second, layout), lowest, shifts)
    words = np.arange(rows, dtype=np.int64)
    for column, low, shift, end in zip(columns, lowest, shifts, shifts[1:], strict=False):
        if end > shift:
            bits = column - low
            bits <<= shift
            words |= bits
    return _HashWords(words, lowest, shifts)


def _ends(column: Ints) -> tuple[int, int]:
    return int(column.min()), int(column.max())


def stable_order(values: Ints) -> Ints:
    """The rows in order of integers, equals as they come."""
    return sort_order(values)


npt_bool = np.ndarray[Any, np.dtype[np.bool_]]


def grouped(codes: Ints, n: int) -> tuple[Grouping, Ints]:
    """Groups rows by codes in `0..n`, dropping the codes that no row has: the grouping, the codes.

    >>> g, present = grouped(np.array([7, 2, 7]), 10)
    >>> present.tolist(), g.count.tolist()
    ([2, 7], [1, 2])
    """
    if n <= 4 * len(codes) + 1024:
        seen = np.zeros(n, np.bool_)
        seen[codes] = True
        present = np.flatnonzero(seen)
        if len(present) == n:
            return Grouping(codes, n), present
        place = np.empty(n, np.int64)
        place[present] = np.arange(len(present))
        return Grouping(place[codes], len(present)), present
    present, inverse = np.unique(codes, return_inverse=True)
    return Grouping(inverse.astype(np.int64, copy=False), len(present)), present


def segment_codes(starts: Ints, total: int) -> Ints:
    """Which segment each of `total` rows is in, by where the segments start."""
    return np.repeat(np.arange(len(starts), dtype=np.int64), lengths_of(starts, total))


def runs(lows: Ints, highs: Ints) -> tuple[Ints, Ints]:
    """The indices in `[low, high)` of every pair, and the number of the pair each is from."""
    lengths = np.maximum(highs - lows, 0)
    return spans(lows, lengths), np.repeat(np.arange(len(lows), dtype=np.int64), lengths)
