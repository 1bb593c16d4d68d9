"""Columns of lists: one flat array and the offsets of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from catchment.model.arrays import Ints as Ints

_TEXTS = {bytes, str, type(None)}

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

_LONG = 256
"""Values of a row, on average, from which rows are copied one by one."""


def spans(starts: Ints, lengths: Ints) -> Ints:
    """The indices `starts[i] .. starts[i] + lengths[i]` of all i, one after the other.

    >>> spans(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    total = int(lengths.sum())
    if total == 0:
        return np.empty(0, np.int64)
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Ragged:
    """Row i is `values[offsets[i]:offsets[i + 1]]`."""

    offsets: Ints
    values: Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Ints:
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def nbytes(self) -> int:
        return int(self.offsets.nbytes + self.values.nbytes)

    def take(self, index: Ints) -> Ragged:
        """Rows at these places, in memory of their own."""
        lengths = self.lengths[index]
        offsets, starts = offsets_of(lengths), self.offsets[index]
        if len(index) and offsets[-1] > _LONG * len(index):  # copied row by row
            ends = (starts + lengths).tolist()
            rows = [self.values[a:b] for a, b in zip(starts.tolist(), ends, strict=True)]
            return Ragged(offsets, np.concatenate(rows))
        return Ragged(offsets, self.values[spans(starts, lengths)])

    def __getitem__(self, rows: slice) -> Ragged:
        start, stop, _ = rows.indices(len(self))
        offsets = self.offsets[start : max(stop, start) + 1]
        return Ragged(offsets - offsets[0], self.values[offsets[0] : offsets[-1]])


def lengths_of(starts: Ints, total: int) -> Ints:
    """How long each stretch is, by where it starts; the last one ends at `total`.

    >>> lengths_of(np.array([0, 2, 3]), 7).tolist()
    [2, 1, 4]
    """
    lengths = np.empty(len(starts), np.int64)
    if len(starts):
        np.subtract(starts[1:], starts[:-1], out=lengths[:-1])
        lengths[-1] = total - starts[-1]
    return lengths


def offsets_of(lengths: Ints) -> Ints:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


Field = Array | Ragged
Fields = dict[str, Field]


def plain(field: Field) -> Array:
    """A field that holds no lists, as the array it is."""
    assert not isinstance(field, Ragged)
    return field


def take(field: Field, index: Ints) -> Field:
    return field.take(index)


def concat(parts: Sequence[Field]) -> Field:
    """One column of several, of one kind.

    >>> concat([np.array([1]), np.array([2, 3])]).tolist()
    [1, 2, 3]
    """
    if len(parts) == 1:
        return parts[0]
    ragged = [part for part in parts if isinstance(part, Ragged)]
    if ragged:
        lengths = np.concatenate([part.lengths for part in ragged])
        return Ragged(offsets_of(lengths), _joined([part.values for part in ragged]))
    return _joined([part for part in parts if not isinstance(part, Ragged)])


def _joined(arrays: list[Array]) -> Array:
    # An empty object column stands for a column whose type nobody has seen yet.
    known = [array for array in arrays if len(array) or array.dtype != object]
    return np.concatenate(known or arrays[:1])


def nbytes(field: Field) -> int:
    """Bytes held; objects are counted by what they hold, roughly."""
    values = field.values if isinstance(field, Ragged) else field
    size = int(field.nbytes)
    if values.dtype == object:
        listed = values.tolist()
        if _TEXTS.issuperset(map(type, listed)):
            size += sum(map(len, filter(None, listed)))
        else:
            size += sum(len(v) if isinstance(v, bytes | str) else 64 for v in listed)
    return size
