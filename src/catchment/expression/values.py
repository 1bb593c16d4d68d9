"""Columns and constants during evaluation: their kinds, and bringing several to one type.

A value is an Arrow array, or a scalar where nothing depends on the row; kernels take both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import SchemaError
from catchment.expression.nodes import Call, render

Value = Any
"""pa.Array or pa.Scalar (the stubs' overloads know no such pair)."""

Kernel = Callable[[Call, Sequence[Value]], Value]

INT = pa.int64()
DOUBLE = pa.float64()
BOOL = pa.bool_()
STRING = pa.string()
DATE = pa.date32()
TIME = pa.timestamp("us", "UTC")
NUMBERS = ("int", "float", "null")
_UNITS = ("s", "ms", "us", "ns")


def kind(value: Value) -> str:
    """One of null, bool, int, float, string, time, date; other for what has no operators."""
    return _kind(value.type)


def _kind(of: pa.DataType) -> str:
    is_ = pa.types
    if is_.is_integer(of):
        return "int"
    if is_.is_floating(of) or is_.is_decimal(of):
        return "float"
    if is_.is_string(of) or is_.is_large_string(of) or is_.is_string_view(of):
        return "string"
    named = ((is_.is_boolean, "bool"), (is_.is_timestamp, "time"), (is_.is_date, "date"))
    for test, name in (*named, (is_.is_null, "null")):
        if test(of):
            return name
    return "other"


def mismatch(node: Call, args: Sequence[Value], needs: str, hint: str = "") -> SchemaError:
    """The error for an operation that does not fit the types of its operands."""
    types = " and ".join(dict.fromkeys(str(a.type) for a in args))
    return SchemaError(
        f"{node.op.upper()} needs {needs}, not {types}", given=render(node),
        hint=hint or "convert with CAST(... AS ...)",
    )  # fmt: skip


def need(node: Call, args: Sequence[Value], kinds: Sequence[str], needs: str) -> None:
    if any(kind(a) not in kinds for a in args):
        raise mismatch(node, args, needs)


def null(of: pa.DataType) -> Value:
    return pa.scalar(None, of)


def where(condition: Value, then: Value, otherwise: Value) -> Value:
    """`then` where the condition holds, `otherwise` where it does not or is null."""
    if condition.type != BOOL:
        condition = pc.cast(condition, BOOL)
    if not isinstance(condition, pa.Array) or condition.null_count:
        condition = pc.coalesce(condition, pa.scalar(False))
    return pc.if_else(condition, then, otherwise)


def decoded(array: Value) -> Value:
    """A column without dictionary or run-end encoding, and of a string type that has kernels."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_run_end_encoded(array.type):
        array = pc.call_function("run_end_decode", [array])
    return pc.cast(array, STRING) if pa.types.is_string_view(array.type) else array


def double(value: Value) -> Value:
    return value if value.type == DOUBLE else pc.cast(value, DOUBLE, safe=False)


def integer(value: Value) -> Value:
    """As int64; an unsigned number that does not fit is null."""
    if value.type == INT:
        return value
    if pa.types.is_uint64(value.type):
        value = where(pc.greater(value, pa.scalar(2**63 - 1, pa.uint64())), null(value.type), value)
    return pc.cast(value, INT)


def common(node: Call, values: Sequence[Value]) -> list[Value]:
    """The values in one type that holds them all."""
    target = common_type(node, values)
    return [convert(v, target) for v in values]


def convert(value: Value, to: pa.DataType) -> Value:
    if value.type == to:
        return value
    if to == DOUBLE:
        return double(value)
    if to == INT:
        return integer(value)
    if pa.types.is_timestamp(to):
        return _moments(value, to)
    return pc.cast(value, to)


def _moments(value: Value, to: pa.DataType) -> Value:
    """As timestamps in UTC; beyond the years that nanoseconds reach, the last instant they do."""
    if kind(value) == "date":
        value = pc.cast(value, pa.timestamp("s"))
    try:
        return pc.cast(value, to)
    except pa.ArrowInvalid:
        coarse = pc.cast(pc.cast(value, TIME, safe=False), INT)
        reach = (2**63 - 1) // 1000
        coarse = where(pc.greater(coarse, pa.scalar(reach)), pa.scalar(reach), coarse)
        coarse = where(pc.less(coarse, pa.scalar(-reach)), pa.scalar(-reach), coarse)
        return pc.cast(pc.cast(coarse, TIME), to, safe=False)


def common_type(node: Call, values: Sequence[Value]) -> pa.DataType:
    types = list(dict.fromkeys(v.type for v in values if not pa.types.is_null(v.type)))
    if len(types) < 2:
        return types[0] if types else pa.null()
    kinds = {_kind(t) for t in types}
    if kinds == {"int"}:
        return INT
    if kinds <= {"int", "float"}:
        return DOUBLE
    if kinds == {"string"}:
        return pa.large_string()
    if kinds <= {"time", "date"}:
        units = [t.unit for t in types if isinstance(t, pa.TimestampType)]
        return pa.timestamp(max(units, key=_UNITS.index), "UTC") if units else DATE
    raise mismatch(node, values, "values of one type")
