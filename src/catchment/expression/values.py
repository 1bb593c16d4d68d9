"""Columns and constants during evaluation: their kinds, and bringing several to one type.

A value is an Arrow array, or a scalar where nothing depends on the row; kernels take both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import SchemaError
from catchment.expression.decimals import MOST, digits_of, fitted, number, rescaled, wide
from catchment.expression.decimals import Value as Value
from catchment.expression.nodes import Call, Literal, Node, render

Kernel = Callable[[Call, Sequence[Value]], Value]

INT = pa.int64()
DOUBLE = pa.float64()
BOOL = pa.bool_()
STRING = pa.string()
DATE = pa.date32()
TIME = pa.timestamp("us", "UTC")
NUMBERS = ("int", "decimal", "float", "null")
_UNITS = ("s", "ms", "us", "ns")


def kind(value: Value) -> str:
    """One of null, bool, int, decimal, float, string, time, date; other for what has no operators.

    Decimals that Spark does not have (more than 38 digits, digits before the point alone) count as
    floats. Unsigned numbers of 64 bits count as decimals of 20 digits: int64 cannot hold them.
    """
    return _kind(value.type)


def is_text(of: pa.DataType) -> bool:
    """Whether values of a type are texts, in any of Arrow's layouts."""
    is_ = pa.types
    return is_.is_string(of) or is_.is_large_string(of) or is_.is_string_view(of)


def is_list(of: pa.DataType) -> bool:
    """Whether values of a type are lists, in any of Arrow's layouts but those of views."""
    is_ = pa.types
    return is_.is_list(of) or is_.is_large_list(of) or is_.is_fixed_size_list(of)


def _kind(of: pa.DataType) -> str:
    name = _KINDS.get(of.id, "other")
    if name == "decimal" and of.id != _UNSIGNED:
        precision, scale = digits_of(of)
        return "decimal" if precision <= MOST and scale >= 0 else "float"
    return name


_UNSIGNED = pa.uint64().id
_TYPES: dict[str, tuple[pa.DataType, ...]] = {
    "null": (pa.null(),),
    "bool": (BOOL,),
    "int": (pa.int8(), pa.int16(), pa.int32(), INT, pa.uint8(), pa.uint16(), pa.uint32()),
    "decimal": (pa.uint64(), pa.decimal32(1), pa.decimal64(1), pa.decimal128(1), pa.decimal256(1)),
    "float": (pa.float16(), pa.float32(), DOUBLE),
    "string": (STRING, pa.large_string(), pa.string_view()),
    "time": (TIME,),
    "date": (DATE, pa.date64()),
}
_KINDS: dict[int, str] = {of.id: name for name, types in _TYPES.items() for of in types}
"""Kinds by the numbers that Arrow has for types, whatever their units, zones and digits."""


def mismatch(node: Call, args: Sequence[Value], needs: str, hint: str = "") -> SchemaError:
    """The error for an operation that does not fit the types of its operands."""
    types = " and ".join(dict.fromkeys(str(a.type) for a in args))
    return SchemaError(
        f"{node.op.upper()} needs {needs}, not {types}",
        given=render(node),
        hint=hint or "convert with CAST(... AS ...)",
    )


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


def of_each(value: Value, function: Callable[[Any], Any], to: pa.DataType) -> Value:
    """A Python function of each value that is not null, once for all that are equal."""
    if isinstance(value, pa.Scalar):
        plain = value.as_py()
        return pa.scalar(None if plain is None else function(plain), to)
    coded = value.dictionary_encode()
    return pa.array([function(plain) for plain in coded.dictionary.to_pylist()], to).take(
        coded.indices
    )


def double(value: Value) -> Value:
    return value if value.type == DOUBLE else pc.cast(value, DOUBLE, safe=False)


def integer(value: Value) -> Value:
    return value if value.type == INT else pc.cast(value, INT)


def common(
    node: Call, values: Sequence[Value], operands: Sequence[Node] | None = None
) -> list[Value]:
    """The values in one type that holds them all; `operands` are their nodes if not all are."""
    values = with_decimals(node.args if operands is None else operands, values, whole=False)
    target = common_type(node, values)
    return [convert(v, target) for v in values]


def with_decimals(
    operands: Sequence[Node], values: Sequence[Value], whole: bool = True
) -> Sequence[Value]:
    """The values; where one is a decimal, numbers written out are decimals too, as in Spark.

    Those with a point have the digits written. Whole numbers have, too, where something is
    calculated of them or compared (`whole`): `v + 1` has one digit more than v in front. Elsewhere
    they have the digits of their type, which is INT where that holds them.
    """
    if not any(kind(v) == "decimal" for v in values):
        return values
    given = zip(operands, values, strict=True)
    return [_written(o, v, whole) if isinstance(o, Literal) else v for o, v in given]


_DIGITS = re.compile(r"-?\d+(\.\d+)?")


def _written(literal: Literal, value: Value, whole: bool) -> Value:
    text = repr(literal.value)
    if literal.kind not in ("int", "float") or not _DIGITS.fullmatch(text):
        return value
    if literal.kind == "int" and not whole:
        return pc.cast(value, pa.int32()) if -(2**31) <= value.as_py() < 2**31 else value
    front, _, behind = text.lstrip("-").partition(".")
    unscaled, scale = int(front + behind), len(behind)
    precision = max(len(str(unscaled)), scale)
    unscaled = -unscaled if text.startswith("-") else unscaled
    return pa.scalar(number(unscaled, scale), pa.decimal128(precision, scale))


def convert(value: Value, to: pa.DataType) -> Value:
    if value.type == to:
        return value
    if to == DOUBLE:
        return double(value)
    if to == INT:
        return integer(value)
    if pa.types.is_timestamp(to):
        return _moments(value, to)
    if pa.types.is_decimal(to) and kind(value) in ("int", "decimal"):
        scale = max(digits_of(value.type)[1], digits_of(to)[1])
        return fitted(rescaled(wide(value), scale), to)
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
    if kinds <= {"int", "decimal"}:
        digits = [digits_of(t) for t in types]
        scale = max(s for _, s in digits)
        whole = max(p - s for p, s in digits)
        # Spark keeps the digits before the point, and of the others what there is room for.
        return pa.decimal128(min(whole + scale, MOST), min(scale, max(MOST - whole, 0)))
    if kinds <= {"int", "decimal", "float"}:
        return DOUBLE
    if kinds == {"string"}:
        return pa.large_string()
    if kinds <= {"time", "date"}:
        units = [t.unit for t in types if isinstance(t, pa.TimestampType)]
        return pa.timestamp(max(units, key=_UNITS.index), "UTC") if units else DATE
    raise mismatch(node, values, "values of one type")
