"""Texts to values of other types, all at once; those that do not convert are found by halving."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.operators.values import Mask

_ZONE = r"(?:[Zz]|[+-]\d\d(?::?\d\d)?)$"
_DATE = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d"
_TOO_FINE = r"(\.\d{6})\d+"
_SHAPES: tuple[tuple[Any, str], ...] = (
    (pa.types.is_integer, r"^[+-]?(?:\d+|0[xX][0-9a-fA-F]+)$"),
    (pa.types.is_floating, r"(?i)^[+-]?(?:\.?\d|inf|nan)"),
    (pa.types.is_decimal, r"^[+-]?\.?\d"),
    (pa.types.is_timestamp, r"^\d{4}-\d\d-\d\d"),
    (pa.types.is_date, r"^\d{4}-\d\d-\d\d$"),
)


@cache
def _no_text() -> pa.Scalar[Any]:
    """Made when it is needed: Arrow imports pandas, if it is there, to make its first scalar."""
    return pa.scalar(None, pa.string())


def converted(texts: Any, to: pa.DataType) -> tuple[Any, Mask]:
    """The values, and where a text is not one (there the value is null).

    >>> values, bad = converted(pa.array(["1", None, "x"]), pa.int64())
    >>> values.to_pylist(), bad.tolist()
    ([1, None, None], [False, False, True])
    """
    bad = np.zeros(len(texts), bool)
    if texts.type == to:
        return texts, bad
    if not _is_text(to):
        texts = pc.utf8_trim_whitespace(texts)
    try:
        return _cast(texts, to), bad
    except pa.ArrowInvalid:
        coded = texts.dictionary_encode()
        likely = pc.if_else(_shaped(coded.dictionary, to), coded.dictionary, _no_text())
        parts: list[Any] = []
        _halve(likely, to, parts)
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


def _shaped(texts: Any, to: pa.DataType) -> Any:
    """False for texts that are surely no such values: where all are bad, halving would be slow."""
    for is_kind, shape in _SHAPES:
        if is_kind(to):
            return pc.match_substring_regex(texts, pattern=shape)
    return pc.is_valid(texts)


def _is_text(kind: pa.DataType) -> bool:
    is_ = pa.types
    return is_.is_string(kind) or is_.is_large_string(kind) or is_.is_binary(kind)


def _cast(texts: Any, to: pa.DataType) -> Any:
    return _moments(texts, to) if isinstance(to, pa.TimestampType) else texts.cast(to)


def _moments(texts: Any, to: pa.TimestampType[Any, Any]) -> Any:
    """Times with a zone and times without (UTC), also side by side."""
    if to.unit == "us":
        texts = pc.replace_substring_regex(texts, pattern=_TOO_FINE, replacement=r"\1")
    # A date alone ends like a zone does: 2026-01-31.
    zoned = pc.and_(
        pc.match_substring_regex(texts, pattern=_ZONE),
        pc.match_substring_regex(texts, pattern=_DATE),
    )
    with_zone = pc.if_else(zoned, texts, _no_text()).cast(pa.timestamp(to.unit, "UTC"))
    without = pc.if_else(zoned, _no_text(), texts).cast(pa.timestamp(to.unit))
    return pc.coalesce(with_zone, without.cast(with_zone.type)).cast(to)


def look_like_times(texts: Any) -> bool:
    """Whether every text is a time, and there is one."""
    known = texts.drop_null()
    if not len(known):
        return False
    shaped = pc.all(pc.match_substring_regex(known, pattern=_DATE)).as_py()
    return bool(shaped) and not converted(known, pa.timestamp("us", "UTC"))[1].any()
