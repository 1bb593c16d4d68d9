"""SQL expressions one row at a time, for the oracle: slow, plain, and apart from the engine's."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp

from catchment.errors import QueryError
from catchment.model.duration import instant

EventRow = Mapping[str, Any]


def value_of(text: str, row: EventRow) -> Any:
    """The value of an expression for one event; None is NULL.

    >>> value_of("v / n", {"v": 3.0, "n": 2}), value_of("v / n", {"v": 3.0, "n": 0})
    (1.5, None)
    """
    return _evaluate(_parse(text), row)


def holds(text: str | None, row: EventRow) -> bool:
    """True when the condition is met; NULL is not met.

    >>> holds("v > 1", {"v": 2}), holds("v > 1", {"v": None}), holds(None, {})
    (True, False, True)
    """
    return text is None or value_of(text, row) is True


def order_key(value: Any) -> tuple[bool, Any]:
    """Sorts values with NaN last and equal to itself, -0.0 equal to 0.0."""
    if isinstance(value, float) and math.isnan(value):
        return (True, 0)
    return (False, value)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Any:
    return sqlglot.parse_one(text, dialect="spark")


def _evaluate(node: Any, row: EventRow) -> Any:
    if type(node) in _CONSTANT:
        return _CONSTANT[type(node)](node)
    if type(node) in _SPECIAL:
        return _SPECIAL[type(node)](node, row)
    if type(node) in _BINARY:
        left, right = _evaluate(node.this, row), _evaluate(node.expression, row)
        return None if left is None or right is None else _BINARY[type(node)](left, right)
    if type(node) in _UNARY:
        value = _evaluate(node.this, row)
        return None if value is None else _UNARY[type(node)](value)
    raise QueryError("the oracle cannot evaluate this expression", given=repr(node))


# What does not depend on the row.


def _literal(node: Any) -> Any:
    if node.is_string:
        return node.this
    return int(node.this) if node.this.isdigit() else float(node.this)


_CONSTANT: dict[type, Callable[[Any], Any]] = {
    exp.Literal: _literal,
    exp.Boolean: lambda node: bool(node.this),
    exp.Null: lambda _: None,
}


# What is NULL when an operand is: values in, value out.


def _divide(a: float, b: float) -> float | None:
    return float(a) / float(b) if b else None


def _remainder(a: float, b: float) -> float | None:
    if not b or math.isinf(a):
        return None if not b else math.nan
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) % abs(b) * (1 if a >= 0 else -1)
    return math.fmod(a, b)


def _power(a: float, b: float) -> float:
    try:
        result = float(a) ** float(b)
    except OverflowError:
        return math.inf
    except ZeroDivisionError:
        return math.inf
    return math.nan if isinstance(result, complex) else result


def _exp(a: float) -> float:
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


def _like(text: str, pattern: str) -> bool:
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    known = {"%": ".*", "_": "."}
    regex = "".join(known.get(p) or re.escape(p[-1]) for p in parts)
    return re.fullmatch(regex, text, re.DOTALL) is not None


def _exactly(function: Callable[..., Any], *args: Any) -> Any:
    """The function of numbers; of decimals, with all digits that they have."""
    if not any(isinstance(a, Decimal) for a in args):
        return function(*args)
    with localcontext(prec=200):
        return function(*args)


def _fitting(a: Any) -> Any:
    """NULL for an integer that int64 cannot hold."""
    return None if isinstance(a, int) and not -(2**63) <= a < 2**63 else a


def _whole(rounding: Callable[[float], int]) -> Callable[[float], Any]:
    return lambda a: rounding(a) if math.isfinite(a) else None  # no integer is infinite


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    exp.Add: lambda a, b: _fitting(_exactly(operator.add, a, b)),
    exp.Sub: lambda a, b: _fitting(_exactly(operator.sub, a, b)),
    exp.Mul: lambda a, b: _fitting(_exactly(operator.mul, a, b)),
    exp.Div: _divide,
    exp.Mod: _remainder,
    exp.Pow: _power,
    exp.EQ: lambda a, b: order_key(a) == order_key(b),
    exp.NEQ: lambda a, b: order_key(a) != order_key(b),
    exp.LT: lambda a, b: order_key(a) < order_key(b),
    exp.LTE: lambda a, b: order_key(a) <= order_key(b),
    exp.GT: lambda a, b: order_key(a) > order_key(b),
    exp.GTE: lambda a, b: order_key(a) >= order_key(b),
    exp.Like: _like,
    exp.Log: lambda a, b: math.log(b) / math.log(a) if a > 0 and b > 0 else None,
}

_UNARY: dict[type, Callable[[Any], Any]] = {
    exp.Paren: lambda a: a,
    exp.Neg: lambda a: _exactly(operator.neg, a),
    exp.Not: lambda a: not a,
    exp.Abs: lambda a: _exactly(abs, a),
    exp.Floor: _whole(math.floor),
    exp.Ceil: _whole(math.ceil),
    exp.Sqrt: lambda a: math.sqrt(a) if a >= 0 else math.nan,
    exp.Ln: lambda a: None if a <= 0 else math.log(a),
    exp.Exp: _exp,
    exp.Lower: str.lower,
    exp.Upper: str.upper,
    exp.Length: len,
}


# What treats NULL in its own way: the node and the row in, value out.


def _column(node: Any, row: EventRow) -> Any:
    if node.name not in row:
        raise QueryError("no such column", given=node.name)
    return row[node.name]


def _and(node: Any, row: EventRow) -> bool | None:
    sides = (_evaluate(node.this, row), _evaluate(node.expression, row))
    return False if False in sides else None if None in sides else True


def _or(node: Any, row: EventRow) -> bool | None:
    sides = (_evaluate(node.this, row), _evaluate(node.expression, row))
    return True if True in sides else None if None in sides else False


def _is(node: Any, row: EventRow) -> bool:
    return bool(_evaluate(node.this, row) is _evaluate(node.expression, row))


def _null_safe(node: Any, row: EventRow) -> bool:
    left, right = _evaluate(node.this, row), _evaluate(node.expression, row)
    if left is None or right is None:
        return left is right
    return order_key(left) == order_key(right)


def _in(node: Any, row: EventRow) -> bool | None:
    value = _evaluate(node.this, row)
    options = [_evaluate(e, row) for e in node.expressions]
    if value is None:
        return None
    if any(o is not None and order_key(o) == order_key(value) for o in options):
        return True
    return None if None in options else False


def _between(node: Any, row: EventRow) -> bool | None:
    value, low, high = (_evaluate(node.args[part], row) for part in ("this", "low", "high"))
    above = None if value is None or low is None else order_key(value) >= order_key(low)
    below = None if value is None or high is None else order_key(value) <= order_key(high)
    return False if False in (above, below) else None if None in (above, below) else True


def _case(node: Any, row: EventRow) -> Any:
    for branch in node.args["ifs"]:
        if node.this is None:
            met = _evaluate(branch.this, row)
        else:
            met = _evaluate(exp.EQ(this=node.this.copy(), expression=branch.this.copy()), row)
        if met:
            return _evaluate(branch.args["true"], row)
    default = node.args.get("default")
    return None if default is None else _evaluate(default, row)


def _if(node: Any, row: EventRow) -> Any:
    branch = node.args["true"] if _evaluate(node.this, row) else node.args.get("false")
    return None if branch is None else _evaluate(branch, row)


def _arguments(node: Any, row: EventRow) -> list[Any]:
    values = [_evaluate(e, row) for e in (node.this, *node.expressions)]
    return [v for v in values if v is not None]


def _coalesce(node: Any, row: EventRow) -> Any:
    return next(iter(_arguments(node, row)), None)


def _least(node: Any, row: EventRow) -> Any:
    return min(_arguments(node, row), key=order_key, default=None)


def _greatest(node: Any, row: EventRow) -> Any:
    return max(_arguments(node, row), key=order_key, default=None)


def _nullif(node: Any, row: EventRow) -> Any:
    left, right = _evaluate(node.this, row), _evaluate(node.expression, row)
    if left is None or right is None or order_key(left) != order_key(right):
        return left
    return None


def _round(node: Any, row: EventRow) -> Any:
    value = _evaluate(node.this, row)
    places = node.args.get("decimals")
    digits = 0 if places is None else _evaluate(places, row)
    if value is None or digits is None or not math.isfinite(value):
        return None if digits is None else value
    rounded = Decimal(str(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return type(value)(rounded)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_PARTS: dict[type, Callable[[datetime], int]] = {
    exp.Year: lambda t: t.year,
    exp.Quarter: lambda t: (t.month + 2) // 3,
    exp.Month: lambda t: t.month,
    exp.Day: lambda t: t.day,
    exp.DayOfMonth: lambda t: t.day,
    exp.DayOfWeek: lambda t: t.isoweekday() % 7 + 1,
    exp.DayOfYear: lambda t: t.timetuple().tm_yday,
    exp.WeekOfYear: lambda t: t.isocalendar().week,
    exp.Hour: lambda t: t.hour,
    exp.Minute: lambda t: t.minute,
    exp.Second: lambda t: t.second,
}


def _part(node: Any, row: EventRow) -> Any:
    inner = node.this.this if isinstance(node.this, exp.TsOrDsToDate) else node.this
    time = _evaluate(inner, row)
    if time is None:
        return None
    return _PARTS[type(node)](_EPOCH + timedelta(microseconds=instant(time)))


def _concat(node: Any, row: EventRow) -> Any:
    given = [node.this, node.expression] if isinstance(node, exp.DPipe) else node.expressions
    texts = [_evaluate(arg, row) for arg in given]
    return None if None in texts else "".join(_to_text(text) for text in texts)


def _substring(node: Any, row: EventRow) -> Any:
    text = _evaluate(node.this, row)
    if text is None:
        return None
    start = _evaluate(node.args["start"], row)
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    length = node.args.get("length")
    end = len(text) if length is None else first + max(_evaluate(length, row), 0)
    return text[max(first, 0) : max(end, 0)]


def _anonymous(node: Any, row: EventRow) -> Any:
    values = [_evaluate(arg, row) for arg in node.expressions]
    if node.name.lower() == "arguments":
        return tuple(values)
    if node.name.lower() != "tuple":
        raise QueryError("the oracle cannot evaluate this expression", given=repr(node))
    return None if None in values else tuple(order_key(value) for value in values)


def _cast(node: Any, row: EventRow) -> Any:
    value = _evaluate(node.this, row)
    if value is None:
        return None
    to = node.to.sql(dialect="spark").upper()
    try:
        return next(make for names, make in _CASTS if to in names)(value)
    except StopIteration:
        raise QueryError("the oracle cannot cast to this type", given=to) from None
    except (ValueError, OverflowError):
        return None


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    words = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
    return words.get(str(value), str(value)) if isinstance(value, float) else str(value)


def _to_bool(value: Any) -> bool:
    if isinstance(value, str):
        return {"true": True, "false": False}[value.lower()]
    return bool(value)


_CASTS: tuple[tuple[tuple[str, ...], Callable[[Any], Any]], ...] = (
    (("TINYINT", "SMALLINT", "INT", "BIGINT"), int),
    (("FLOAT", "DOUBLE"), float),
    (("STRING",), _to_text),
    (("BOOLEAN",), _to_bool),
    (("TIMESTAMP", "TIMESTAMP_NTZ", "DATE"), instant),
)

_SPECIAL: dict[type, Callable[[Any, EventRow], Any]] = {
    exp.Column: _column,
    exp.And: _and,
    exp.Or: _or,
    exp.Is: _is,
    exp.NullSafeEQ: _null_safe,
    exp.In: _in,
    exp.Between: _between,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
    exp.Least: _least,
    exp.Greatest: _greatest,
    exp.Nullif: _nullif,
    exp.Round: _round,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Concat: _concat,
    exp.DPipe: _concat,
    exp.Substring: _substring,
    exp.Anonymous: _anonymous,
} | dict.fromkeys(_PARTS, _part)
