"""Functions of numbers that schools teach, whole quotients and bits. Angles are in radians.

What has no value is null, as everywhere; what is outside of a function's range is NaN, as in Spark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.expression.arithmetic import arithmetic, remainder, to_int
from catchment.expression.nodes import Call
from catchment.expression.values import (
    DOUBLE,
    INT,
    NUMBERS,
    STRING,
    Value,
    double,
    integer,
    kind,
    need,
    null,
    of_each,
    where,
)

_Numbers = Callable[..., Any]


def _by_numpy(function: _Numbers) -> _Numbers:
    """A function of NumPy over values of which some may be null."""

    def run(*values: Value) -> Value:
        missing = [pc.is_null(value) for value in values]
        one = pa.scalar(1.0)
        with np.errstate(all="ignore"):
            found = function(*(_numpy(pc.coalesce(value, one)) for value in values))
        made: Value = pa.array(found) if found.ndim else pa.scalar(found.item(), DOUBLE)
        for nulls in missing:
            made = pc.if_else(nulls, null(DOUBLE), made)
        return made

    return run


def _numpy(value: Value) -> Any:
    if isinstance(value, pa.Array):
        return value.to_numpy(zero_copy_only=False)
    return np.asarray(value.as_py(), np.float64)


def _times(factor: float) -> _Numbers:
    return lambda value: pc.multiply(value, pa.scalar(factor))


def _above(least: float, kernel: _Numbers) -> _Numbers:
    """Null where a value is not above the least that has a logarithm."""
    return lambda value: kernel(where(pc.less_equal(value, pa.scalar(least)), null(DOUBLE), value))


_KERNELS: dict[str, _Numbers] = {
    "sin": pc.sin,
    "cos": pc.cos,
    "tan": pc.tan,
    "asin": pc.asin,
    "acos": pc.acos,
    "atan": pc.atan,
    "atan2": lambda y, x: pc.atan2(pc.add(y, pa.scalar(0.0)), pc.add(x, pa.scalar(0.0))),
    "sinh": _by_numpy(np.sinh),
    "cosh": _by_numpy(np.cosh),
    "tanh": _by_numpy(np.tanh),
    "cbrt": _by_numpy(np.cbrt),
    "expm1": _by_numpy(np.expm1),
    "hypot": _by_numpy(np.hypot),
    "degrees": _times(57.29577951308232),
    "radians": _times(0.017453292519943295),
    "log10": _above(0.0, pc.log10),
    "log2": _above(0.0, pc.log2),
    "log1p": _above(-1.0, pc.log1p),
    "rint": lambda value: pc.round(value, 0, "half_to_even"),
    "sign": lambda value: pc.cast(pc.sign(value), DOUBLE),
}
OPS = tuple(_KERNELS)


def of_numbers(node: Call, args: Sequence[Value]) -> Value:
    """A function of doubles."""
    need(node, args, NUMBERS, "numbers" if len(args) > 1 else "a number")
    return _KERNELS[node.op](*(double(arg) for arg in args))


def is_nan(node: Call, args: Sequence[Value]) -> Value:
    """Whether a number is NaN; null is not."""
    need(node, args, NUMBERS, "a number")
    return pc.coalesce(pc.is_nan(double(args[0])), pa.scalar(False))


def whole_quotient(node: Call, args: Sequence[Value]) -> Value:
    """DIV: the quotient of whole numbers without its fraction."""
    need(node, args, ("int", "null"), "whole numbers")
    left, right = (integer(arg) for arg in args)
    beyond = pc.and_(pc.equal(left, pa.scalar(-(2**63), INT)), pc.equal(right, pa.scalar(-1, INT)))
    right = where(pc.equal(right, pa.scalar(0, INT)), null(INT), right)
    return pc.divide(left, where(beyond, null(INT), right))


def positive_remainder(node: Call, args: Sequence[Value]) -> Value:
    """pmod: the remainder of a division, without the sign of the dividend."""
    need(node, args, NUMBERS, "numbers")
    rest = remainder(Call("%", node.args), args)
    negative = pc.less(rest, pc.cast(pa.scalar(0), rest.type))
    kept = where(negative, rest, null(rest.type))  # of the others nothing is added up
    one = Call("+", (Call("%", node.args), node.args[1]))
    turned = remainder(Call("%", (one, node.args[1])), [arithmetic(one, [kept, args[1]]), args[1]])
    if turned.type != rest.type:
        rest = pc.cast(rest, turned.type)
    return where(negative, turned, rest)


_BITS: dict[str, _Numbers] = {
    "bitwise_and": pc.bit_wise_and,
    "bitwise_or": pc.bit_wise_or,
    "bitwise_xor": pc.bit_wise_xor,
    "bitwise_not": pc.bit_wise_not,
}
BIT_OPS = tuple(_BITS)


def of_bits(node: Call, args: Sequence[Value]) -> Value:
    """&, |, ^ and ~."""
    need(node, args, ("int", "null"), "whole numbers")
    return _BITS[node.op](*(integer(arg) for arg in args))


_FACTORIALS = [math.factorial(n) for n in range(21)]


def factorial(node: Call, args: Sequence[Value]) -> Value:
    """The product of all whole numbers up to one; null below 0 and above 20, as in Spark."""
    need(node, args, ("int", "null"), "a whole number")
    known = pc.index_in(integer(args[0]), value_set=pa.array(range(21), INT))
    if isinstance(known, pa.Scalar):
        place = known.as_py()
        return pa.scalar(None if place is None else _FACTORIALS[place], INT)
    return pa.array(_FACTORIALS, INT).take(known)


def digits(node: Call, args: Sequence[Value]) -> Value:
    """hex and bin: the digits of a whole number; below zero, those of its 64 bits."""
    texts = ("string",) if node.op == "hex" else ()
    need(node, args, ("int", "null", *texts), "a whole number" + " or a text" * bool(texts))
    if kind(args[0]) == "null":
        return null(STRING)
    if kind(args[0]) == "string":
        return of_each(args[0], lambda text: text.encode().hex().upper(), STRING)
    base = "X" if node.op == "hex" else "b"
    return of_each(integer(args[0]), lambda n: format(n % 2**64, base), STRING)


def format_number(node: Call, args: Sequence[Value]) -> Value:
    """format_number(v, 2): the text of a number, with so many digits and commas."""
    need(node, args[:1], NUMBERS, "a number")
    count = args[1].as_py()
    if kind(args[0]) == "null" or count < 0:
        return null(STRING)

    def written(number: float | Decimal) -> str:
        if isinstance(number, float) and not math.isfinite(number):
            return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"
        return f"{number:,.{count}f}"

    return of_each(args[0], written, STRING)


def bucket(node: Call, args: Sequence[Value]) -> Value:
    """width_bucket(v, low, high, n): the number of the part of equal width that a value is in;
    0 before the first, n + 1 behind the last."""
    need(node, args[:3], NUMBERS, "numbers")
    need(node, args[3:], ("int", "null"), "a whole number of parts")
    value, low, high, parts = (double(arg) for arg in args)
    usable = pc.and_(pc.not_equal(low, high), pc.greater(parts, pa.scalar(0.0)))
    for number in (value, low, high):
        usable = pc.and_(usable, pc.invert(pc.is_nan(number)))
    for bound in (low, high):
        usable = pc.and_(usable, pc.is_finite(bound))
    place = pc.divide(
        pc.multiply(parts, pc.subtract(value, low)),
        where(usable, pc.subtract(high, low), pa.scalar(1.0)),
    )
    place = pc.add(pc.floor(place), pa.scalar(1.0))
    up = pc.greater(high, low)
    before = pc.if_else(up, pc.less(value, low), pc.greater(value, low))
    behind = pc.if_else(up, pc.greater_equal(value, high), pc.less_equal(value, high))
    place = pc.if_else(before, pa.scalar(0.0), place)
    place = pc.if_else(behind, pc.add(parts, pa.scalar(1.0)), place)
    return to_int(where(usable, place, null(DOUBLE)))
