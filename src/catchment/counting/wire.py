"""Records as few bytes: MessagePack, where arrays of numbers are packed closely.

    an array  =  [size, first, width, body, length of the body when it is unpacked]

Integers are differences, with the sign in the lowest bit; floats are their bits, and `first` is
None. Of each number `width` bytes are written, all bytes of one place together; the body may be
compressed, and what would be empty at the end is left out.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Meta, Struct

from catchment.errors import CatchmentError, DataError
from catchment.model import records
from catchment.model.unpacking import unpacks
from catchment.operators.ragged import Ints

_T = TypeVar("_T")
_Bits = npt.NDArray[np.uint64]
_Number = Annotated[int, Meta(ge=0)]

Columns = dict[str, npt.NDArray[Any]]
"""Values of events by column: integers or floats."""

_WORTH = 64
"""Bytes below which packing does not pay."""
_MOST = 1 << 30
"""Bytes that an array may have once it is unpacked."""


class _Packed(Struct, frozen=True, array_like=True):
    size: _Number
    first: _Number | None
    width: int = 0
    body: bytes = b""
    length: _Number = 0
    """The length of the unpacked body; 0: the body is not packed."""


def dump(record: object) -> bytes:
    """A record as bytes."""
    return records.pack(record, _to_plain)


def load(kind: type[_T], data: bytes) -> _T:
    """The inverse of `dump`; raises DataError if the bytes are no such record.

    >>> load(tuple[int, Ints], dump((1, np.array([5, -70000]))))
    (1, array([     5, -70000]))
    """
    return records.unpack(kind, data, f"{len(data)} bytes", _damaged, _from_plain)


def _damaged(what: str, why: str) -> CatchmentError:
    return DataError("these bytes are damaged or cut short", given=f"{what}: {why[:200]}")


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype == np.float64:
        return [len(value), None, 8, *_packed(value.view(np.uint64), 8)]
    if isinstance(value, np.ndarray):
        return _of_ints(value.astype(np.int64, copy=False))
    raise TypeError(f"no plain data: {type(value).__name__}")


def _from_plain(kind: type, plain: Any) -> npt.NDArray[Any]:
    try:
        packed = msgspec.convert(plain, _Packed)
        floats = packed.first is None and kind != Ints
        found = _unpacked(packed).view(np.float64) if floats else _ints(packed)
    except OSError as error:
        raise ValueError(str(error)) from error
    if len(found) != packed.size:
        raise ValueError(f"{len(found)} numbers, and {packed.size} are told")
    return found


def _of_ints(ints: Ints) -> list[Any]:
    steps = np.diff(ints, prepend=np.int64(0))
    signs = ((steps << 1) ^ (steps >> 63)).view(np.uint64)
    rest = signs[1:]
    width = _width(int(rest.max()) if len(rest) else 0)
    first = int(signs[0]) if len(signs) else 0
    return [len(ints), first, width, *_packed(rest, width)] if width else [len(ints), first]


def _ints(packed: _Packed) -> Ints:
    if packed.first is None or packed.size > _MOST >> 3:
        raise ValueError(f"{packed.size} numbers are no integers, or too many")
    unpacks(8 * packed.size)
    if not packed.width:  # all are the same
        return np.full(packed.size, (packed.first >> 1) ^ -(packed.first & 1), np.int64)
    rest = _unpacked(packed)
    first = np.array([packed.first], np.uint64)
    signs = np.concatenate([first[: packed.size], rest.astype(np.uint64)])
    steps = (signs >> np.uint64(1)).view(np.int64) ^ -(signs & np.uint64(1)).astype(np.int64)
    return np.cumsum(steps)


def _width(largest: int) -> int:
    return next((w for w in (0, 1, 2, 4) if largest < 1 << 8 * w), 8)


def _packed(values: _Bits, width: int) -> list[Any]:
    """Bytes, and how many there were if they are packed."""
    narrow = np.ascontiguousarray(values).astype(f"<u{width}", copy=False)
    body = narrow.view(np.uint8).reshape(-1, width).T.tobytes()
    packed = pa.Codec("zstd").compress(body, asbytes=True) if len(body) > _WORTH else body
    return [packed, len(body)] if len(packed) < len(body) else [body]


def _unpacked(packed: _Packed) -> npt.NDArray[Any]:
    body, length, width = packed.body, packed.length, packed.width
    if length > _MOST or width not in (1, 2, 4, 8):
        raise ValueError(f"{length} bytes of width {width}")
    if length:
        unpacks(length)
        body = pa.Codec("zstd").decompress(body, decompressed_size=length, asbytes=True)
    planes = np.frombuffer(body, np.uint8).reshape(width, -1)
    return np.ascontiguousarray(planes.T).view(f"<u{width}").reshape(-1)
