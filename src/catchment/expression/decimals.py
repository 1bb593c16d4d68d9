"""Exact decimals over Arrow arrays: the types that Spark gives to results, and their values.

Goes in: decimals of any Arrow width, and whole numbers beside them. Comes out: a decimal of the
precision and scale that Spark's rules name, rounded half up, null where it has more digits than
that. Everything is calculated in 256 bits and brought to its type once, at the end, so nothing is
rounded twice. Spark has at most 38 digits; decimals that Arrow holds in 256 bits follow the same
rules with 76.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Value = Any
"""pa.Array or pa.Scalar (the stubs' overloads know no such pair); here, of decimals."""

MOST = 38
"""The digits of Spark's widest decimal."""
WIDEST = 76
"""The digits of Arrow's widest decimal."""
_LEAST_SCALE = 6
"""The digits behind the point that Spark keeps where it must cut some off."""
_WHOLE = {8: 3, 16: 5, 32: 10, 64: 20}
"""The digits of a whole number by its bits; 20 for 64 bits, signed or not, as Spark has it."""


def digits_of(type: pa.DataType) -> tuple[int, int]:
    """Precision and scale of a decimal, or of the decimal that holds a type of whole numbers.

    >>> digits_of(pa.decimal128(12, 2)), digits_of(pa.uint64()), digits_of(pa.int32())
    ((12, 2), (20, 0), (10, 0))
    """
    if pa.types.is_integer(type):
        return _WHOLE[type.bit_width], 0
    return type.precision, type.scale  # type: ignore[attr-defined]


def most_digits(type: pa.DataType) -> int:
    """The digits that results made of this type may have."""
    return WIDEST if digits_of(type)[0] > MOST else MOST


def decimal(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale) if precision <= MOST else pa.decimal256(precision, scale)


def bounded(precision: int, scale: int, most: int = MOST) -> pa.DataType:
    """The type of a sum or mean: digits past the limit are cut off in front."""
    return decimal(min(precision, most), min(scale, most))


def adjusted(precision: int, scale: int, most: int = MOST) -> pa.DataType:
    """The type of an operation: past 38 digits, those behind the point give way, down to six.

    >>> adjusted(21, 4), adjusted(77, 20)
    (Decimal128Type(decimal128(21, 4)), Decimal128Type(decimal128(38, 6)))
    """
    if precision <= most:
        return decimal(precision, scale)
    return decimal(most, max(most - (precision - scale), min(scale, _LEAST_SCALE)))


def number(unscaled: int, scale: int) -> Decimal:
    """`unscaled / 10 ** scale`, whatever the number of digits."""
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def constant(unscaled: int, scale: int) -> Value:
    return pa.scalar(number(unscaled, scale), pa.decimal256(WIDEST, scale))


def wide(value: Value, precision: int | None = None) -> Value:
    """Numbers in 256 bits; `precision` is what kernels are told, who calculate types from it."""
    digits, scale = digits_of(value.type)
    return pc.cast(value, pa.decimal256(precision or digits, scale), safe=False)


def rescaled(value: Value, scale: int) -> Value:
    """The same numbers with more digits behind the point."""
    # Arrow reckons with one digit more for a sum.
    return pc.cast(value, pa.decimal256(WIDEST - 1, scale), safe=False)


def fitted(value: Value, to: pa.DataType) -> Value:
    """Numbers of 256 bits in a type: rounded half up, null where they have too many digits."""
    precision, scale = digits_of(to)
    given = value.type.scale
    surplus = given - scale
    # The least number that does not fit, in units of the last digit given.
    limit = 10 ** (precision + surplus) if precision + surplus >= 0 else 1
    if surplus > 0:
        limit -= 5 * 10 ** (surplus - 1)
    if limit <= 10**WIDEST:
        outside = pc.greater(pc.abs(value), constant(limit - 1, given))
        value = pc.if_else(outside, pa.scalar(None, value.type), value)
    if surplus <= 0:
        return pc.cast(value, to, safe=False)
    units = _units(value)
    half = pc.if_else(pc.less(units, _zero()), _unit(-5, surplus - 1), _unit(5, surplus - 1))
    units = _whole_quotient(_sum(units, half), _unit(1, surplus), surplus)
    return pc.cast(_scaled(units, scale), to, safe=False)


def difference_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type of a sum or difference of two numbers."""
    (p, s), (q, r) = digits_of(left), digits_of(right)
    scale = max(s, r)
    most = max(most_digits(left), most_digits(right))
    return adjusted(max(p - s, q - r) + scale + 1, scale, most)


def add(left: Value, right: Value, op: str = "+") -> Value:
    """The sum, or with `-` the difference."""
    scale = max(digits_of(left.type)[1], digits_of(right.type)[1])
    to = difference_type(left.type, right.type)
    kernel = pc.add if op == "+" else pc.subtract
    return fitted(kernel(rescaled(wide(left), scale), rescaled(wide(right), scale)), to)


def multiply(left: Value, right: Value) -> Value:
    (p, s), (q, r) = digits_of(left.type), digits_of(right.type)
    # 38 digits by 38 have 76, but Arrow reckons with one more.
    told = wide(right, min(q, WIDEST - 1 - p))
    return fitted(pc.multiply(wide(left), told), adjusted(p + q + 1, s + r))


def divide(left: Value, right: Value) -> Value:
    """The quotient; null where the divisor is zero."""
    (p, s), (q, r) = digits_of(left.type), digits_of(right.type)
    scale = max(_LEAST_SCALE, s + q + 1)
    return quotient(left, right, adjusted(p - s + r + scale, scale))


def remainder(left: Value, right: Value) -> Value:
    """What is left over, with the sign of the dividend; null where the divisor is zero."""
    (p, s), (q, r) = digits_of(left.type), digits_of(right.type)
    scale = max(s, r)
    to = adjusted(min(p - s, q - r) + scale, scale)
    if max(p - s, q - r) + scale > _DIVISIBLE:
        return _by_rows(left, right, to, _rest)
    units, by = (_units(rescaled(wide(value), scale)) for value in (left, right))
    by = _not_zero(by)
    rest = _difference(units, _product(_whole_quotient(units, by), by))
    return fitted(_scaled(rest, scale), to)


def in_128_bits(value: Value) -> Value:
    """Decimals of up to 38 digits in the width that has all kernels."""
    return pc.cast(value, pa.decimal128(*digits_of(value.type)))


def rounded(value: Value, digits: int) -> Value:
    """Rounded half up to so many digits behind the point; fewer than none are zeros in front."""
    precision, scale = digits_of(value.type)
    whole = precision - scale + 1
    if digits >= 0:
        kept = min(scale, digits)
        return fitted(wide(value), pa.decimal128(min(whole + kept, MOST), kept))
    to = pa.decimal128(min(max(whole, 1 - digits), MOST), 0)
    if -digits > precision - scale:  # not even a half of the last digit kept
        return pc.if_else(pc.is_null(value), pa.scalar(None, to), pa.scalar(Decimal(0), to))
    zeros = scale - digits
    units = _units(wide(value))
    half = pc.if_else(pc.less(units, _zero()), _unit(-5, zeros - 1), _unit(5, zeros - 1))
    found = _whole_quotient(_sum(units, half), _unit(1, zeros), zeros)
    return fitted(pc.cast(_product(found, _unit(1, -digits)), _UNITS, safe=False), to)


def stepped(value: Value, *, up: bool) -> Value:
    """The next whole number below, or with `up` above."""
    precision, scale = digits_of(value.type)
    if scale == 0:
        return value
    units, unit = _units(wide(value)), _unit(1, scale)
    found = _whole_quotient(units, unit, scale)
    rest = _difference(units, _product(found, unit))
    beyond = pc.greater(rest, _zero()) if up else pc.less(rest, _zero())
    step = pc.if_else(beyond, _unit(1 if up else -1, 0), _zero())
    return fitted(_sum(found, step), bounded(precision - scale + 1, 0))


def truncated(value: Value) -> Value:
    """The whole part, in 256 bits."""
    _, scale = digits_of(value.type)
    units = _units(wide(value))
    return units if scale == 0 else _whole_quotient(units, _unit(1, scale), scale)


def quotient(left: Value, right: Value, to: pa.DataType) -> Value:
    """The quotient in a type, rounded half up; null where the divisor is zero."""
    (p, s), (_, r) = digits_of(left.type), digits_of(right.type)
    # One digit more than is wanted, cut off there, rounds as all digits would.
    scale = max(digits_of(to)[1] + 1, s - r)
    if p - s + scale + r > _DIVISIBLE:
        return _by_rows(left, right, to, _ratio)
    units = _units(rescaled(wide(left), scale + r))
    return fitted(_scaled(_whole_quotient(units, _not_zero(_units(wide(right)))), scale), to)


_DIVISIBLE = 71
"""Digits that a dividend may have: Arrow divides 256 bits, after it has added four digits."""
_UNITS = pa.decimal256(WIDEST, 0)


@cache
def _zero() -> pa.Scalar[Any]:
    """Made when it is needed: Arrow imports pandas, if it is there, to make its first scalar."""
    return pa.scalar(Decimal(0), _UNITS)


def _unit(number: int, zeros: int) -> Value:
    return constant(number * 10**zeros, 0)


def _with_precision(value: Value, precision: int) -> Value:
    """Whole numbers as kernels are told of them, who calculate types from the digits told."""
    return pc.cast(value, pa.decimal256(precision, 0), safe=False)


def _sum(left: Value, right: Value) -> Value:
    return pc.add(_with_precision(left, WIDEST - 1), _with_precision(right, WIDEST - 1))


def _difference(left: Value, right: Value) -> Value:
    return pc.subtract(_with_precision(left, WIDEST - 1), _with_precision(right, WIDEST - 1))


def _product(left: Value, right: Value) -> Value:
    return pc.multiply(_with_precision(left, 37), _with_precision(right, 38))


def _units(value: Value) -> Value:
    """Numbers as the whole numbers of their last digit's unit."""
    return _scaled(value, 0)


def _scaled(value: Value, scale: int) -> Value:
    """The same bits with the point elsewhere."""
    to = pa.decimal256(WIDEST, scale)
    if isinstance(value, pa.Scalar):
        return _scaled(pa.array([value.as_py()], value.type), scale)[0]
    return pa.Array.from_buffers(to, len(value), value.buffers(), offset=value.offset)


def _whole_quotient(units: Value, by: Value, zeros: int | None = None) -> Value:
    """The whole part of quotients of whole numbers; `by` may be a one with that many zeros.

    Arrow's division of 256 bits may leave the last digit too small (it says 99...98 of 99...99
    by a power of ten): whatever a first division leaves over is divided again, until less than the
    divisor is left over.
    """
    found = _rough_quotient(units, by, zeros)
    rest = _difference(units, _product(found, by))
    while _any(over := pc.greater_equal(pc.abs(rest), pc.abs(by))):
        more = _rough_quotient(rest, by, zeros)
        stuck = pc.and_(over, pc.equal(more, _zero()))
        found = _sum(found, pc.if_else(stuck, _towards(rest, by), more))
        rest = _difference(units, _product(found, by))
    # What is left over has the sign of the dividend, or the quotient went one too far.
    wrong = pc.or_(
        pc.and_(pc.less(rest, _zero()), pc.greater(units, _zero())),
        pc.and_(pc.greater(rest, _zero()), pc.less(units, _zero())),
    )
    return _sum(found, pc.if_else(wrong, _towards(rest, by), _zero())) if _any(wrong) else found


def _towards(rest: Value, by: Value) -> Value:
    """One, with the sign of a quotient."""
    same = pc.equal(pc.less(rest, _zero()), pc.less(by, _zero()))
    return pc.if_else(same, _unit(1, 0), _unit(-1, 0))


def _rough_quotient(units: Value, by: Value, zeros: int | None) -> Value:
    if zeros is not None:
        return pc.cast(_scaled(units, zeros), _UNITS, safe=False)
    four = pc.divide(_with_precision(units, 70), _with_precision(by, 1))
    return pc.cast(four, _UNITS, safe=False)


def _any(found: Value) -> bool:
    return bool((pc.any(found) if isinstance(found, pa.Array) else found).as_py())


def _not_zero(value: Value) -> Value:
    zero = pc.equal(value, pa.scalar(Decimal(0), value.type))
    return pc.if_else(zero, pa.scalar(None, value.type), value)


def _by_rows(left: Value, right: Value, to: pa.DataType, of: Any) -> Value:
    """One pair after the other, in numbers without a limit."""
    length = next((len(v) for v in (left, right) if isinstance(v, pa.Array)), None)
    columns = [
        v.to_pylist() if isinstance(v, pa.Array) else [v.as_py()] * (length or 1)
        for v in (left, right)
    ]
    precision, scale = digits_of(to)
    made: list[Decimal | None] = []
    with localcontext(prec=4 * WIDEST, rounding=ROUND_HALF_UP):
        for one, two in zip(*columns, strict=True):
            value = None if one is None or two is None or not two else of(one, two)
            if value is not None:
                value = value.quantize(Decimal((0, (1,), -scale)))
                value = value if abs(value) < Decimal(10) ** (precision - scale) else None
            made.append(value)
    array = pa.array(made, to)
    return array if length is not None else array[0]


def _ratio(one: Decimal, two: Decimal) -> Decimal:
    return one / two


def _rest(one: Decimal, two: Decimal) -> Decimal:
    return one % two  # Python's, too, has the sign of the dividend
