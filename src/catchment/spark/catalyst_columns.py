"""Our expressions as Spark SQL, where both surely mean the same; whole numbers are BIGINT.

Whatever could fail or differ in Spark (ANSI mode, functions of the maths library, casts of texts)
is refused with `UnlikeError`, and left to Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import NamedTuple

from pyspark.sql import types as t

from catchment.expression.nodes import Call, Column, Literal, Node, walk
from catchment.expression.parsing import parse
from catchment.model.duration import instant
from catchment.spark.catalyst_edges import micros_of

_SQL = {"int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN", "string": "STRING"}
_SIMPLE = re.compile(r"[A-Za-z0-9 _.,:;/+-]*", re.ASCII)
_EPOCH = date(1970, 1, 1)


class UnlikeError(Exception):
    """Why Spark cannot compute it as we would."""


class SparkField(NamedTuple):
    """A column of the DataFrame: the name it goes by in SQL, and its type."""

    sql: str
    type: t.DataType


SparkFields = Mapping[str, SparkField]


class Typed(NamedTuple):
    """SQL text and what it gives: int, float, bool, string, time (microseconds), date (days)."""

    sql: str
    kind: str


def kind_of(type: t.DataType) -> str:
    """The kind of a column; decimal and other have no operators here."""
    for classes, kind in _KINDS:
        if isinstance(type, classes):
            return "other" if kind == "string" and not is_plain_text(type) else kind
    return "other"


_KINDS: tuple[tuple[tuple[type[t.DataType], ...], str], ...] = (
    ((t.ByteType, t.ShortType, t.IntegerType, t.LongType), "int"),
    ((t.FloatType, t.DoubleType), "float"),
    ((t.BooleanType,), "bool"),
    ((t.StringType,), "string"),
    ((t.TimestampType, t.TimestampNTZType), "time"),
    ((t.DateType,), "date"),
    ((t.DecimalType,), "decimal"),
)


def is_plain_text(type: t.DataType) -> bool:
    """Texts that are equal only if their bytes are: others have a collation."""
    return isinstance(type, t.StringType) and type == t.StringType()


def translate(text: str, fields: SparkFields) -> Typed:
    """An expression in canonical text, as Spark SQL."""
    return _sql(parse(text), fields)


def reads_floats(text: str, fields: SparkFields) -> bool:
    columns = (node.name for node in walk(parse(text)) if isinstance(node, Column))
    return any(kind_of(fields[name].type) == "float" for name in columns)


def _sql(node: Node, fields: SparkFields) -> Typed:
    if isinstance(node, Column):
        return _column(fields[node.name])
    if isinstance(node, Literal):
        return _literal(node)
    if node.op == "is null" and isinstance(node.args[0], Column):  # of a type without operators
        return Typed(f"({fields[node.args[0].name].sql} IS NULL)", "bool")
    if node.op not in _CALLS:
        raise UnlikeError(f"{node.op} may differ in Spark")
    return _CALLS[node.op](node, [_sql(arg, fields) for arg in node.args])


def _column(field: SparkField) -> Typed:
    kind = kind_of(field.type)
    if kind == "time":
        return Typed(micros_of(field.sql, field.type) or "", kind)
    if kind == "date":
        return Typed(f"unix_date({field.sql})", kind)
    if kind in ("decimal", "other"):
        raise UnlikeError(f"an expression over {field.type.simpleString()} may differ in Spark")
    wide = isinstance(field.type, t.LongType | t.DoubleType | t.BooleanType | t.StringType)
    return Typed(field.sql if wide else f"CAST({field.sql} AS {_SQL[kind]})", kind)


def _literal(node: Literal) -> Typed:
    value = node.value
    if isinstance(value, str):
        if _SIMPLE.fullmatch(value):
            return Typed(f"'{value}'", "string")
        return Typed(f"CAST(X'{value.encode().hex()}' AS STRING)", "string")
    if isinstance(value, datetime):
        return Typed(f"({instant(value)}L)", "time")
    if isinstance(value, date):
        return Typed(f"({(value - _EPOCH).days})", "date")
    if value is None or isinstance(value, bool):
        return Typed(str(value).upper() if value is not None else "NULL", node.kind)
    return Typed(f"({value!r}{'L' if node.kind == 'int' else 'D'})", node.kind)


def _to(value: Typed, kind: str) -> str:
    """The text of a value in another kind that can hold it."""
    if value.kind == kind:
        return value.sql
    if value.kind == "null" or (value.kind == "int" and kind == "float"):
        return f"CAST({value.sql} AS {_SQL.get(kind, 'BIGINT')})"
    raise UnlikeError(f"{value.kind} and {kind} do not go together")


def _common(values: list[Typed]) -> str:
    kinds = {value.kind for value in values} - {"null"}
    if not kinds:
        raise UnlikeError("nothing but nulls")
    return kinds.pop() if len(kinds) == 1 else "float"


def _number(values: list[Typed]) -> str:
    kinds = {value.kind for value in values}
    if not kinds <= {"int", "float", "null"}:
        raise UnlikeError("only numbers are calculated with")
    return "float" if "float" in kinds else "int"


def _arithmetic(node: Call, args: list[Typed]) -> Typed:
    kind = _number(args)
    left, right = (_to(arg, kind) for arg in args)
    if kind == "float":
        return Typed(f"({left} {node.op} {right})", kind)
    names = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}  # null where it overflows
    return Typed(f"{names[node.op]}({left}, {right})", kind)


def _divide(_: Call, args: list[Typed]) -> Typed:
    _number(args)
    left, right = (_to(arg, "float") for arg in args)
    return Typed(f"try_divide({left}, {right})", "float")


def _remainder(_: Call, args: list[Typed]) -> Typed:
    kind = _number(args)
    left, right = (_to(arg, kind) for arg in args)
    return Typed(f"try_mod({left}, {right})", kind)


def _signed(node: Call, args: list[Typed]) -> Typed:
    kind = _number(args)
    value = _to(args[0], kind)
    if kind == "float":
        return Typed(f"(- {value})" if node.op == "neg" else f"abs({value})", kind)
    minus = f"try_subtract(0L, {value})"  # null for the one number without an opposite
    return Typed(minus if node.op == "neg" else f"IF({value} < 0L, {minus}, {value})", kind)


def _sqrt(_: Call, args: list[Typed]) -> Typed:
    _number(args)
    return Typed(f"sqrt({_to(args[0], 'float')})", "float")


def _compare(node: Call, args: list[Typed]) -> Typed:
    if any(arg.kind == "null" for arg in args):
        return Typed("CAST(NULL AS BOOLEAN)", "bool")
    kind = _common(args)
    left, right = (_to(arg, kind) for arg in args)
    return Typed(f"({left} {node.op} {right})", "bool")


def _junction(node: Call, args: list[Typed]) -> Typed:
    return Typed("(" + f" {node.op.upper()} ".join(_to(a, "bool") for a in args) + ")", "bool")


def _not(_: Call, args: list[Typed]) -> Typed:
    return Typed(f"(NOT {_to(args[0], 'bool')})", "bool")


def _is_null(_: Call, args: list[Typed]) -> Typed:
    return Typed(f"({args[0].sql} IS NULL)", "bool")


def _in(_: Call, args: list[Typed]) -> Typed:
    kind = _common(args)
    value, *options = (_to(arg, kind) for arg in args)
    return Typed(f"({value} IN ({', '.join(options)}))", "bool")


def _like(node: Call, args: list[Typed]) -> Typed:
    pattern = node.args[1]
    assert isinstance(pattern, Literal)
    if any(sign in str(pattern.value) for sign in "\\_"):
        raise UnlikeError("LIKE with _ or \\ may differ in Spark")
    return Typed(f"({_to(args[0], 'string')} LIKE {args[1].sql})", "bool")


def _case(_: Call, args: list[Typed]) -> Typed:
    kind = _common([*args[1:-1:2], args[-1]])
    pairs = zip(args[0:-1:2], args[1:-1:2], strict=True)
    whens = " ".join(f"WHEN {_to(c, 'bool')} THEN {_to(v, kind)}" for c, v in pairs)
    return Typed(f"CASE {whens} ELSE {_to(args[-1], kind)} END", kind)


def _several(node: Call, args: list[Typed]) -> Typed:
    """coalesce, least, greatest: Spark passes over nulls too, and holds NaN to be the largest."""
    kind = _common(args)
    if node.op != "coalesce":
        _number(args)
    return Typed(f"{node.op}({', '.join(_to(arg, kind) for arg in args)})", kind)


def _nullif(_: Call, args: list[Typed]) -> Typed:
    kind = _common(args)
    left, right = (_to(arg, kind) for arg in args)
    return Typed(f"IF({left} = {right}, NULL, {args[0].sql})", args[0].kind)


def _cast(node: Call, args: list[Typed]) -> Typed:
    if node.to == "DOUBLE" and args[0].kind in ("int", "float"):
        return Typed(_to(args[0], "float"), "float")
    if node.to == "BIGINT" and args[0].kind == "int":
        return args[0]
    raise UnlikeError(f"CAST to {node.to} may differ in Spark")


_CALLS: dict[str, Callable[[Call, list[Typed]], Typed]] = {
    **dict.fromkeys(("+", "-", "*"), _arithmetic),
    "/": _divide,
    "%": _remainder,
    "neg": _signed,
    "abs": _signed,
    "sqrt": _sqrt,
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), _compare),
    "and": _junction,
    "or": _junction,
    "not": _not,
    "is null": _is_null,
    "in": _in,
    "like": _like,
    "case": _case,
    "coalesce": _several,
    "least": _several,
    "greatest": _several,
    "nullif": _nullif,
    "cast": _cast,
}
