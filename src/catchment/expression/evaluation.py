"""Nodes over whole columns, and the type that comes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import SchemaError, did_you_mean
from catchment.expression import arithmetic as a
from catchment.expression import casting, compare, lists, lookup, text_parts, time_parts
from catchment.expression.constants import with_constants
from catchment.expression.nodes import Column, Literal, Node
from catchment.expression.parsing import columns, parse
from catchment.expression.refuse import PARTS
from catchment.expression.simple import comparisons
from catchment.expression.values import TIME, Kernel, Value, decoded, is_text

_LITERALS: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "string": pa.string(),
    "time": TIME,
    "date": pa.date32(),
}
KERNELS: dict[str, Kernel] = {
    "+": a.arithmetic,
    "-": a.arithmetic,
    "*": a.arithmetic,
    "/": a.divide,
    "%": a.remainder,
    "neg": a.signed,
    "abs": a.signed,
    "round": a.rounded,
    "floor": a.stepped,
    "ceil": a.stepped,
    "sqrt": a.sqrt,
    "exp": a.exponential,
    "power": a.power,
    "ln": a.ln,
    "log": a.log,
    "lower": a.lower,
    "upper": a.upper,
    "length": a.length,
    "=": compare.compare,
    "<>": compare.compare,
    "<": compare.compare,
    "<=": compare.compare,
    ">": compare.compare,
    ">=": compare.compare,
    "and": compare.junction,
    "or": compare.junction,
    "not": compare.negation,
    "is null": compare.is_null,
    "in": compare.contained,
    "like": compare.like,
    "case": compare.case,
    "coalesce": compare.coalesce,
    "nullif": compare.nullif,
    "least": compare.extreme,
    "greatest": compare.extreme,
    "cast": casting.cast,
    "concat": text_parts.concat,
    "substring": text_parts.substring,
    "trim": text_parts.trim,
    "tuple": text_parts.combined,
    "arguments": compare.together,
    "size": lists.size,
    "array_contains": lists.contains,
    "lookup": lookup.looked_up,
    lookup.UNQUALIFIED: lookup.looked_up,
    "date_trunc": time_parts.truncated,
} | dict.fromkeys(PARTS, time_parts.part)


def evaluate(text: str, get: Callable[[str], Any], length: int) -> Any:
    """The expression's value for each of `length` rows; `get` gives a column by its name.

    >>> evaluate("v * 2 > 5", {"v": pa.array([1, 3, None])}.__getitem__, 3).to_pylist()
    [False, True, None]
    """
    node = parse(text)
    if isinstance(node, Column):
        return get(node.name)
    names = columns(text)
    if len(names) == 1:
        only = get(names[0])
        if isinstance(only, pa.DictionaryArray) and len(only.dictionary) < length:
            return _by_code(node, only)
        return _run(node, {names[0]: only}.__getitem__, length)
    return _run(node, get, length)


def _by_code(node: Node, column: Any) -> Any:
    """Once per distinct value (and once for null) instead of once per row."""
    values = decoded(column.dictionary)
    values = pa.concat_arrays([values, pa.nulls(1, values.type)])
    results = _run(node, lambda _: values, len(values))
    codes: Any = pc.coalesce(column.indices.cast(pa.int64()), pa.scalar(len(values) - 1))
    return results.take(codes)


def _run(node: Node, get: Callable[[str], Any], length: int) -> Any:
    known: dict[Node, Value] = {}

    def value(node: Node) -> Value:
        if isinstance(node, Literal):
            return pa.scalar(node.value, _LITERALS[node.kind])
        if node not in known:
            if isinstance(node, Column):
                known[node] = decoded(get(node.name))
            else:
                args = [value(arg) for arg in node.args]
                known[node] = KERNELS[node.op](node, with_constants(node, args))
        return known[node]

    result = value(node)
    repeat: Any = pa.repeat
    return repeat(result, length) if isinstance(result, pa.Scalar) else result


def infer(text: str, schema: pa.Schema) -> pa.DataType:
    """The type of the expression over events of a schema; SchemaError where it does not fit.

    >>> infer("v / 2", pa.schema({"v": pa.int32()}))
    DataType(double)
    """
    if _compares_plainly(text, schema):
        return pa.bool_()
    names = columns(text)
    if _LOOKUP in text or not set(names).issubset(schema.names):
        return _inferred(text, schema)
    return _type_of(text, tuple(schema.field(name).type for name in names))


_LOOKUP = "lookup"
"""What a text has in it whose type a table says that may be written anew."""


@lru_cache(maxsize=65536)
def _type_of(text: str, types: tuple[pa.DataType, ...]) -> pa.DataType:
    """The type of an expression whose columns, in the order of their first use, have these."""
    return _inferred(text, pa.schema(list(zip(columns(text), types, strict=True))))


def _inferred(text: str, schema: pa.Schema) -> pa.DataType:
    """The type of what the expression gives for no events."""

    def get(name: str) -> Any:
        if name not in schema.names:
            hint = did_you_mean(name, schema.names)
            raise SchemaError("no such column", given=name, hint=hint)
        return pa.nulls(0, schema.field(name).type)

    if _LOOKUP in text:
        lookup.check_unqualified(parse(text), schema)
    result: pa.DataType = evaluate(text, get, 0).type
    return result


def _compares_plainly(text: str, schema: pa.Schema) -> bool:
    """Whether a text compares numbers with numbers and texts with texts, and nothing else.

    Of many queries most conditions are such, and to evaluate each of them over no events would take
    most of the time to bind a plan.
    """
    compared = comparisons(text)
    for column, _, constants in compared or ():
        place = schema.get_field_index(column)  # -1: no such column, or several
        kind = None if place < 0 else schema.field(place).type
        if kind is None or not all(_alike(kind, value) for value in constants):
            return False
    return compared is not None


def _alike(kind: pa.DataType, constant: object) -> bool:
    if isinstance(constant, str):
        return is_text(kind)
    return pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
