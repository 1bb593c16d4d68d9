"""Comparisons, IN, LIKE and the three-valued logic of SQL.

NaN equals NaN and is larger than any other number, as in Spark. Arrow's kernels say false to every
comparison with NaN but <>, so with a right side that has no NaN, `<` and `<=` are already right and
`>` and `>=` are their negations: no further pass over the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.expression import decimals
from catchment.expression.building import FLIPPED
from catchment.expression.nodes import Call
from catchment.expression.values import (
    BOOL,
    DOUBLE,
    INT,
    NUMBERS,
    Value,
    common,
    double,
    kind,
    mismatch,
    need,
    null,
    where,
    with_decimals,
)

_KERNELS = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_WIDE = pa.decimal128(20, 0)
_FEW = 3


def compare(node: Call, args: Sequence[Value]) -> Value:
    left, right = args
    if "null" in (kind(left), kind(right)):
        return null(BOOL)
    if "other" in (kind(left), kind(right)) and left.type != right.type:
        raise mismatch(node, args, "values of one type")
    left, right = _sides(node, left, right)
    if pa.types.is_floating(left.type):
        return _floats(node.op, left, right)
    try:
        return _KERNELS[node.op](left, right)
    except pa.ArrowNotImplementedError as error:
        raise mismatch(node, args, "values that can be compared") from error


def _sides(node: Call, left: Value, right: Value) -> tuple[Value, Value]:
    whole = [pa.types.is_integer(v.type) for v in (left, right)]
    if all(whole) and left.type != right.type and pa.uint64() in (left.type, right.type):
        return pc.cast(left, _WIDE), pc.cast(right, _WIDE)
    if pa.types.is_float16(left.type):
        return double(left), double(right)
    left, right = with_decimals(node.args, (left, right))
    kinds = {kind(left), kind(right)}
    if "decimal" in kinds and kinds <= {"int", "decimal"} and left.type != right.type:
        scale = max(decimals.digits_of(side.type)[1] for side in (left, right))
        return decimals.rescaled(left, scale), decimals.rescaled(right, scale)
    left, right = common(node, (left, right))
    return left, right


def _floats(op: str, left: Value, right: Value) -> Value:
    if op == "<>":
        return pc.invert(_floats("=", left, right))
    if not has_nan(right):
        if op in (">", ">="):
            return pc.invert(_KERNELS["<=" if op == ">" else "<"](left, right))
        return _KERNELS[op](left, right)
    if not has_nan(left):
        return _floats(FLIPPED[op], right, left)
    if op in (">", ">="):
        return _floats(FLIPPED[op], right, left)
    found = pc.is_nan(right) if op == "<=" else pc.and_(pc.is_nan(right), _also(op, left))
    return pc.or_(_KERNELS[op](left, right), found)


def _also(op: str, left: Value) -> Value:
    return pc.is_nan(left) if op == "=" else pc.invert(pc.is_nan(left))


def has_nan(value: Value) -> bool:
    found: Any = pc.is_nan(value)
    return bool((pc.any(found) if isinstance(found, pa.Array) else found).as_py())


def junction(node: Call, args: Sequence[Value]) -> Value:
    kernel = pc.and_kleene if node.op == "and" else pc.or_kleene
    return reduce(kernel, [_truth(node, a, args) for a in args])


def negation(node: Call, args: Sequence[Value]) -> Value:
    return pc.invert(_truth(node, args[0], args))


def _truth(node: Call, value: Value, args: Sequence[Value]) -> Value:
    need(node, args, ("bool", "null"), "conditions")
    return pc.cast(value, BOOL) if kind(value) == "null" else value


def is_null(_: Call, args: Sequence[Value]) -> Value:
    return pc.is_null(args[0])


def contained(node: Call, args: Sequence[Value]) -> Value:
    """IN: null where the value is null, or is not found but the list has a null."""
    value, options = args[0], args[1:]
    hashed = isinstance(value, pa.Array)
    constant = all(isinstance(o, pa.Scalar) for o in options)
    if not hashed or not constant or len(options) < _FEW or kind(value) == "decimal":
        pairs = zip(node.args[1:], options, strict=True)
        equal = [compare(Call("=", (node.args[0], of)), (value, o)) for of, o in pairs]
        return reduce(pc.or_kleene, equal)
    valued = [o for o in options if o.is_valid]
    if not valued or kind(value) == "null":
        return null(BOOL)
    operands = [of for of, o in zip(node.args[1:], options, strict=True) if o.is_valid]
    value, *rest = common(node, (value, *valued), (node.args[0], *operands))
    if value.type == DOUBLE:
        value = pc.add(value, 0.0)  # is_in holds -0.0 and 0.0 apart
    elif kind(value) == "other":
        raise mismatch(node, args, "values that can be compared")
    found = pc.is_in(value, value_set=pa.array([o.as_py() for o in rest], value.type))
    missing = pc.is_null(value) if len(valued) == len(options) else pc.invert(found)
    return pc.if_else(missing, null(BOOL), found)


def equal_null(node: Call, args: Sequence[Value]) -> Value:
    """<=>: whether values are equal, where nulls are equal too."""
    missing = [pc.is_null(arg) for arg in args]
    if "null" in (kind(args[0]), kind(args[1])):
        return pc.and_(*missing)
    equal = compare(Call("=", node.args), args)
    return pc.coalesce(equal, pc.and_(*missing))


def case(node: Call, args: Sequence[Value]) -> Value:
    conditions = args[0:-1:2]
    need(node, conditions, ("bool", "null"), "conditions after WHEN")
    operands = [*node.args[1:-1:2], node.args[-1]]
    values = common(node, [*args[1:-1:2], args[-1]], operands)
    result = values[-1]
    for condition, value in zip(reversed(conditions), reversed(values[:-1]), strict=True):
        result = where(condition, value, result)
    return result


def coalesce(node: Call, args: Sequence[Value]) -> Value:
    return pc.coalesce(*common(node, args))


def nullif(node: Call, args: Sequence[Value]) -> Value:
    equal = compare(Call("=", node.args), args)
    return where(equal, null(args[0].type), args[0])


def extreme(node: Call, args: Sequence[Value]) -> Value:
    """least and greatest: nulls are passed over, NaN is the greatest."""
    need(node, args, (*NUMBERS, "string", "time", "date"), "values with an order")
    values = common(node, args)
    of = values[0].type
    if kind(values[0]) in ("time", "date"):
        whole = INT if pa.types.is_timestamp(of) or pa.types.is_date64(of) else pa.int32()
        return pc.cast(_extreme(node.op, [pc.cast(v, whole) for v in values]), of)
    return values[0] if of == pa.null() else _extreme(node.op, values)


def _extreme(op: str, values: Sequence[Value]) -> Value:
    kernel = pc.min_element_wise if op == "least" else pc.max_element_wise
    result = kernel(*values)
    if op == "greatest" and pa.types.is_floating(result.type):
        for value in values:
            result = where(pc.is_nan(value), pa.scalar(float("nan"), result.type), result)
    return result
