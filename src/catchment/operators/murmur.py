"""The hash that Apache DataSketches uses, of a whole column at a time.

MurmurHash3 (x64, 128 bits) with the seed of DataSketches. Whole numbers are hashed as their eight
bytes, doubles likewise after -0.0 has become 0.0 and every NaN the same one, and texts as UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.operators.ragged import Array, Ints, offsets_of, spans

Words = npt.NDArray[np.uint64]

_SEED = np.uint64(9001)
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_ADD1, _ADD2 = np.uint64(0x52DCE729), np.uint64(0x38495AB5)
_FINAL1, _FINAL2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_FINAL_SHIFT = np.uint64(33)
_BLOCK = 16
"""Bytes that are mixed in together; what remains after the last whole block is the tail."""


def hash_numbers(values: Array) -> tuple[Words, Words]:
    """Both halves of the hash of each number (int64, uint64 or float64).

    >>> [hex(half[0]) for half in hash_numbers(np.array([1]))]
    ['0xb430d7b96fbf22b', '0xe8ea0960d4246765']
    """
    if values.dtype == np.float64:
        values = values + 0.0
        values[np.isnan(values)] = np.nan
    low = _mixed(np.ascontiguousarray(values).view(np.uint64), _C1, 31, _C2)
    low ^= _SEED
    high = np.full(len(values), _SEED)
    _finish(low, high, np.uint64(8))
    return low, high


def hash_texts(texts: Sequence[str | bytes]) -> tuple[Words, Words]:
    """Both halves of the hash of each text; bytes are hashed as they are."""
    words, begins, lengths = _blocks_of(texts)
    low = np.full(len(texts), _SEED)
    high = low.copy()
    whole = lengths // _BLOCK
    for block in range(int(whole.max(initial=0))):
        rows = np.flatnonzero(whole > block)
        at = begins[rows] + 2 * block
        one = _turned(low[rows] ^ _mixed(words[at], _C1, 31, _C2), 27) + high[rows]
        one = one * np.uint64(5) + _ADD1
        two = _turned(high[rows] ^ _mixed(words[at + 1], _C2, 33, _C1), 31) + one
        low[rows], high[rows] = one, two * np.uint64(5) + _ADD2
    tail = begins + 2 * whole
    low ^= _mixed(words[tail], _C1, 31, _C2)
    high ^= _mixed(words[tail + 1], _C2, 33, _C1)
    _finish(low, high, lengths.astype(np.uint64))
    return low, high


def _blocks_of(texts: Sequence[str | bytes]) -> tuple[Words, Ints, Ints]:
    """Texts in blocks, where each begins, and how many bytes it has.

    Behind each are zeros up to the end of its tail, which may be nothing else: mixing in a zero
    changes nothing.
    """
    encoded: Any = pa.array(texts, pa.large_binary())
    _, ends, data = encoded.buffers()
    offsets = np.frombuffer(ends, np.int64, len(texts) + 1)
    lengths = np.diff(offsets)
    begins = offsets_of(2 * (lengths // _BLOCK + 1))
    padded = np.zeros(8 * int(begins[-1]), np.uint8)
    if data is not None:
        padded[spans(8 * begins[:-1], lengths)] = np.frombuffer(data, np.uint8, int(offsets[-1]))
    return padded.view(np.uint64), begins[:-1], lengths


def _turned(words: Words, bits: int) -> Words:
    """Every word, its bits moved left in a circle."""
    turned: Words = words << np.uint64(bits)
    turned |= words >> np.uint64(64 - bits)
    return turned


def _mixed(words: Words, before: np.uint64, bits: int, after: np.uint64) -> Words:
    mixed = _turned(words * before, bits)
    mixed *= after
    return mixed


def _finish(low: Words, high: Words, lengths: Any) -> None:
    """The last steps, in place."""
    low ^= lengths
    high ^= lengths
    low += high
    high += low
    for half in (low, high):
        for factor in (_FINAL1, _FINAL2):
            half ^= half >> _FINAL_SHIFT
            half *= factor
        half ^= half >> _FINAL_SHIFT
    low += high
    high += low
