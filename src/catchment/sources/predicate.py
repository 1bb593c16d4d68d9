"""The part of a condition that a file's statistics can rule out row groups by.

What is pushed down keeps every row that the condition keeps, and maybe more: whatever is not
understood, or might be judged otherwise by Arrow than by SQL, is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import and_, or_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.expression.nodes import Call, Column, Literal, Node
from catchment.expression.parsing import parse

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_BELOW_NAN = ("=", "<", "<=", "in")
"""Comparisons that NaN, the largest of all numbers, never meets."""
_EXACT = 1 << 53
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NANOS = (1 << 63) // 1000 - 1


def pushed(where: str, schema: pa.Schema) -> pc.Expression | None:
    """A condition that every row has that meets `where`; None when nothing can be said.

    >>> pushed("v < 3 AND sqrt(v) > 1", pa.schema({"v": pa.int64()}))
    <pyarrow.compute.Expression (v < 3)>
    """
    found: pc.Expression | None = _pushed(parse(where), schema, frozenset())
    return found


def _pushed(node: Node, schema: pa.Schema, numbers: frozenset[str]) -> Any:
    """`numbers` are columns that cannot be NaN in any row that meets the whole condition."""
    if not isinstance(node, Call):
        return None
    if node.op == "and":
        numbers |= {name for arg in node.args if (name := _bounded(arg))}
        parts = [_pushed(arg, schema, numbers) for arg in node.args]
        known = [part for part in parts if part is not None]
        return reduce(and_, known) if known else None
    if node.op == "or":
        parts = [_pushed(arg, schema, numbers) for arg in node.args]
        return None if any(part is None for part in parts) else reduce(or_, parts)
    if node.op == "not":
        inner = node.args[0]
        null = isinstance(inner, Call) and inner.op == "is null"
        found = _pushed(inner, schema, numbers) if null else None
        return None if found is None else ~found
    column = _column(node, schema)
    if column is None:
        return None
    if node.op == "is null":
        return pc.field(column.name).is_null()
    if node.op in _COMPARE or node.op == "in":
        return _compared(node, column, numbers)
    return None


def _bounded(node: Node) -> str | None:
    """The column that a condition keeps from being NaN."""
    if not isinstance(node, Call) or node.op not in _BELOW_NAN:
        return None
    first, *rest = node.args
    fixed = all(isinstance(arg, Literal) for arg in rest)
    return first.name if isinstance(first, Column) and fixed else None


def _column(node: Call, schema: pa.Schema) -> pa.Field[Any] | None:
    first = node.args[0] if node.args else None
    if not isinstance(first, Column) or len(schema.get_all_field_indices(first.name)) != 1:
        return None
    return schema.field(first.name)


def _compared(node: Call, column: pa.Field[Any], numbers: frozenset[str]) -> Any:
    values = []
    for arg in node.args[1:]:
        if not isinstance(arg, Literal):
            return None
        if arg.value is None:
            if node.op == "in":
                continue  # never equal to anything, so the others decide
            return None
        value = _scalar(arg, column.type)
        if value is None:
            return None
        values.append(value)
    if not values:
        return None
    field: Any = pc.field(column.name)
    if node.op == "in":
        found = _among(field, values, column.type)
    else:
        found = _COMPARE[node.op](field, pc.scalar(values[0]))
    # Statistics pass over NaN, which SQL holds to be larger than every number.
    sure = node.op in _BELOW_NAN or column.name in numbers or not pa.types.is_floating(column.type)
    return found if sure else None


def _among(field: Any, values: list[Any], kind: pa.DataType) -> Any:
    if not pa.types.is_floating(kind):
        return field.isin(pa.array([value.as_py() for value in values], kind))
    low = min(values, key=lambda value: value.as_py())  # isin holds -0.0 and 0.0 apart
    high = max(values, key=lambda value: value.as_py())
    return (field >= pc.scalar(low)) & (field <= pc.scalar(high))


def _scalar(literal: Literal, kind: pa.DataType) -> Any:
    """A constant in the type of the column; None unless it is exactly the same value there."""
    value: Any = literal.value
    is_ = pa.types
    if is_.is_integer(kind) and literal.kind in ("int", "float"):
        return _whole(value, kind)
    if is_.is_float64(kind) or is_.is_float32(kind):
        return _real(value, kind) if literal.kind in ("int", "float") else None
    if is_.is_string(kind) or is_.is_large_string(kind):
        return pa.scalar(value, kind) if literal.kind == "string" else None
    if is_.is_boolean(kind):
        return pa.scalar(value, kind) if literal.kind == "bool" else None
    if is_.is_date32(kind):
        return pa.scalar(value, kind) if literal.kind == "date" else None
    if isinstance(kind, pa.TimestampType) and literal.kind in ("time", "date"):
        return _moment(value, kind)
    return None


def _whole(value: float, kind: pa.DataType) -> Any:
    if isinstance(value, float) and (abs(value) > _EXACT or not value.is_integer()):
        return None
    half = 1 << (kind.bit_width - 1)
    low, high = (-half, half) if pa.types.is_signed_integer(kind) else (0, 2 * half)
    return pa.scalar(int(value), kind) if low <= value < high else None


def _real(value: float, kind: pa.DataType) -> Any:
    if isinstance(value, int) and abs(value) > _EXACT:
        return None
    made = pa.scalar(float(value), kind)
    return made if made.as_py() == value else None


def _moment(value: date, kind: pa.TimestampType[Any, Any]) -> Any:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    micros = (value - _EPOCH) // timedelta(microseconds=1)
    if kind.unit == "us":
        return pa.scalar(micros, kind)
    # Coarser units may not reach as far once converted to microseconds.
    return pa.scalar(micros * 1000, kind) if kind.unit == "ns" and abs(micros) < _NANOS else None
