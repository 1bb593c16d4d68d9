"""Columns of sketches: one value of bytes a row, None where there are no values.

The bytes are those of Apache DataSketches, which Spark's functions read and merge. Many rows are
read and written at once, as 32-bit words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from catchment.errors import StateError
from catchment.operators.grouping import Grouping, grouped
from catchment.operators.ragged import Array, Ints, Ragged, offsets_of

WORD = np.dtype("<u4")


def merge_sketches(
    sketches: Array, groups: Grouping, union: Callable[[Sequence[bytes], Grouping], Array]
) -> Array:
    """The sketch of each group; `union` makes it where there are several."""
    rows = known(sketches)
    codes = groups.codes[rows]
    alone = np.bincount(codes, minlength=groups.n)[codes] == 1
    out = np.full(groups.n, None, object)
    out[codes[alone]] = sketches[rows[alone]]
    if not alone.all():
        several, present = grouped(codes[~alone], groups.n)
        out[present] = union(sketches[rows[~alone]].tolist(), several)
    return out


def known(sketches: Array) -> Ints:
    """The rows that have values."""
    return np.flatnonzero([sketch is not None for sketch in sketches.tolist()])


def words_of(sketches: Sequence[bytes], least: int) -> Ragged:
    """The words of each sketch, of which there must be so many at least."""
    lengths = np.fromiter(map(len, sketches), np.int64, len(sketches))
    check((lengths % 4 == 0) & (lengths >= 4 * least), sketches)
    return Ragged(offsets_of(lengths // 4), np.frombuffer(b"".join(sketches), WORD))


def bytes_of(words: Ragged) -> Array:
    """The words of each row as one value of bytes."""
    data = words.values.astype(WORD, copy=False).tobytes()
    ends = (4 * words.offsets).tolist()
    out = np.empty(len(words), object)
    out[:] = [data[begin:end] for begin, end in pairwise(ends)]
    return out


def check(good: Array, sketches: Sequence[bytes]) -> None:
    """Refuses sketches that are not in the form in which Catchment writes them."""
    if not good.all():
        bad = sketches[int(np.argmin(good))]
        raise StateError(
            "a partial holds a sketch that is damaged or was written by something else",
            given=f"{len(bad)} bytes that begin with {bad[:8].hex(' ') or 'nothing'}",
            hint="partials are made by ct.slice and ct.merge",
        )
