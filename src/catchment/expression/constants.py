"""Constants written as texts beside values of another type: `ts >= '2026-01-31 12:00:00'`.

Spark casts such a text to the type of what it stands beside, and so does whoever evaluates an
expression here. A text that cannot be read so is a mistake, which is found before any event comes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any

import pyarrow as pa

from catchment.errors import SchemaError
from catchment.expression.nodes import Call, Literal, LiteralKind, Node, render
from catchment.expression.values import BOOL, DATE, DOUBLE, INT, TIME, Value, kind

_WHOLE = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_UNBOUNDED = re.compile(r"\s*[+-]?(nan|inf|infinity)\s*", re.ASCII | re.IGNORECASE)
_DAY = re.compile(r"\s*(\d{4})-(\d{1,2})-(\d{1,2})\s*", re.ASCII)
_TIME = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?"
    r"\s*(Z|UTC|[+-]\d{1,2}(?::?\d{2})?)?\s*",
    re.ASCII,
)
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_TYPES: dict[str, tuple[pa.DataType, str]] = {
    "int": (INT, "a whole number, as in '3'"),
    "float": (DOUBLE, "a number, as in '2.5'"),
    "time": (TIME, "a time, as in '2026-01-31 12:00:00'"),
    "date": (DATE, "a day, as in '2026-01-31'"),
    "bool": (BOOL, "'true' or 'false'"),
}
_MARK = "\0"
"""What begins a text that stands for all that some column may hold to be equal."""


def read_as(text: str, to: str) -> Literal | None:
    """A text as a constant of a kind, as Spark casts it; None where it is none.

    >>> read_as("2026-1-31 12:00", "time").value.isoformat()
    '2026-01-31T12:00:00+00:00'
    >>> read_as("3.5", "int") is None
    True
    """
    value = _READERS[to](text)
    of: LiteralKind = to  # type: ignore[assignment]
    return None if value is None else Literal(of, value)


def _read_int(text: str) -> int | None:
    if not _WHOLE.fullmatch(text) or len(text) > 100:
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


def _read_float(text: str) -> float | None:
    known = _NUMBER.fullmatch(text) or _UNBOUNDED.fullmatch(text)
    return float(text) if known else None


def _read_time(text: str) -> datetime | None:
    day = _DAY.fullmatch(text)
    found = day or _TIME.fullmatch(text)
    if found is None:
        return None
    parts = [int(part or 0) for part in found.groups()[:6]]
    zone, micros = UTC, 0
    if day is None:
        micros = int((found[7] or "").ljust(6, "0")[:6])
        zone = _zone_of(found[8])
    try:
        year, month, day_of_month, hour, minute, second = parts + [0] * (6 - len(parts))
        moment = datetime(year, month, day_of_month, hour, minute, second, micros, zone)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _zone_of(text: str | None) -> timezone:
    if text is None or text in ("Z", "UTC"):
        return UTC
    hours, minutes = text[1:].replace(":", "")[:-2], text[-2:]
    if len(text) <= 3:
        hours, minutes = text[1:], "0"
    away = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-away if text[0] == "-" else away) if away < timedelta(hours=24) else UTC


def _read_date(text: str) -> date | None:
    found = _DAY.fullmatch(text) or (_read_time(text) and _TIME.fullmatch(text))
    try:
        return date(*map(int, found.groups()[:3])) if found else None
    except ValueError:
        return None


def _read_bool(text: str) -> bool | None:
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else None


_READERS: dict[str, Any] = {
    "int": _read_int,
    "float": _read_float,
    "time": _read_time,
    "date": _read_date,
    "bool": _read_bool,
}


def with_constants(node: Call, args: Sequence[Value]) -> Sequence[Value]:
    """The operands; constant texts among them in the type of the others, if these have another."""
    operands = _alike(node)
    texts = [n for n in operands if _is_text(node.args[n])]
    if not texts or len(texts) == len(operands):
        return args
    to = kind_beside(kind(args[n]) for n in operands if n not in texts)
    if to is None or (node.op in _CALCULATED and to not in ("int", "float")):
        return args
    made = list(args)
    for n in texts:
        found = constant_as(node, node.args[n], to)
        made[n] = pa.scalar(found.value, _TYPES[to][0])
    return made


_CALCULATED = frozenset("+-*/%")
_BESIDE = _CALCULATED | {"=", "<>", "<", "<=", ">", ">=", "<=>", "in", "coalesce", "nullif"}
_BESIDE |= {"least", "greatest"}


def _alike(node: Call) -> Sequence[int]:
    """The places of the operands that are brought to one type."""
    if node.op in _BESIDE:
        return range(len(node.args))
    if node.op == "case":
        return [*range(1, len(node.args) - 1, 2), len(node.args) - 1]
    return ()


def _is_text(node: Node) -> bool:
    return isinstance(node, Literal) and node.kind == "string"


def kind_beside(kinds: Any) -> str | None:
    """The kind that a text is cast to beside others of these kinds; None: it is left a text.

    >>> kind_beside(["int", "null"]), kind_beside(["decimal"]), kind_beside(["string", "int"])
    ('int', 'float', None)
    """
    found = set(kinds) - {"null"}
    if found == {"int"}:
        return "int"
    if found and found <= {"int", "decimal", "float"}:
        return "float"
    if found and found <= {"time", "date"}:
        return "time" if "time" in found else "date"
    return "bool" if found == {"bool"} else None


def constant_as(node: Call, operand: Node, to: str) -> Literal:
    """A constant text as one of another kind; SchemaError where it is none."""
    assert isinstance(operand, Literal) and isinstance(operand.value, str)
    found = read_as(operand.value, to)
    if found is None:
        raise SchemaError(
            f"{operand.value!r} is not {_TYPES[to][1].split(',')[0]}, which it is compared or "
            "calculated with",
            given=render(node),
            hint=f"write {_TYPES[to][1]}",
        )
    return found


@lru_cache(maxsize=65536)
def stands_for(text: str) -> str | None:
    """A text that is equal for all texts that some column may hold to be equal; None: unknown.

    Whether a column has texts, numbers or days is not known to whoever compares conditions alone:
    '3' and '03' are two texts, and one number. Only a text that cannot be read as anything else
    stands for itself.

    >>> stands_for("3") == stands_for("03"), stands_for("3") == stands_for("4"), stands_for("a12")
    (True, False, 'a12')
    """
    if text[:1] == _MARK:
        return None
    word = text.strip()
    if not word or (word[0] not in "+-.0123456789" and word[0].lower() not in "tfyni"):
        return text
    truth = _read_bool(word)
    if truth is not None:
        return f"{_MARK}{float(truth)}"
    number = _read_float(word)
    if number is not None:
        return f"{_MARK}{number + 0.0}"
    day = _DAY.fullmatch(word)
    if day is not None:
        return f"{_MARK}{'-'.join(part.zfill(2) for part in day.groups())}"
    return None if _TIME.fullmatch(word) else text
