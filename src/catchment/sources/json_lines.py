"""JSON lines: an object in every line."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.json as pajson

from catchment.arrow_memory import arrow_input
from catchment.sources.aside import reason_of
from catchment.sources.base import register_source
from catchment.sources.text_files import Parsed, TextFiles, has_lines, lines_of
from catchment.sources.text_values import converted

_CHANGED = re.compile(r"Column\(/(.+)\) changed from (\w+) to (\w+)")
_REFUSED = (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError)


@register_source
class JsonLines(TextFiles):
    """Files of JSON objects, one a line. A key that is missing is null, others are passed over.

    Lines that are not such objects are set aside, and the rest of the file is read.
    """

    endings: ClassVar[tuple[str, ...]] = (
        ".jsonl",
        ".ndjson",
        ".json",
        ".jsonl.gz",
        ".ndjson.gz",
        ".json.gz",
    )

    type: Literal["jsonl"] = "jsonl"

    def sample(self, block: bytes) -> pa.Table:
        lines, _ = lines_of(block)
        good = [line for line in lines if _objection(line, pa.schema([])) is None]
        if not good:
            raise OSError("there is no line that is a JSON object")
        try:
            return _json(b"\n".join(good), None)
        except pa.ArrowInvalid as error:
            if mixed := _CHANGED.search(str(error)):
                name, one, other = mixed.groups()
                raise OSError(
                    f"its column {name!r} is a {one} in one line and a {other} in another; "
                    "say which columns to read, and of which types, with schema:"
                ) from error
            raise

    def quick(self, block: bytes, header: list[str], schema: pa.Schema) -> pa.Table | None:
        for texts in (False, True):
            try:
                table, bad = _typed(block, schema, texts)
            except _REFUSED:
                continue
            # Two objects in a line, or one over several, are told apart only line by line.
            if not bad.any() and has_lines(block, table.num_rows):
                return table
        return None

    def rescue(self, block: bytes, header: list[str], schema: pa.Schema) -> Parsed:
        lines, places = lines_of(block)
        why = {at: reason for at, line in enumerate(lines) if (reason := _objection(line, schema))}
        tables: list[pa.Table] = []
        _halve(lines, [at for at in range(len(lines)) if at not in why], schema, tables, why)
        table = pa.concat_tables(tables) if tables else schema.empty_table()
        return Parsed(table, [(places[at], why[at], lines[at]) for at in sorted(why)])


def _halve(
    lines: list[bytes],
    rows: list[int],
    schema: pa.Schema,
    tables: list[pa.Table],
    why: dict[int, str],
) -> None:
    """Reads the rows that can be read, and says of the others why not."""
    if not rows:
        return
    try:
        table, bad = _typed(b"\n".join(lines[at] for at in rows), schema, texts=True)
    except _REFUSED as error:
        if len(rows) == 1:
            why[rows[0]] = reason_of(error).removeprefix("JSON parse error: ")
            return
        middle = len(rows) // 2
        _halve(lines, rows[:middle], schema, tables, why)
        _halve(lines, rows[middle:], schema, tables, why)
        return
    for number in np.flatnonzero(bad):
        why[rows[number]] = "a value does not convert to the type of its column"
    tables.append(table if not bad.any() else table.filter(pa.array(~bad)))


def _typed(block: bytes, schema: pa.Schema, texts: bool) -> tuple[pa.Table, Any]:
    """The lines as a table of the schema, and where a text did not convert."""
    asked = pa.schema([field.with_type(_type_to_read(field.type, texts)) for field in schema])
    table = _json(block, asked)
    table.validate(full=True)  # Arrow's parser lets through what is not UTF-8
    bad = np.zeros(table.num_rows, bool)
    arrays: list[Any] = []
    for field in schema:
        column = table.column(field.name)
        if column.type == field.type:
            arrays.append(column)
            continue
        values, wrong = converted(column.combine_chunks(), field.type)
        arrays.append(values)
        bad |= wrong
    return pa.Table.from_arrays(arrays, schema=schema), bad


def _type_to_read(kind: pa.DataType, texts: bool) -> pa.DataType:
    """The type to ask Arrow for: it reads days from numbers only, and no times of nanoseconds."""
    is_ = pa.types
    late = is_.is_date(kind) or is_.is_time(kind) or (texts and is_.is_timestamp(kind))
    return pa.string() if late else kind


def _json(block: bytes, schema: pa.Schema | None) -> pa.Table:
    source: Any = arrow_input(block)
    unexpected: Any = "infer" if schema is None else "ignore"
    return pajson.read_json(
        source,
        pajson.ReadOptions(use_threads=False, block_size=len(block) + 1),
        pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    )


def _objection(line: bytes, schema: pa.Schema) -> str | None:
    """Why a line is not an object of such values; None when nothing is wrong at first sight."""
    try:
        made = json.loads(line.decode())
    except UnicodeDecodeError:
        return "not UTF-8"
    except (ValueError, RecursionError) as error:
        return f"not JSON: {reason_of(error)}"
    if not isinstance(made, dict):
        return "not a JSON object"
    for field in schema:
        value = made.get(field.name)
        if value is not None and not _suits(value, field.type):
            return f"{field.name} is not of type {field.type}: {repr(value)[:100]}"
    return None


def _suits(value: object, kind: pa.DataType) -> bool:
    is_ = pa.types
    if is_.is_integer(kind):
        half = 1 << (kind.bit_width - 1)
        low, high = (-half, half) if is_.is_signed_integer(kind) else (0, 2 * half)
        return isinstance(value, int) and not isinstance(value, bool) and low <= value < high
    if is_.is_floating(kind):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if is_.is_boolean(kind):
        return isinstance(value, bool)
    if is_.is_string(kind) or is_.is_binary(kind) or is_.is_temporal(kind):
        return isinstance(value, str)
    return True  # of other types Arrow is the judge
