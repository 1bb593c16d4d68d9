"""Plain data as few bytes: numbers, texts, lists, tuples, dicts and arrays."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.errors import DataError

_SMALL = 200
"""Whole numbers below it are one byte; the bytes from it on tell what follows."""
_INT, _NEGATIVE, _NONE, _TRUE, _FALSE, _FLOAT = range(_SMALL, _SMALL + 6)
_TEXT, _BYTES, _LIST, _TUPLE, _DICT, _INTS, _FLOATS = range(_SMALL + 6, _SMALL + 13)
_WORTH = 64
"""Bytes below which packing does not pay."""


def dump(value: Any) -> bytes:
    """Plain data as bytes."""
    out = bytearray()
    _write(value, out)
    return bytes(out)


def load(data: bytes) -> Any:
    """The inverse of `dump`.

    >>> load(dump({"a": [1, -70000, None, (2.5, "x")]}))
    {'a': [1, -70000, None, (2.5, 'x')]}
    """
    try:
        value, end = _read(data, 0)
    except (IndexError, struct.error, ValueError, OSError) as error:
        raise DataError("these bytes are cut short", given=f"{len(data)} bytes") from error
    if end != len(data):
        raise DataError("bytes are left over", given=f"{len(data) - end} of {len(data)}")
    return value


def _write(value: Any, out: bytearray) -> None:
    if value is None or value is True or value is False:
        out.append(_NONE if value is None else _TRUE if value else _FALSE)
    elif isinstance(value, int | np.integer):
        _write_int(int(value), out)
    elif isinstance(value, float):
        out.append(_FLOAT)
        out += struct.pack("<d", value)
    elif isinstance(value, str | bytes):
        body = value.encode() if isinstance(value, str) else value
        out.append(_TEXT if isinstance(value, str) else _BYTES)
        _varint(len(body), out)
        out += body
    elif isinstance(value, np.ndarray):
        _write_array(value, out)
    else:
        _write_many(value, out)


def _write_int(value: int, out: bytearray) -> None:
    if 0 <= value < _SMALL:
        out.append(value)
        return
    out.append(_INT if value >= 0 else _NEGATIVE)
    _varint(value if value >= 0 else -1 - value, out)


def _write_many(value: Any, out: bytearray) -> None:
    kinds: dict[type, int] = {list: _LIST, tuple: _TUPLE, dict: _DICT}
    kind = kinds.get(type(value))
    if kind is None:
        raise TypeError(f"no plain data: {type(value).__name__}")
    out.append(kind)
    _varint(len(value), out)
    for item in value.items() if kind == _DICT else value:
        if kind == _DICT:
            _write(item[0], out)
            _write(item[1], out)
        else:
            _write(item, out)


def _varint(value: int, out: bytearray) -> None:
    while value > 127:
        out.append(128 | (value & 127))
        value >>= 7
    out.append(value)


def _write_array(values: np.ndarray[Any, Any], out: bytearray) -> None:
    """Whole numbers as differences of as few bytes as they need; the bytes of a place together."""
    if values.dtype == np.float64:
        out.append(_FLOATS)
        _varint(len(values), out)
        _pack(_shuffled(values.view(np.uint64), 8), out)
        return
    ints = values.astype(np.int64, copy=False)
    steps = np.diff(ints, prepend=np.int64(0))
    signs = ((steps << 1) ^ (steps >> 63)).view(np.uint64)
    base = int(signs[0]) if len(signs) else 0
    rest = signs[1:]
    width = _width(int(rest.max()) if len(rest) else 0)
    out.append(_INTS)
    _varint(len(ints), out)
    _varint(base, out)
    out.append(width)
    if width:
        _pack(_shuffled(rest, width), out)


def _width(largest: int) -> int:
    return next((w for w in (0, 1, 2, 4) if largest < 1 << 8 * w), 8)


def _shuffled(values: np.ndarray[Any, Any], width: int) -> bytes:
    narrow = np.ascontiguousarray(values).astype(f"<u{width}", copy=False)
    return bytes(narrow.view(np.uint8).reshape(-1, width).T.tobytes())


def _pack(body: bytes, out: bytearray) -> None:
    packed = pa.Codec("zstd").compress(body, asbytes=True) if len(body) > _WORTH else body
    if len(packed) < len(body):
        out.append(1)
        _varint(len(body), out)
        body = packed
    else:
        out.append(0)
    _varint(len(body), out)
    out += body


def _read(data: bytes, at: int) -> tuple[Any, int]:
    tag = data[at]
    at += 1
    if tag < _SMALL:
        return tag, at
    if tag in _FIXED:
        return _FIXED[tag], at
    if tag == _FLOAT:
        return struct.unpack_from("<d", data, at)[0], at + 8
    size, at = _read_varint(data, at)
    if tag in (_INT, _NEGATIVE):
        return (size if tag == _INT else -1 - size), at
    if tag in (_TEXT, _BYTES):
        if at + size > len(data):
            raise IndexError
        body = data[at : at + size]
        return (body.decode() if tag == _TEXT else body), at + size
    if tag in (_INTS, _FLOATS):
        return _read_array(tag, size, data, at)
    return _read_many(tag, size, data, at)


_FIXED = {_NONE: None, _TRUE: True, _FALSE: False}


def _read_many(tag: int, size: int, data: bytes, at: int) -> tuple[Any, int]:
    items = []
    for _ in range(2 * size if tag == _DICT else size):
        item, at = _read(data, at)
        items.append(item)
    if tag == _DICT:
        return dict(zip(items[::2], items[1::2], strict=True)), at
    if tag not in (_LIST, _TUPLE):
        raise ValueError(tag)
    return (items if tag == _LIST else tuple(items)), at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _read_array(tag: int, size: int, data: bytes, at: int) -> tuple[Any, int]:
    if tag == _FLOATS:
        body, at = _unpack(data, at)
        return _unshuffled(body, 8).view(np.float64)[:size], at
    base, at = _read_varint(data, at)
    width = data[at]
    at += 1
    rest = np.zeros(max(size - 1, 0), np.uint64)
    if width:
        body, at = _unpack(data, at)
        rest = _unshuffled(body, width).astype(np.uint64)
    signs = np.concatenate([np.array([base], np.uint64), rest])[:size]
    steps = (signs >> np.uint64(1)).view(np.int64) ^ -(signs & np.uint64(1)).astype(np.int64)
    return np.cumsum(steps), at


def _unshuffled(body: bytes, width: int) -> np.ndarray[Any, Any]:
    planes = np.frombuffer(body, np.uint8).reshape(width, -1)
    return np.ascontiguousarray(planes.T).view(f"<u{width}").reshape(-1)


def _unpack(data: bytes, at: int) -> tuple[bytes, int]:
    packed = data[at]
    at += 1
    whole = 0
    if packed:
        whole, at = _read_varint(data, at)
    size, at = _read_varint(data, at)
    body = data[at : at + size]
    if len(body) < size:
        raise IndexError
    if packed:
        body = pa.Codec("zstd").decompress(body, decompressed_size=whole, asbytes=True)
    return body, at + size
