"""Arithmetic and functions of numbers and texts.

Whole numbers are int64, decimals have the types that Spark gives them (`decimals.py`), others are
doubles; unsigned numbers of 64 bits are decimals of 20 digits. What has no result (a division by
zero, an overflow, the logarithm of a negative number) is null, so that no event is ever fatal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.expression import decimals
from catchment.expression.nodes import Call, render
from catchment.expression.values import (
    DOUBLE,
    INT,
    NUMBERS,
    STRING,
    Value,
    double,
    integer,
    kind,
    mismatch,
    need,
    null,
    of_each,
    where,
    with_decimals,
)

_WIDE = pa.decimal256(19, 0)
_CHECKED: dict[str, tuple[Any, Any]] = {
    "+": (pc.add_checked, pc.add),
    "-": (pc.subtract_checked, pc.subtract),
    "*": (pc.multiply_checked, pc.multiply),
}


# Made when they are needed: Arrow imports pandas, if it is there, to make its first scalar.


@cache
def _zero() -> pa.Scalar[Any]:
    return pa.scalar(0.0)


@cache
def _smallest() -> pa.Scalar[Any]:
    return pa.scalar(-(2**63), INT)


def _whole(args: Sequence[Value]) -> bool:
    return all(kind(a) in ("int", "null") for a in args)


def _decimals(node: Call, args: Sequence[Value]) -> tuple[Value, Value] | None:
    """Two operands, of which one is a decimal and none a double; None where it is not so."""
    left, right = with_decimals(node.args, args)
    kinds = {kind(left), kind(right)}
    if "decimal" not in kinds or not kinds <= {"decimal", "int", "null"}:
        return None
    known = left.type if kind(left) == "decimal" else right.type
    left, right = (null(known) if kind(v) == "null" else v for v in (left, right))
    return left, right


def arithmetic(node: Call, args: Sequence[Value]) -> Value:
    """+, - and *."""
    if node.op == "-" and all(kind(arg) in ("time", "date") for arg in args):
        later, earlier = (render(arg) for arg in node.args)
        hint = f"write timestampdiff(SECOND, {earlier}, {later}), or datediff for days"
        raise mismatch(node, args, "numbers", hint)
    if any(kind(arg) in ("time", "date") for arg in args):
        raise mismatch(node, args, "numbers", "write ts + INTERVAL '5' MINUTES")
    need(node, args, NUMBERS, "numbers")
    exact = _decimals(node, args)
    if exact is not None:
        left, right = exact
        return decimals.multiply(left, right) if node.op == "*" else decimals.add(*exact, node.op)
    checked, plain = _CHECKED[node.op]
    if not _whole(args):
        return plain(*[double(a) for a in args])
    left, right = (integer(a) for a in args)
    try:
        return checked(left, right)
    except pa.ArrowInvalid:
        wide = plain(pc.cast(left, _WIDE), pc.cast(right, _WIDE))
        return narrowed(wide)


def narrowed(wide: Value) -> Value:
    """Decimals without digits behind the point as int64; null where they do not fit."""
    low, high = (pc.cast(pa.scalar(v, _WIDE), wide.type) for v in (-(2**63), 2**63 - 1))
    outside = pc.or_(pc.less(wide, low), pc.greater(wide, high))
    return pc.cast(where(outside, null(wide.type), wide), INT)


def divide(node: Call, args: Sequence[Value]) -> Value:
    need(node, args, NUMBERS, "numbers")
    exact = _decimals(node, args)
    if exact is not None:
        return decimals.divide(*exact)
    left, right = (double(a) for a in args)
    return pc.divide(left, where(pc.equal(right, _zero()), null(DOUBLE), right))


def remainder(node: Call, args: Sequence[Value]) -> Value:
    """%, with the sign of the dividend."""
    need(node, args, NUMBERS, "numbers")
    exact = _decimals(node, args)
    if exact is not None:
        return decimals.remainder(*exact)
    if not _whole(args):
        return _float_remainder(*(double(a) for a in args))
    left, right = (integer(a) for a in args)
    right = where(pc.equal(right, pa.scalar(0)), null(INT), right)
    right = where(pc.equal(right, pa.scalar(-1)), pa.scalar(1), right)  # -2**63 / -1 overflows
    return pc.subtract(left, pc.multiply(pc.divide(left, right), right))


def _float_remainder(left: Value, right: Value) -> Value:
    right = where(pc.equal(right, _zero()), null(DOUBLE), right)
    one = pa.scalar(1.0)
    with np.errstate(invalid="ignore"):
        rest = np.fmod(*(_numpy(pc.coalesce(v, one)) for v in (left, right)))
    missing = pc.or_(pc.is_null(left), pc.is_null(right))
    result = pa.array(rest) if rest.ndim else pa.scalar(rest.item())
    return pc.if_else(missing, null(DOUBLE), result)


def _numpy(value: Value) -> Any:
    return value.to_numpy() if isinstance(value, pa.Array) else np.asarray(value.as_py())


def signed(node: Call, args: Sequence[Value]) -> Value:
    """Unary minus and abs."""
    need(node, args, NUMBERS, "a number")
    if kind(args[0]) == "decimal":
        return (pc.negate if node.op == "neg" else pc.abs)(decimals.in_128_bits(args[0]))
    if not _whole(args):
        return (pc.negate if node.op == "neg" else pc.abs)(double(args[0]))
    kernel = pc.negate_checked if node.op == "neg" else pc.abs_checked
    value = integer(args[0])
    try:
        return kernel(value)
    except pa.ArrowInvalid:
        return kernel(where(pc.equal(value, _smallest()), null(INT), value))


def rounded(node: Call, args: Sequence[Value]) -> Value:
    """round, with halves away from zero."""
    need(node, args, NUMBERS, "a number")
    digits = args[1].as_py() if len(args) > 1 else 0
    if kind(args[0]) == "decimal":
        return decimals.rounded(args[0], digits)
    whole = _whole(args[:1])
    value = integer(args[0]) if whole else double(args[0])
    if whole and digits >= 0:
        return value
    if whole and digits < -18:
        return where(pc.is_null(value), value, pa.scalar(0))
    try:
        return pc.round(value, ndigits=digits, round_mode="half_towards_infinity")
    except pa.ArrowInvalid:  # a whole number rounds to more than 64 bits
        return to_int(pc.round(double(value), ndigits=digits, round_mode="half_towards_infinity"))


def stepped(node: Call, args: Sequence[Value]) -> Value:
    """floor and ceil, to int64; of decimals, to decimals without digits behind the point."""
    need(node, args, NUMBERS, "a number")
    if kind(args[0]) == "decimal":
        return decimals.stepped(args[0], up=node.op == "ceil")
    if _whole(args):
        return integer(args[0])
    return to_int((pc.floor if node.op == "floor" else pc.ceil)(double(args[0])))


def to_int(value: Value) -> Value:
    """A double without its fraction; null where it does not fit, NaN among it."""
    value = pc.trunc(value)
    fits = pc.and_(
        pc.greater_equal(value, pa.scalar(-(2.0**63))), pc.less(value, pa.scalar(2.0**63))
    )
    return pc.cast(where(fits, value, null(DOUBLE)), INT)


def _of_double(kernel: Callable[..., Any]) -> Callable[[Call, Sequence[Value]], Value]:
    def run(node: Call, args: Sequence[Value]) -> Value:
        need(node, args, NUMBERS, "numbers" if len(args) > 1 else "a number")
        return kernel(*(double(a) for a in args))

    return run


def _ln(value: Value) -> Value:
    return pc.ln(where(pc.less_equal(value, _zero()), null(DOUBLE), value))


sqrt = _of_double(pc.sqrt)
exponential = _of_double(pc.exp)
power = _of_double(pc.power)
ln = _of_double(_ln)
log = _of_double(lambda base, value: pc.divide(_ln(value), _ln(base)))


def _of_text(kernel: Callable[..., Any], to: pa.DataType) -> Callable[..., Value]:
    def run(node: Call, args: Sequence[Value]) -> Value:
        need(node, args, ("string", "null"), "text")
        if kind(args[0]) == "null":
            return null(to)
        result = kernel(args[0])
        return result if to == STRING or result.type == to else pc.cast(result, to)

    return run


def _in_case(kernel: Callable[..., Any], exactly: Callable[[str], str]) -> Callable[[Value], Any]:
    """Arrow gives each letter for one, Spark also two for one: ß is SS in capitals."""

    def run(value: Value) -> Any:
        if isinstance(value, pa.Scalar) or not pc.all(pc.string_is_ascii(value)).as_py():
            return of_each(value, exactly, value.type)
        return kernel(value)

    return run


lower = _of_text(_in_case(pc.utf8_lower, str.lower), STRING)
upper = _of_text(_in_case(pc.utf8_upper, str.upper), STRING)
length = _of_text(pc.utf8_length, INT)
