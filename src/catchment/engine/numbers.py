"""Columns of numbers on their way, in as few bytes as they need.

Whole numbers are written as what they exceed the least of them by, or as the differences of
neighbours, whichever is narrower, and only as many bytes of each as the largest has:

    | kind | base | step | width | lowest bytes of all | next bytes of all | ...

Doubles that are whole numbers are written as these; others bit by bit, either value by value or one
byte of all after the other, whichever a compressor makes smaller. So times cost their differences,
ranks of arrival, which follow each other, next to nothing, and what is the same in all rows costs
nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catchment.errors import DataError
from catchment.operators.murmur import Words

_PLAIN, _STEPS, _PLANES, _VALUES = 1, 2, 3, 4
_WHOLE = 8
"""Added to the kind of doubles that are whole numbers."""
_SAMPLE = 4096
"""Values by which it is decided how doubles are written."""


def encodable(kind: pa.DataType) -> bool:
    """Whether columns of a type, if they have no nulls, are written here."""
    if pa.types.is_boolean(kind) or kind == pa.float64():
        return True
    if pa.types.is_decimal(kind) or pa.types.is_floating(kind) or pa.types.is_interval(kind):
        return False
    whole = pa.types.is_integer(kind) or pa.types.is_temporal(kind)
    return bool(whole and kind.bit_width in (8, 16, 32, 64))


def encode(array: pa.Array[Any]) -> bytes:
    """The values of a column without nulls."""
    if array.type != pa.float64():
        return _whole(_integers(array), 0)
    values = np.ascontiguousarray(array.to_numpy(zero_copy_only=False))
    with np.errstate(invalid="ignore", over="ignore"):
        whole = np.where(np.abs(values) < 2.0**53, values, 0.5).astype(np.int64)
    bits = values.view(np.uint64)
    if (whole.astype(np.float64).view(np.uint64) == bits).all():
        return _whole(whole, _WHOLE)
    planes, plain = _planes(bits, 8), values.tobytes()
    kind, body = (_PLANES, planes) if _splits(bits) else (_VALUES, plain)
    return bytes([kind]) + body


def decode(data: bytes, at: int, rows: int, kind: pa.DataType) -> tuple[pa.Array[Any], int]:
    """The inverse of `encode`: the column that begins at a place, and where the next one does."""
    way, at = data[at], at + 1
    if way in (_PLANES, _VALUES):
        end = _within(data, at, 8 * rows)
        body = data[at:end]
        bits = _joined(body, rows, 8) if way == _PLANES else np.frombuffer(body, np.uint64)
        return pa.array(bits.view(np.float64), kind), end
    base, at = _number(data, at)
    step, at = _number(data, at) if way & _STEPS else (0, at)
    width, at = data[at], at + 1
    if (
        width > 8
        or way & ~_WHOLE not in (_PLAIN, _STEPS)
        or (way & _WHOLE and kind != pa.float64())
    ):
        raise DataError("a column of numbers cannot be read", given=f"kind {way}, {width} bytes")
    steps = way & _STEPS and rows > 0
    count = rows - 1 if steps else rows
    end = _within(data, at, width * count)
    more = _joined(data[at:end], count, width)
    if steps:
        moves = np.concatenate([np.array([base], np.uint64), more + np.uint64(step)])
        found = np.cumsum(moves, dtype=np.uint64).view(np.int64)
    else:
        found = (more + np.uint64(base)).view(np.int64)
    if way & _WHOLE:
        return pa.array(found.astype(np.float64), kind), end
    return _typed(found, kind), end


def _whole(values: npt.NDArray[np.int64], flag: int) -> bytes:
    bits = values.view(np.uint64)
    if not len(bits):
        return bytes([_PLAIN | flag]) + _written(0) + b"\0"
    low = values.min()
    plain = bits - low.view(np.uint64)
    width = _width(plain)
    if len(bits) > 2:
        moves = np.diff(bits).view(np.int64)
        least = moves.min()
        steps = moves.view(np.uint64) - least.view(np.uint64)
        if (narrow := _width(steps)) < width:
            head = bytes([_STEPS | flag]) + _written(int(values[0])) + _written(int(least))
            return head + bytes([narrow]) + _planes(steps, narrow)
    return bytes([_PLAIN | flag]) + _written(int(low)) + bytes([width]) + _planes(plain, width)


def _width(bits: Words) -> int:
    """The bytes that the largest number needs."""
    return -(-int(bits.max()).bit_length() // 8) if len(bits) else 0


def _planes(bits: Words, width: int) -> bytes:
    """The lowest bytes of all numbers, then the next ones."""
    return bits.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()


def _joined(data: bytes, rows: int, width: int) -> Words:
    whole = np.zeros((rows, 8), np.uint8)
    whole[:, :width] = np.frombuffer(data, np.uint8).reshape(width, rows).T
    return whole.view("<u8").ravel().astype(np.uint64)


def _splits(bits: Words) -> bool:
    """Whether doubles compress better one byte of all after the other."""
    some = bits[:_SAMPLE]
    codec = pa.Codec("zstd")
    planes, values = _planes(some, 8), some.tobytes()
    return len(codec.compress(planes, asbytes=True)) < len(codec.compress(values, asbytes=True))


def _written(number: int) -> bytes:
    """A whole number after the count of its bytes."""
    count = max(number, ~number).bit_length() // 8 + 1 if number else 0
    return bytes([count]) + number.to_bytes(count, "little", signed=True)


def _number(data: bytes, at: int) -> tuple[int, int]:
    count = data[at]
    end = _within(data, at + 1, count)
    if count > 8:
        raise DataError("a number has too many bytes", given=str(count))
    return int.from_bytes(data[at + 1 : end], "little", signed=True) % (1 << 64), end


def _within(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise DataError("a column of numbers is cut short", given=f"{len(data)} bytes")
    return at + size


def _integers(array: pa.Array[Any]) -> npt.NDArray[np.int64]:
    """The values of a column as whole numbers of 64 bits."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return array.cast(pa.uint8()).to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_temporal(kind):
        array = array.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype == np.uint64:
        return np.ascontiguousarray(values).view(np.int64)
    return values.astype(np.int64)


def _typed(values: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array[Any]:
    """The inverse of `_integers`."""
    if pa.types.is_boolean(kind):
        return pa.array(values != 0, kind)
    if kind == pa.uint64():
        return pa.array(values.view(np.uint64), kind)
    plain = pa.array(values, pa.int64())
    if kind == pa.int64():
        return plain
    if pa.types.is_temporal(kind):
        return (plain if kind.bit_width == 64 else plain.cast(pa.int32())).view(kind)
    return plain.cast(kind)
