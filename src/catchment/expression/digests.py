"""hash, md5, sha2 and crc32: the same numbers and texts as in Spark."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import QueryError
from catchment.expression.nodes import Call, render
from catchment.expression.values import (
    INT,
    STRING,
    TIME,
    Value,
    convert,
    kind,
    mismatch,
    need,
    null,
    of_each,
)

_SEED = 42
_Words = np.ndarray[Any, np.dtype[np.uint32]]


def md5(node: Call, args: Sequence[Value]) -> Value:
    return _digest(node, args, hashlib.md5)


_SHA2 = {
    0: hashlib.sha256,
    224: hashlib.sha224,
    256: hashlib.sha256,
    384: hashlib.sha384,
    512: hashlib.sha512,
}


def sha2(node: Call, args: Sequence[Value]) -> Value:
    bits = args[1].as_py()
    if bits not in _SHA2:
        hint = "bits are 224, 256, 384 or 512"
        raise QueryError("sha2 has the wrong arguments", given=render(node), hint=hint)
    return _digest(node, args[:1], _SHA2[bits])


def _digest(node: Call, args: Sequence[Value], function: Callable[[bytes], Any]) -> Value:
    need(node, args, ("string", "null"), "text")
    if kind(args[0]) == "null":
        return null(STRING)
    return of_each(args[0], lambda text: function(text.encode()).hexdigest(), STRING)


def crc32(node: Call, args: Sequence[Value]) -> Value:
    need(node, args, ("string", "null"), "text")
    if kind(args[0]) == "null":
        return null(INT)
    return of_each(args[0], lambda text: zlib.crc32(text.encode()), INT)


def hashed(node: Call, args: Sequence[Value]) -> Value:
    """hash: Murmur3 with 32 bits of each value in turn; nulls change nothing."""
    lengths = [len(arg) for arg in args if not isinstance(arg, pa.Scalar)]
    rows = lengths[0] if lengths else 1
    made = np.full(rows, _SEED, np.uint32)
    repeat: Any = pa.repeat
    with np.errstate(over="ignore"):
        for arg in args:
            whole = repeat(arg, rows) if isinstance(arg, pa.Scalar) else arg
            if kind(whole) == "null":
                continue
            found = _hashed(node, args, whole, made)
            there = pc.is_valid(whole).to_numpy(zero_copy_only=False)
            made = np.where(there, found, made).astype(np.uint32)
    numbers: Value = pc.cast(pa.array(made.view(np.int32)), INT)
    return numbers if lengths else numbers[0]


def _hashed(node: Call, args: Sequence[Value], values: Any, seeds: _Words) -> _Words:
    of = kind(values)
    if of == "string":
        return _of_texts(values, seeds)
    if of == "float":
        return _of_floats(values, seeds)
    if of == "time":
        return _of_longs(_ints(pc.cast(convert(values, TIME), INT)), seeds)
    if of == "date":
        days = pc.cast(pc.cast(values, pa.date32()), pa.int32())
        return _of_words(_ints(days).astype(np.int32).view(np.uint32), seeds)
    if of == "bool" or (of == "int" and values.type != INT and values.type != pa.uint32()):
        return _of_words(_ints(pc.cast(values, pa.int32())).astype(np.int32).view(np.uint32), seeds)
    if of == "int":
        return _of_longs(_ints(pc.cast(values, INT)), seeds)
    raise mismatch(node, args, "numbers, texts, times or conditions")


def _ints(values: Any) -> Any:
    return pc.fill_null(values, 0).to_numpy(zero_copy_only=False)


def _of_floats(values: Any, seeds: _Words) -> _Words:
    doubles = pc.fill_null(values, 0.0).to_numpy(zero_copy_only=False)
    doubles = np.where(doubles == 0, 0, doubles).astype(doubles.dtype)  # -0.0 is 0.0
    doubles = np.where(np.isnan(doubles), np.nan, doubles).astype(doubles.dtype)
    if doubles.dtype == np.float64:
        return _of_longs(doubles.view(np.int64), seeds)
    return _of_words(doubles.astype(np.float32).view(np.uint32), seeds)


def _turned(word: _Words, by: int) -> _Words:
    return (word << np.uint32(by)) | (word >> np.uint32(32 - by))


def _mixed(seeds: _Words, words: _Words) -> _Words:
    words = _turned(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _turned(seeds ^ words, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(made: _Words, length: Any) -> _Words:
    made = made ^ np.asarray(length, np.uint32)
    made = (made ^ (made >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    made = (made ^ (made >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return made ^ (made >> np.uint32(16))


def _of_words(words: _Words, seeds: _Words) -> _Words:
    return _finished(_mixed(seeds, words), 4)


def _of_longs(values: Any, seeds: _Words) -> _Words:
    whole = values.view(np.uint64)
    low = (whole & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    high = (whole >> np.uint64(32)).astype(np.uint32)
    return _finished(_mixed(_mixed(seeds, low), high), 8)


def _of_texts(values: Any, seeds: _Words) -> _Words:
    """Four bytes at a time, then byte by byte (as numbers with a sign): each once for all rows."""
    coded = pc.fill_null(pc.cast(values, STRING), "").dictionary_encode()
    texts = [text.encode() for text in coded.dictionary.to_pylist()]
    codes = coded.indices.to_numpy(zero_copy_only=False)
    sizes = np.array([len(text) for text in texts], np.int64)[codes]
    made = seeds.copy()
    for begin in range(0, int(sizes.max(initial=0)), 4):
        four = np.array(
            [int.from_bytes(text[begin : begin + 4].ljust(4, b"\0"), "little") for text in texts],
            np.uint32,
        )[codes]
        full = sizes >= begin + 4
        made = np.where(full, _mixed(made, four), made).astype(np.uint32)
        for place in range(4):
            byte = (four >> np.uint32(8 * place)).astype(np.uint8).view(np.int8)
            inside = ~full & (sizes > begin + place)
            word = byte.astype(np.int32).view(np.uint32)
            made = np.where(inside, _mixed(made, word), made).astype(np.uint32)
    return _finished(made, sizes.astype(np.uint32))
