"""Plain data as few bytes: MessagePack, where tuples stay tuples and arrays are packed closely."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from catchment.errors import DataError

_TUPLE, _INTS, _FLOATS = range(3)
_WORTH = 64
"""Bytes below which packing does not pay."""
_MOST = 1 << 30
"""Bytes that an array may have once it is unpacked."""


def dump(value: Any) -> bytes:
    """Plain data as bytes."""
    return bytes(msgpack.packb(value, default=_extended, strict_types=True))


def load(data: bytes) -> Any:
    """The inverse of `dump`.

    >>> load(dump({"a": [1, -70000, None, (2.5, "x")]}))
    {'a': [1, -70000, None, (2.5, 'x')]}
    """
    try:
        return msgpack.unpackb(data, ext_hook=_restored, strict_map_key=False)
    except (msgpack.UnpackException, ValueError, TypeError, OSError) as error:
        raise DataError("these bytes are damaged or cut short", given=f"{len(data)} bytes") from (
            error
        )


def _extended(value: Any) -> Any:
    if isinstance(value, tuple):
        return msgpack.ExtType(_TUPLE, dump(list(value)))
    if isinstance(value, np.integer | np.bool_):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype == np.float64:
        return msgpack.ExtType(_FLOATS, dump([len(value), *_packed(value.view(np.uint64), 8)]))
    if isinstance(value, np.ndarray):
        return msgpack.ExtType(_INTS, _of_ints(value.astype(np.int64, copy=False)))
    raise TypeError(f"no plain data: {type(value).__name__}")


def _restored(code: int, body: bytes) -> Any:
    if code == _TUPLE:
        return tuple(load(body))
    if code == _INTS:
        return _ints(*load(body))
    if code == _FLOATS:
        size, *packed = load(body)
        return _unpacked(8, *packed).view(np.float64)[:size]
    raise ValueError(code)


def _of_ints(ints: np.ndarray[Any, Any]) -> bytes:
    """Differences of as few bytes as they need; the bytes of a place together."""
    steps = np.diff(ints, prepend=np.int64(0))
    signs = ((steps << 1) ^ (steps >> 63)).view(np.uint64)
    rest = signs[1:]
    width = _width(int(rest.max()) if len(rest) else 0)
    first = int(signs[0]) if len(signs) else 0
    return dump([len(ints), first, width, *(_packed(rest, width) if width else ())])


def _ints(size: int, first: int, width: int = 0, *packed: Any) -> np.ndarray[Any, Any]:
    if not width and size > _MOST >> 3:
        raise ValueError(size)
    rest = _unpacked(width, *packed) if width else np.zeros(max(size - 1, 0), np.uint64)
    signs = np.concatenate([np.array([first], np.uint64), rest.astype(np.uint64)])[:size]
    steps = (signs >> np.uint64(1)).view(np.int64) ^ -(signs & np.uint64(1)).astype(np.int64)
    return np.cumsum(steps)


def _width(largest: int) -> int:
    return next((w for w in (0, 1, 2, 4) if largest < 1 << 8 * w), 8)


def _packed(values: np.ndarray[Any, Any], width: int) -> list[Any]:
    """Bytes, and how many there were if they are packed."""
    narrow = np.ascontiguousarray(values).astype(f"<u{width}", copy=False)
    body = narrow.view(np.uint8).reshape(-1, width).T.tobytes()
    packed = pa.Codec("zstd").compress(body, asbytes=True) if len(body) > _WORTH else body
    return [packed, len(body)] if len(packed) < len(body) else [body]


def _unpacked(width: int, body: bytes, size: int = 0) -> np.ndarray[Any, Any]:
    if size > _MOST:
        raise ValueError(size)
    if size:
        body = pa.Codec("zstd").decompress(body, decompressed_size=size, asbytes=True)
    planes = np.frombuffer(body, np.uint8).reshape(width, -1)
    return np.ascontiguousarray(planes.T).view(f"<u{width}").reshape(-1)
