"""Texts to values of other types, all at once; those that do not convert are found by halving."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]

_ZONE = r"(?:[Zz]|[+-]\d\d(?::?\d\d)?)$"
_DATE = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d"
_TOO_FINE = r"(\.\d{6})\d+"


def converted(texts: Any, to: pa.DataType) -> tuple[Any, Mask]:
    """The values, and where a text is not one (there the value is null).

    >>> values, bad = converted(pa.array(["1", None, "x"]), pa.int64())
    >>> values.to_pylist(), bad.tolist()
    ([1, None, None], [False, False, True])
    """
    bad = np.zeros(len(texts), bool)
    if texts.type == to:
        return texts, bad
    try:
        return _cast(texts, to), bad
    except pa.ArrowInvalid:
        coded = texts.dictionary_encode()
        parts: list[Any] = []
        _halve(coded.dictionary, to, parts)
        values = pa.concat_arrays(parts)
        failed = pc.and_(pc.is_null(values), pc.is_valid(coded.dictionary))
        wrong = failed.take(coded.indices).fill_null(False)
        return values.take(coded.indices), wrong.to_numpy(zero_copy_only=False)


def _halve(texts: Any, to: pa.DataType, out: list[Any]) -> None:
    try:
        out.append(_cast(texts, to))
    except pa.ArrowInvalid:
        if len(texts) == 1:
            out.append(pa.array([None], to))
            return
        middle = len(texts) // 2
        _halve(texts[:middle], to, out)
        _halve(texts[middle:], to, out)


def _cast(texts: Any, to: pa.DataType) -> Any:
    if pa.types.is_string(to) or pa.types.is_large_string(to) or pa.types.is_binary(to):
        return texts.cast(to)
    trimmed: Any = pc.utf8_trim_whitespace(texts)
    return _moments(trimmed, to) if isinstance(to, pa.TimestampType) else trimmed.cast(to)


def _moments(texts: Any, to: pa.TimestampType[Any, Any]) -> Any:
    """Times with a zone and times without (UTC), also side by side."""
    if to.unit == "us":
        texts = pc.replace_substring_regex(texts, pattern=_TOO_FINE, replacement=r"\1")
    # A date alone ends like a zone does: 2026-01-31.
    zoned = pc.and_(
        pc.match_substring_regex(texts, pattern=_ZONE),
        pc.match_substring_regex(texts, pattern=_DATE),
    )
    none = pa.scalar(None, pa.string())
    with_zone = pc.if_else(zoned, texts, none).cast(pa.timestamp(to.unit, "UTC"))
    without = pc.if_else(zoned, none, texts).cast(pa.timestamp(to.unit))
    return pc.coalesce(with_zone, without.cast(with_zone.type)).cast(to)


def look_like_times(texts: Any) -> bool:
    """Whether every text is a time, and there is one."""
    known = texts.drop_null()
    if not len(known):
        return False
    shaped = pc.all(pc.match_substring_regex(known, pattern=_DATE)).as_py()
    return bool(shaped) and not converted(known, pa.timestamp("us", "UTC"))[1].any()
