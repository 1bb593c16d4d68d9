"""Nodes over whole columns, and the type that comes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import SchemaError, did_you_mean
from catchment.expression import arithmetic as a
from catchment.expression import (
    casting,
    compare,
    digests,
    json_texts,
    lists,
    lookup,
    maths,
    paths,
    patterns,
    structs,
    text_parts,
    time_functions,
    time_parts,
)
from catchment.expression.constants import with_constants
from catchment.expression.named import PARTS
from catchment.expression.nodes import Column, Literal, Node
from catchment.expression.parsing import columns, parse
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
    "+": time_functions.added,
    "-": time_functions.added,
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
    "equal_null": compare.equal_null,
    "like": patterns.like,
    "ilike": patterns.like,
    "rlike": patterns.matched,
    "regexp_extract": patterns.extracted,
    "regexp_replace": patterns.replaced,
    "split": patterns.split,
    "split_part": patterns.split_part,
    "case": compare.case,
    "coalesce": compare.coalesce,
    "nullif": compare.nullif,
    "least": compare.extreme,
    "greatest": compare.extreme,
    "cast": casting.cast,
    "concat": text_parts.concat,
    "substring": text_parts.substring,
    "trim": text_parts.trimmed,
    "tuple": text_parts.combined,
    "ltrim": text_parts.trimmed,
    "rtrim": text_parts.trimmed,
    "right": text_parts.right,
    "lpad": text_parts.padded,
    "rpad": text_parts.padded,
    "repeat": text_parts.repeated,
    "reverse": text_parts.reversed_text,
    "replace": text_parts.replace,
    "instr": text_parts.place_of,
    "contains": text_parts.holds,
    "startswith": text_parts.holds,
    "endswith": text_parts.holds,
    "concat_ws": text_parts.concat_ws,
    "md5": digests.md5,
    "sha2": digests.sha2,
    "hash": digests.hashed,
    "get_json_object": json_texts.json_object,
    "isnan": maths.is_nan,
    "int_div": maths.whole_quotient,
    "pmod": maths.positive_remainder,
    "arguments": structs.together,
    "named_struct": structs.named_struct,
    "element_at": lists.element_at,
    "part_of": paths.part_of,
    "array_max": lists.extreme,
    "array_min": lists.extreme,
    "unix_timestamp": time_functions.since_epoch,
    "unix_seconds": time_functions.since_epoch,
    "unix_millis": time_functions.since_epoch,
    "unix_micros": time_functions.since_epoch,
    "unix_date": time_functions.unix_date,
    "timestamp_seconds": time_functions.from_epoch,
    "timestamp_millis": time_functions.from_epoch,
    "timestamp_micros": time_functions.from_epoch,
    "date_format": time_functions.formatted,
    "from_unixtime": time_functions.from_seconds,
    "from_utc_timestamp": time_functions.in_zone,
    "to_utc_timestamp": time_functions.in_zone,
    "timestampadd": time_functions.moved,
    "plus_interval": time_functions.moved,
    "timestampdiff": time_functions.difference,
    "date_add": time_functions.days_moved,
    "date_sub": time_functions.days_moved,
    "datediff": time_functions.days_between,
    "last_day": time_functions.last_day,
    "make_date": time_functions.made_date,
    "array": lists.array,
    "array_distinct": lists.distinct,
    "array_join": lists.join,
    "array_sort": lists.ordered,
    "sort_array": lists.ordered,
    "initcap": text_parts.of_text,
    "ascii": text_parts.of_text,
    "octet_length": text_parts.of_text,
    "bit_length": text_parts.of_text,
    "translate": text_parts.translated,
    "substring_index": text_parts.before_delimiter,
    "regexp_count": patterns.counted,
    "regexp_substr": patterns.first_match,
    "crc32": digests.crc32,
    "factorial": maths.factorial,
    "hex": maths.digits,
    "bin": maths.digits,
    "format_number": maths.format_number,
    "width_bucket": maths.bucket,
    "size": lists.size,
    "array_contains": lists.contains,
    "lookup": lookup.looked_up,
    lookup.UNQUALIFIED: lookup.looked_up,
    "date_trunc": time_parts.truncated,
}
KERNELS |= dict.fromkeys(PARTS, time_parts.part)
KERNELS |= dict.fromkeys(maths.OPS, maths.of_numbers) | dict.fromkeys(maths.BIT_OPS, maths.of_bits)


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
