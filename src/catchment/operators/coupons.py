"""Values as the coupons that an HLL sketch is made of, a whole column at a time.

A coupon has 32 bits: the number of leading zeros of one half of a value's hash, plus one, above 26
bits of the other half. To hash is most of what a sketch costs, so a column is hashed once for all
groups that ask for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from catchment.native import kernels
from catchment.operators.murmur import hash_numbers, hash_texts
from catchment.operators.ragged import Array, Ints

Coupons = npt.NDArray[np.uint32]

ADDRESS_BITS = 26
_ADDRESS = np.uint32((1 << ADDRESS_BITS) - 1)
_AT_ONCE = 1 << 15
"""Numbers that are hashed together: few enough to stay in the cache of a core."""
_HASHED = (np.dtype(np.int64), np.dtype(np.uint64), np.dtype(np.float64))
_ALL_BITS = (1 << 64) - 1


def coupons_of(low: npt.NDArray[np.uint64], high: npt.NDArray[np.uint64]) -> Coupons:
    """The coupons of hashes, given as their two halves."""
    # Without the bit below its first, no number is rounded up to the next power of two, and the
    # exponent of the double tells the place of that bit.
    exponent = (high & ~(high >> np.uint64(1))).astype(np.float64).view(np.int64) >> 52
    number = np.minimum(1087 - exponent, 63).astype(np.uint32)
    coupons: Coupons = number << np.uint32(ADDRESS_BITS)
    coupons |= low.astype(np.uint32) & _ADDRESS
    return coupons


def coupons(values: Array, levels: Array | None) -> tuple[Array, Coupons | None]:
    """The coupons of values, or of ranks into levels; those of few whole numbers, as of levels,
    as ranks into the coupons of all that there may be.

    >>> of_numbers, known = coupons(np.array([7, 5, 7, 6, 7, 5]), None)
    >>> of_numbers.tolist(), len(known)
    ([2, 0, 2, 1, 2, 0], 3)
    """
    if levels is not None:
        return values, coupons_of(*_hash_levels(levels))
    if values.dtype == np.int64 and len(values):
        low = int(values.min())
        span = int(values.max()) - low + 1
        if 2 * span <= len(values):
            every: Ints = np.arange(span, dtype=np.int64) + low
            return values - low, _coupons_of_numbers(every)
    return _coupons_of_numbers(values), None


def hashes_of(values: Array, levels: Array | None) -> npt.NDArray[np.uint64]:
    """The first halves of the hashes of values, or of ranks into levels."""
    if levels is not None:
        low: npt.NDArray[np.uint64] = _hash_levels(levels)[0][values]
        return low
    return hash_numbers(values)[0]


def _coupons_of_numbers(values: Array) -> Coupons:
    compiled = kernels(len(values))
    if compiled is not None and values.dtype in _HASHED:
        return compiled.coupons(values)
    out = np.empty(len(values), np.uint32)
    for begin in range(0, len(values), _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        out[part] = coupons_of(*hash_numbers(values[part]))
    return out


def _hash_levels(levels: Array) -> tuple[Any, Any]:
    """Numbers of any type as numbers, what is neither number nor text as text."""
    values = levels.tolist()
    kinds = set(map(type, values))
    if kinds <= {str, bytes}:
        return hash_texts(values)
    if kinds <= {int, bool}:
        return hash_numbers(np.array([value & _ALL_BITS for value in values], np.uint64))
    if kinds == {float}:
        return hash_numbers(np.array(values, np.float64))
    return hash_texts([str(value) for value in values])
