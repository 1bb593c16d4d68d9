"""Texts as integers, batch after batch: a hash table in columns.

Arrow builds a new hash table of texts for every batch, and Python looks texts up one at a time.
With very many keys both cost more than all the rest. Here texts are hashed in one pass and looked
up in one table that stays: texts go in, and come out as their codes. The table only saves time. It
may be thrown away between any two batches, and is, where most of it is of no more use
(`keys.Encoder`): the next batch then tells the texts that still come. It takes about 300 bytes for
each text, besides the text itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from catchment.operators.ragged import Ints

Hashes = np.ndarray[tuple[int], np.dtype[np.uint64]]


class Texts:
    """Codes of texts, in order of first sight.

    A text is known by two independent 64-bit hashes: one chooses its slot, the other is compared.
    Two texts are taken for one only if both agree, which for a billion texts has a chance of less
    than one in ten million.
    """

    def __init__(self) -> None:
        self.identity = object()
        """Tells whose codes are whose, without holding on to the table."""
        self.values: pa.Array[Any] = pa.array([], pa.string())
        self._hashes = np.empty((2, 0), np.uint64)
        self._make(12)

    def _make(self, bits: int) -> None:
        """An empty table of slots: the code and second hash of a text, -1 where there is none."""
        self._bits = bits
        self._codes = np.full(1 << bits, -1, np.int64)
        self._tags: Hashes = np.zeros(1 << bits, np.uint64)

    @staticmethod
    def takes(array: pa.Array[Any]) -> bool:
        kind = array.type
        return pa.types.is_string(kind) or pa.types.is_large_string(kind)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        slots = self._codes.nbytes + self._tags.nbytes
        return int(slots + self._hashes.nbytes + self.values.nbytes)

    def encode(self, array: pa.Array[Any]) -> Ints:
        """The code of every text; null is a text of its own."""
        import polars as pl  # here, since to load it takes as long as all the rest

        texts = pl.Series(pl.from_arrow(array))
        first = texts.hash(1).to_numpy()
        second = texts.hash(2).to_numpy()
        codes = self._find(first, second)
        rows = np.flatnonzero(codes < 0)
        some = 4096
        while len(rows):
            # Where few texts are new, few rows tell them all: learn from some, then look again.
            new = rows[:some]
            self._learn(array, new, first[new], second[new])
            codes[rows] = self._find(first[rows], second[rows])
            rows = rows[codes[rows] < 0]
            some *= 4
        return codes

    def _slot(self, first: Hashes) -> Ints:
        return (first >> np.uint64(64 - self._bits)).view(np.int64)

    def _next(self, slot: Ints) -> Ints:
        return (slot + 1) & ((1 << self._bits) - 1)

    def _find(self, first: Hashes, second: Hashes) -> Ints:
        """The codes of texts; -1 for those not known."""
        slot = self._slot(first)
        codes = self._codes.take(slot)
        rows = np.flatnonzero((self._tags.take(slot) != second) & (codes >= 0))
        slot = slot[rows]
        while len(rows):  # the slot is another's: look in the next
            slot = self._next(slot)
            found = self._codes.take(slot)
            codes[rows] = found
            other = (found >= 0) & (self._tags.take(slot) != second[rows])
            rows, slot = rows[other], slot[other]
        return codes

    def _learn(self, array: pa.Array[Any], rows: Ints, first: Hashes, second: Hashes) -> None:
        """Adds the texts of these rows."""
        _, at = np.unique(first, return_index=True)
        new = array.take(rows[at])
        known = len(self.values)
        self.values = pa.concat_arrays([self.values, new]) if known else new
        hashes = np.stack([first[at], second[at]])
        self._hashes = np.concatenate([self._hashes, hashes], axis=1)
        if 4 * len(self.values) > 1 << self._bits:
            self._make(max(self._bits + 2, (8 * len(self.values)).bit_length()))
            known, hashes = 0, self._hashes
        self._insert(hashes[0], hashes[1], np.arange(known, len(self.values)))

    def _insert(self, first: Hashes, second: Hashes, codes: Ints) -> None:
        slot = self._slot(first)
        while len(codes):
            free = self._codes[slot] < 0
            self._codes[slot[free]] = codes[free]  # of several, the last stays
            won = self._codes[slot] == codes
            self._tags[slot[won]] = second[won]
            codes, second, slot = codes[~won], second[~won], self._next(slot[~won])
