"""Whole numbers of any width as columns of limbs, which add up without overflow.

Goes in: an Arrow column of decimals or uint64, as whole numbers in units of the last digit
(`units_of`): int64 or uint64 where these hold them, else rows of 64-bit words. A number is then

    limb 0 + limb 1 * 2**32 + limb 2 * 2**64 + ...

where every limb is an int64 column. Limbs are added column by column, and a sum of two thousand
million numbers still fits. `carried` brings limbs back into [0, 2**32), all but the last, which
has the sign: equal numbers then have equal limbs. Comes out: decimals (`decimals_of`) or doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.expression.decimals import MOST, WIDEST, digits_of
from catchment.operators.ragged import Array, Ints

_BITS = 32
_MASK = (1 << _BITS) - 1
_INT64_DIGITS = 18
"""Digits that any int64 has room for."""
_WORDS = {
    2: np.dtype([("0", "<u8"), ("1", "<i8")]),
    4: np.dtype([("0", "<u8"), ("1", "<u8"), ("2", "<u8"), ("3", "<i8")]),
}


def is_narrow(type: pa.DataType | None) -> bool:
    """Whether a decimal's unit is always an int64: such columns are worked on as integers."""
    if type is None or not pa.types.is_decimal(type):
        return False
    return digits_of(type)[0] <= _INT64_DIGITS


def limbs_for(type: pa.DataType) -> int:
    """How many limbs the sum of a column has."""
    if type == pa.uint64():
        return 3
    return 2 if is_narrow(type) else 4 if digits_of(type)[0] <= MOST else 8


def units_of(array: pa.Array[Any]) -> Array:
    """Decimals or uint64 as whole numbers, in units of the last digit; nulls are anything."""
    kind = array.type
    if kind == pa.uint64():
        return array.fill_null(0).to_numpy(zero_copy_only=False)
    precision, scale = digits_of(kind)
    if precision <= MOST and kind.byte_width != 16:
        array = array.cast(pa.decimal128(precision, scale))
    words = array.type.byte_width // 8
    if not len(array):
        return np.empty(0, np.int64)
    data: Any = array.buffers()[1]
    held = np.frombuffer(data, np.int64).reshape(-1, words)
    held = held[array.offset : array.offset + len(array)]
    if is_narrow(kind):
        return np.ascontiguousarray(held[:, 0])
    return np.ascontiguousarray(held).view(_WORDS[words]).reshape(-1)


def split(units: Array) -> list[Ints]:
    """The limbs of whole numbers, as few as hold them."""
    if units.dtype.names is not None:
        return [limb for name in units.dtype.names for limb in split(units[name])]
    if units.dtype == np.uint64:
        low = (units & np.uint64(_MASK)).view(np.int64)
        return [low, (units >> np.uint64(_BITS)).view(np.int64)]
    return [units & _MASK, units >> _BITS]


def as_int64(units: Array) -> Ints | None:
    """Whole numbers as int64, where all fit."""
    if units.dtype == np.int64:
        return units
    if units.dtype.names is None:
        low = units.view(np.int64)
        return low if not (low < 0).any() else None
    low = units["0"].view(np.int64)
    sign = low >> 63
    fits = all((units[name].view(np.int64) == sign).all() for name in units.dtype.names[1:])
    return low if fits else None


def carried(limbs: Sequence[Ints], count: int) -> list[Ints]:
    """The same numbers in so many limbs, all but the last in [0, 2**32).

    Where there are fewer limbs than before, the last takes what is above it: 64 bits hold it.
    """
    out = [limb.copy() for limb in limbs[:count]]
    for place, limb in enumerate(limbs[count:], 1):
        if place * _BITS < 64:  # beyond that there is nothing but the sign
            out[-1] += limb << (place * _BITS)
    out += [np.zeros_like(out[0]) for _ in range(count - len(out))]
    for place in range(count - 1):
        out[place + 1] += out[place] >> _BITS
        out[place] &= _MASK
    return out


def doubles_of(limbs: Sequence[Ints], scale: int) -> Array:
    """Doubles close to numbers of `scale` digits behind the point; the same for equal numbers."""
    limbs = carried(limbs, len(limbs))
    negative = limbs[-1] < 0
    # Of a negative number the limbs would cancel: add up those of its opposite.
    sizes = carried([np.where(negative, -limb, limb) for limb in limbs], len(limbs))
    total = np.zeros(len(negative))
    for place in reversed(range(len(sizes))):
        total = total * 2.0**_BITS + sizes[place]
    return np.where(negative, -total, total) / 10.0**scale


def decimals_of(limbs: Sequence[Ints], scale: int) -> pa.Array[Any]:
    """Numbers of `scale` digits behind the point in 256 bits; null where these do not hold them."""
    limbs = carried(limbs, max(len(limbs), 2))
    top = limbs[-1]
    words = np.zeros((len(top), 8), np.uint32)
    for place, limb in enumerate(limbs):
        words[:, place] = limb.astype(np.uint64) & np.uint64(_MASK)
    rest = top >> _BITS  # what the last limb has beyond its 32 bits
    valid = np.ones(len(top), np.bool_)
    if len(limbs) < 8:
        words[:, len(limbs)] = rest.astype(np.uint64) & np.uint64(_MASK)
        words[:, len(limbs) + 1 :] = np.where(rest < 0, _MASK, 0)[:, None]
    else:
        valid = rest == (top.astype(np.uint64).astype(np.uint32).view(np.int32) >> 31)
    bits = None if valid.all() else pa.array(valid).buffers()[1]
    kind = pa.decimal256(WIDEST, scale)
    made: pa.Array[Any] = pa.Array.from_buffers(kind, len(top), [bits, _buffer(words)])
    return made


def _buffer(words: Any) -> pa.Buffer:
    made: pa.Buffer = pa.py_buffer(words)
    return made


def narrow_decimals(units: Ints, type: pa.DataType, mask: Array | None) -> pa.Array[Any]:
    """Units that int64 holds as decimals of a type; null where the mask says so."""
    words = np.empty((len(units), 2), np.int64)
    words[:, 0] = units
    words[:, 1] = units >> 63
    bits = None if mask is None else pa.array(~mask).buffers()[1]
    _, scale = digits_of(type)
    kind = pa.decimal128(MOST, scale)
    made: pa.Array[Any] = pa.Array.from_buffers(kind, len(units), [bits, _buffer(words)])
    return made.cast(type, safe=False)
