"""Types of columns by their words, as in SQL, and fitting what was read to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import SourceError, did_you_mean
from catchment.expression.values import is_text

TIME = pa.timestamp("us", "UTC")
CODES = pa.dictionary(pa.int32(), pa.string())
"""Texts as numbers into a list of the distinct ones."""
WORDS: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "int8": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int16": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "int32": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "text": pa.string(),
    "varchar": pa.string(),
    "utf8": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIME,
}
_DECIMAL = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_NESTED = re.compile(r"(struct|map|array)\s*<(.*)>", re.DOTALL | re.IGNORECASE)
_UNITS = ("s", "ms", "us", "ns")


def type_of(word: str) -> pa.DataType:
    """The type a word stands for, as Spark writes it.

    >>> type_of("bigint"), type_of("DECIMAL(10, 2)")
    (DataType(int64), Decimal128Type(decimal128(10, 2)))
    >>> str(type_of("struct<bytes: bigint, tags: array<string>>"))
    'struct<bytes: int64, tags: list<item: string>>'
    """
    if found := _NESTED.fullmatch(word.strip()):
        return _nested(found[1].lower(), found[2], word)
    plain = word.strip().lower()
    if plain in WORDS:
        return WORDS[plain]
    if found := _DECIMAL.fullmatch(plain):
        precision, scale = int(found[1]), int(found[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
        raise SourceError(
            "no such decimal type", given=word, hint="it has 1 to 38 digits, as in decimal(10, 2)"
        )
    raise SourceError(
        "no such type of column",
        given=word,
        hint=did_you_mean(plain, [*WORDS, "decimal(10, 2)", "struct<a: bigint>", "array<string>"]),
    )


def _nested(outer: str, inside: str, word: str) -> pa.DataType:
    parts = _parted(inside)
    if outer == "array" and len(parts) == 1:
        return pa.list_(type_of(parts[0]))
    if outer == "map" and len(parts) == 2:
        return pa.map_(type_of(parts[0]), type_of(parts[1]))
    named = [part.partition(":") for part in parts]
    if outer == "struct" and all(name.strip() and mark for name, mark, _ in named):
        return pa.struct([pa.field(name.strip(), type_of(inner)) for name, _, inner in named])
    raise SourceError(
        "a nested type has the wrong parts",
        given=word,
        hint="write struct<bytes: bigint, host: string>, map<string, double> or array<string>",
    )


def _parted(text: str) -> list[str]:
    """What stands between commas that are in no brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def schema_of(types: Mapping[str, str]) -> pa.Schema:
    """The schema of columns and the words of their types.

    >>> schema_of({"ts": "timestamp", "v": "double"}).types
    [TimestampType(timestamp[us, tz=UTC]), DataType(double)]
    """
    return pa.schema([pa.field(name, type_of(word)) for name, word in types.items()])


def misfit(have: pa.Schema, want: pa.Schema) -> str | None:
    """Why events of one schema cannot be read as events of another; None when they can."""
    for field in want:
        places = have.get_all_field_indices(field.name)
        if not places:
            return f"it has no column {field.name!r}"
        if len(places) > 1:
            return f"it has {len(places)} columns {field.name!r}"
        found = have.field(places[0]).type
        if not fits(found, field.type):
            return f"its column {field.name!r} is {found}, not {field.type}"
    return None


def fits(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether every value of one type has its place in another."""
    is_ = pa.types
    if have == want or is_.is_null(have):
        return True
    if isinstance(have, pa.DictionaryType):
        return fits(have.value_type, want)
    if isinstance(want, pa.DictionaryType):
        return fits(have, want.value_type)
    if is_.is_integer(have):
        return _whole_fits(have, want)
    if is_.is_floating(have):
        return is_.is_floating(want) and want.bit_width >= have.bit_width
    if is_text(have):
        return is_text(want)
    if isinstance(have, pa.TimestampType):
        return isinstance(want, pa.TimestampType) and _moment_fits(have, want)
    if is_.is_date(have):
        return is_.is_date64(want) or is_.is_timestamp(want)
    if isinstance(have, pa.Decimal128Type) and isinstance(want, pa.Decimal128Type):
        room = want.precision - want.scale >= have.precision - have.scale
        return bool(room and want.scale >= have.scale)
    return False


def _whole_fits(have: pa.DataType, want: pa.DataType) -> bool:
    signed = pa.types.is_signed_integer
    if pa.types.is_floating(want):
        return have.bit_width < {16: 8, 32: 24, 64: 53}[want.bit_width]
    if not pa.types.is_integer(want) or (signed(have) and not signed(want)):
        return False
    wider = 0 if signed(have) == signed(want) else 1
    return want.bit_width >= have.bit_width + wider


def _moment_fits(have: pa.TimestampType[Any, Any], want: pa.TimestampType[Any, Any]) -> bool:
    if have.tz is not None and want.tz is None:
        return False
    # The engine works in microseconds, so what is finer may be let go.
    finer = _UNITS.index(want.unit) >= _UNITS.index(have.unit)
    return finer or (have.unit == "ns" and want.unit == "us")


def plain(field: pa.Field[Any]) -> pa.Field[Any]:
    """A field with nothing that differs from file to file: of codes, only those of texts stay."""
    kind = field.type
    if isinstance(kind, pa.DictionaryType):
        kind = CODES if is_text(kind.value_type) else kind.value_type
    elif pa.types.is_null(kind):
        kind = pa.string()  # what other files have there is not known; lines are guessed alike
    return pa.field(field.name, kind)


def fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, in its types; ArrowInvalid where a value has no place in them."""
    if table.schema.equals(schema):
        return table
    columns = [_fit_column(table.column(field.name), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _fit_column(column: Any, to: pa.DataType) -> Any:
    if column.type == to:
        return column
    if isinstance(to, pa.DictionaryType):
        # Other dictionaries are decoded first: their codes may be of another width.
        return _fit_column(column, to.value_type).dictionary_encode()
    if isinstance(column.type, pa.DictionaryType):
        return _fit_column(column.cast(column.type.value_type), to)
    if isinstance(column.type, pa.TimestampType) and column.type.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    return column.cast(to)
