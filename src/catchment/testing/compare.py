"""Compares the rows an oracle expects with the Arrow table an engine gave."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from catchment.model.duration import instant
from catchment.testing.oracle import Row
from catchment.testing.oracle_functions import Approximately

_IDENTITY = ("window_start", "window_end", "window_index", "revision", "retracted")
_SHOWN = 12


def assert_same(
    expected: Sequence[Mapping[str, Any]],
    actual: pa.Table,
    context: str = "",
    *,
    keys: Sequence[str] | None = None,
    rel: float = 1e-9,
    absolute: float = 0.0,
) -> None:
    """Fails with a readable difference unless both hold the same rows, in any order.

    Rows are matched by key columns (those before `window_start`, unless given), bounds and
    `window_index`. Integers must be equal, floats within `rel` of the larger or `absolute`; NaN
    equals NaN. No row and no column may be missing or surplus, and no two windows given may be
    equal in key, bounds, `window_index` and revision: sinks would take them for one.
    """
    got = rows_of(actual)
    if keys is None:
        columns = list(expected[0]) if expected else []
        keys = columns[: columns.index("window_start")] if "window_start" in columns else []
    wanted = _by_identity([plain(row) for row in expected], keys)
    given = _by_identity(got, keys)
    surplus = [c for c in actual.column_names if expected and c not in expected[0]]
    lines = [f"surplus column: {column}" for column in surplus]
    if "window_start" in actual.column_names:
        lines += [f"{len(s)} rows are one window: {_label(s[0])}" for s in given.values() if s[1:]]
    for identity in sorted(wanted.keys() | given.keys(), key=repr):
        lines += _difference(wanted.get(identity, []), given.get(identity, []), rel, absolute)
    if lines:
        more = [f"... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        head = f"{context + ': ' if context else ''}{len(expected)} rows expected, {len(got)} given"
        raise AssertionError("\n  ".join([head, *lines[:_SHOWN], *more]))


def rows_of(table: pa.Table) -> list[Row]:
    """The rows of a result, times in microseconds."""
    columns: dict[str, list[Any]] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us")).cast(pa.int64())
        columns[name] = column.to_pylist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def plain(row: Mapping[str, Any]) -> Row:
    """The row with its times in microseconds."""
    return {c: instant(v) if isinstance(v, datetime) else v for c, v in row.items()}


_NOTHING = 1e-12
"""What is not told from zero."""


def same(expected: Any, actual: Any, rel: float = 1e-9, absolute: float = 0.0) -> bool:
    """Equality of one value: exact for integers and text, near for floats.

    >>> same(1.0, 1.0 + 1e-12), same(2**60, 2**60 + 1), same(float("nan"), float("nan"))
    (True, False, True)
    """
    if isinstance(expected, Approximately):
        return expected.accepts(actual)
    if expected is None or actual is None:
        return expected is actual
    if isinstance(expected, list) and isinstance(actual, list):
        pairs = zip(expected, actual, strict=False)
        return len(expected) == len(actual) and all(same(*pair, rel, absolute) for pair in pairs)
    if isinstance(expected, dict) and isinstance(actual, dict):
        keys = expected.keys()
        return keys == actual.keys() and all(
            same(expected[key], actual[key], rel, absolute) for key in keys
        )
    if isinstance(expected, bool) or isinstance(actual, bool):
        return bool(expected is actual)
    if isinstance(expected, float) or isinstance(actual, float):
        if not (isinstance(expected, int | float) and isinstance(actual, int | float)):
            return False
        both_nan = math.isnan(expected) and math.isnan(actual)
        # Of what cancels out, rounding may be left.
        allowed = absolute if expected and actual else max(absolute, _NOTHING)
        return both_nan or math.isclose(expected, actual, rel_tol=rel, abs_tol=allowed)
    return bool(expected == actual)


def _by_identity(rows: Sequence[Row], keys: Sequence[str]) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    columns = [*keys, *_IDENTITY]
    for row in rows:
        identity = tuple(_hashable(row.get(column)) for column in columns)
        groups.setdefault(identity, []).append(row)
    return groups


def _hashable(value: Any) -> Any:
    """Equal for equal keys: NaN equals NaN, -0.0 equals 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _difference(wanted: list[Row], given: list[Row], rel: float, absolute: float) -> list[str]:
    """Lines on the rows of one identity, of which a mistake may give several."""
    left = list(given)
    unmatched = []
    for row in wanted:
        match = next((g for g in left if not _unequal(row, g, rel, absolute)), None)
        if match is None:
            unmatched.append(row)
        else:
            left.remove(match)
    lines = []
    for row in unmatched:
        if not left:
            lines.append(f"missing: {_show(row)}")
            continue
        other = left.pop(0)
        for column in _unequal(row, other, rel, absolute):
            value = other.get(column, "no such column")
            lines.append(f"{_label(row)}: {column} expected {row[column]!r}, given {value!r}")
    return lines + [f"surplus: {_show(row)}" for row in left]


def _unequal(row: Row, other: Row, rel: float, absolute: float) -> list[str]:
    return [c for c, v in row.items() if c not in other or not same(v, other[c], rel, absolute)]


def _label(row: Row) -> str:
    columns = list(row)
    until = columns.index("window_start") if "window_start" in columns else 0
    return _show({c: row[c] for c in [*columns[:until], *(i for i in _IDENTITY if i in row)]})


def _show(row: Row) -> str:
    return ", ".join(f"{column}={value!r}" for column, value in row.items())
