"""Functions of numbers that schools teach, whole quotients and bits. Angles are in radians.

What has no value is null, as everywhere; what is outside of a function's range is NaN, as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.expression.arithmetic import arithmetic, remainder
from catchment.expression.nodes import Call
from catchment.expression.values import (
    DOUBLE,
    INT,
    NUMBERS,
    Value,
    double,
    integer,
    need,
    null,
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
