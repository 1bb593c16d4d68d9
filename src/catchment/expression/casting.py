"""CAST: what cannot be converted is null."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.expression import decimals
from catchment.expression.arithmetic import narrowed, to_int
from catchment.expression.nodes import Call
from catchment.expression.values import (
    BOOL,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIME,
    Value,
    convert,
    double,
    integer,
    kind,
    mismatch,
    null,
    where,
)

TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": BOOL,
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": INT,
    "FLOAT": pa.float32(),
    "DOUBLE": DOUBLE,
    "STRING": STRING,
    "DATE": DATE,
    "TIMESTAMP": TIME,
}
DECIMAL = re.compile(r"DECIMAL\((\d+), (\d+)\)")
_SECOND = 1_000_000
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_SPECIAL = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")


def type_of(name: str) -> pa.DataType:
    """The type that a cast names."""
    digits = DECIMAL.fullmatch(name)
    return pa.decimal128(*map(int, digits.groups())) if digits else TYPES[name]


def cast(node: Call, args: Sequence[Value]) -> Value:
    value, to = args[0], type_of(node.to)
    if value.type == to:
        return value
    if kind(value) == "null":
        return null(to)
    route = _ROUTES.get((kind(value), kind(null(to))))
    if route is None:
        raise mismatch(
            node,
            args,
            "a value that has a meaning in the new type",
            hint=f"{value.type} does not convert to {node.to}",
        )
    return route(value, to)


def _to_whole(value: Value, to: pa.DataType) -> Value:
    """Any number to a whole one; null where it does not fit."""
    if kind(value) == "decimal":
        whole = narrowed(decimals.truncated(value))
    else:
        whole = to_int(double(value)) if kind(value) == "float" else integer(value)
    if to == INT:
        return whole
    half = 1 << (to.bit_width - 1)
    fits = pc.and_(
        pc.greater_equal(whole, pa.scalar(-half, INT)), pc.less(whole, pa.scalar(half, INT))
    )
    return pc.cast(where(fits, whole, null(INT)), to)


def _plain(value: Value, to: pa.DataType) -> Value:
    return pc.cast(value, to, safe=False)


def _not_zero(value: Value, _: pa.DataType) -> Value:
    return pc.not_equal(double(value), pa.scalar(0.0))


def _from_seconds(value: Value, to: pa.DataType) -> Value:
    micros = to_int(pc.multiply(double(value), pa.scalar(float(_SECOND))))
    return pc.cast(micros, to)


def _to_seconds(value: Value, to: pa.DataType) -> Value:
    moments = convert(value, TIME)
    if pa.types.is_integer(to):
        seconds = pc.floor_temporal(moments, unit="second")
        return _to_whole(pc.cast(pc.cast(seconds, pa.timestamp("s", "UTC")), INT), to)
    micros = double(pc.cast(moments, INT))
    return _plain(pc.divide(micros, pa.scalar(float(_SECOND))), to)


def _to_day(value: Value, to: pa.DataType) -> Value:
    return pc.cast(convert(value, TIME), to)


def _show_time(value: Value, _: pa.DataType) -> Value:
    texts = pc.strftime(convert(value, TIME), format="%Y-%m-%d %H:%M:%S")
    return pc.replace_substring_regex(texts, pattern=r"\.?0*$", replacement="")


def _by_value(
    read: Callable[[Any], Any], of: pa.DataType | None = None
) -> Callable[[Value, pa.DataType], Value]:
    """A conversion in Python, once per distinct value."""

    def run(value: Value, to: pa.DataType) -> Value:
        if isinstance(value, pa.Scalar):
            return run(pa.array([value.as_py()], value.type), to)[0]
        coded = value.dictionary_encode()
        made = [None if v is None else read(v) for v in coded.dictionary.to_pylist()]
        return _settle(pa.array(made, of or to), to).take(coded.indices)

    return run


def _settle(values: Value, to: pa.DataType) -> Value:
    return _to_whole(values, to) if pa.types.is_integer(to) else convert(values, to)


def _read_decimal(value: float | str | bool, to: pa.DataType) -> Decimal | None:
    """A number as its shortest text has it, rounded half up."""
    text = str(int(value)) if isinstance(value, bool) else str(value).strip()
    if not _NUMBER.fullmatch(text):
        return None
    precision, scale = decimals.digits_of(to)
    number = Decimal(text)
    if number.adjusted() > precision - scale:
        return None
    if number.adjusted() < -scale - 1:  # however many its digits: less than a half
        return Decimal(0)
    with localcontext(prec=max(len(number.as_tuple().digits), 1) + 2 * decimals.MOST):
        number = number.quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP)
    return number if abs(number) < 10 ** (precision - scale) else None


def _to_decimal(value: Value, to: pa.DataType) -> Value:
    return _by_value(lambda read: _read_decimal(read, to))(value, to)


def show_float(value: float) -> str:
    """As Spark shows a double: 1.0, 1.0E10, NaN."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, exponent = f"{Decimal(repr(value)).normalize():E}".split("E")
    return f"{digits if '.' in digits else digits + '.0'}E{int(exponent)}"


_show_decimal = _by_value("{:f}".format)


def _read_float(text: str) -> float | None:
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    sign = -1.0 if text.startswith("-") else 1.0
    special = _SPECIAL.get(text.lstrip("+-").lower())
    return None if special is None else sign * special


def _read_int(text: str) -> int | None:
    if not _NUMBER.fullmatch(text.strip()):
        return None
    exact = Decimal(text.strip())
    if exact.adjusted() > 18:
        return None
    return int(exact) if -(2**63) <= int(exact) < 2**63 else None


def _read_bool(text: str) -> bool | None:
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _read_time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _read_date(text: str) -> date | None:
    moment = _read_time(text)
    return moment and moment.date()


def _fast(route: Callable[[Value, pa.DataType], Value]) -> Callable[[Value, pa.DataType], Value]:
    """Arrow's own parser where it can read every text, else ours."""

    def run(value: Value, to: pa.DataType) -> Value:
        try:
            return pc.cast(value, to)
        except pa.ArrowInvalid:
            return route(value, to)

    return run


_ROUTES: dict[tuple[str, str], Callable[[Value, pa.DataType], Value]] = {
    ("bool", "int"): _plain,
    ("bool", "float"): _plain,
    ("bool", "string"): _plain,
    ("int", "int"): _to_whole,
    ("int", "float"): _plain,
    ("int", "string"): _plain,
    ("int", "bool"): _not_zero,
    ("int", "time"): _from_seconds,
    ("float", "int"): _to_whole,
    ("float", "float"): _plain,
    ("float", "bool"): _not_zero,
    ("float", "string"): lambda value, to: _by_value(show_float)(double(value), to),
    ("float", "time"): _from_seconds,
    ("string", "string"): _plain,
    ("string", "bool"): _by_value(_read_bool),
    ("string", "int"): _fast(_by_value(_read_int, INT)),
    ("string", "float"): _fast(_by_value(_read_float, DOUBLE)),
    ("string", "time"): _by_value(_read_time, TIME),
    ("string", "date"): _by_value(_read_date),
    ("time", "time"): convert,
    ("time", "date"): _to_day,
    ("time", "int"): _to_seconds,
    ("time", "float"): _to_seconds,
    ("time", "string"): _show_time,
    ("date", "time"): convert,
    ("date", "date"): _plain,
    ("date", "string"): _plain,
    ("decimal", "int"): _to_whole,
    ("decimal", "float"): _plain,
    ("decimal", "bool"): _not_zero,
    ("decimal", "decimal"): convert,
    ("decimal", "time"): _from_seconds,
    ("decimal", "string"): lambda value, to: _show_decimal(decimals.in_128_bits(value), to),
    ("int", "decimal"): convert,
    ("float", "decimal"): lambda value, to: _to_decimal(double(value), to),
    ("string", "decimal"): _to_decimal,
    ("bool", "decimal"): _to_decimal,
}
