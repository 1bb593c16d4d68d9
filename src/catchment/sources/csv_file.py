"""CSV files: names in the first line, a row in every other."""

from __future__ import annotations

import csv
import re
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from pydantic import Field, field_validator

from catchment.arrow_memory import arrow_input
from catchment.sources.aside import reason_of
from catchment.sources.base import register_source
from catchment.sources.text_files import Parsed, TextFiles, has_lines, lines_of
from catchment.sources.text_values import converted
from catchment.sources.types import fit

_ZONED = re.compile(rb":\d\d(?:\.\d+)?(?:Z|[+-]\d\d)")


@register_source
class Csv(TextFiles):
    """CSV files. A row is a line: a value in quotes may hold delimiters, but no line ends.

    An empty value without quotes is null; `nulls` adds other words for it. Times without a zone are
    UTC. Rows that do not parse are set aside, and the rest of the file is read.
    """

    endings: ClassVar[tuple[str, ...]] = (".csv", ".csv.gz")

    type: Literal["csv"] = "csv"
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    nulls: tuple[str, ...] = ("",)

    @field_validator("delimiter")
    @classmethod
    def _one_byte(cls, value: str) -> str:
        if not value.isascii() or value in '"\n\r':
            raise ValueError("must be one ASCII character, and no quote or line end")
        return value

    def header(self, first: bytes) -> tuple[list[str], int]:
        end = first.find(b"\n") + 1 or len(first)
        text = first[:end].decode("utf-8-sig").rstrip("\r\n")
        names = next(csv.reader([text], delimiter=self.delimiter), [])
        if not any(names):
            raise OSError("the first line has no names of columns")
        return names, end

    def sample(self, block: bytes) -> pa.Table:
        names, skipped = self.header(block)
        clear = [name for name in names if name and names.count(name) == 1]
        texts = pa.schema([pa.field(name, pa.string()) for name in clear])
        good = self.parse(block[skipped:], names, texts)
        if not good.table.num_rows:
            return good.table
        written = pa.BufferOutputStream()
        pacsv.write_csv(good.table, written)
        buffer = written.getvalue()
        source: Any = arrow_input(buffer)
        return pacsv.read_csv(
            source,
            pacsv.ReadOptions(use_threads=False, block_size=buffer.size + 1),
            convert_options=pacsv.ConvertOptions(
                null_values=list(self.nulls),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def quick(self, block: bytes, header: list[str], schema: pa.Schema) -> pa.Table | None:
        for zone in _zones(block, schema):
            try:
                table = self._table(block, header, _readable(schema, zone))
            except pa.ArrowInvalid:
                continue
            if self._one_a_line(block, table.num_rows):
                return fit(table, schema)
        return None

    def _table(
        self, block: bytes, header: list[str], schema: pa.Schema, skip: Any = None
    ) -> pa.Table:
        source: Any = arrow_input(block)
        return pacsv.read_csv(
            source,
            pacsv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=header),
            pacsv.ParseOptions(delimiter=self.delimiter, invalid_row_handler=skip),
            pacsv.ConvertOptions(
                column_types=schema,
                include_columns=schema.names,
                null_values=list(self.nulls),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _one_a_line(self, block: bytes, rows: int) -> bool:
        """Whether every line became a row: one whose quote is not closed swallows others."""
        if b'"' not in block:
            return True
        start = block.rfind(b"\n", 0, len(block) - 1) + 1
        return has_lines(block, rows) and self._closes(block[start:].rstrip(b"\r\n"))

    def _closes(self, line: bytes) -> bool:
        try:
            text = line.decode(errors="replace").rstrip("\r")
            return bool(next(csv.reader([text], delimiter=self.delimiter, strict=True), True))
        except csv.Error:
            return False

    def rescue(self, block: bytes, header: list[str], schema: pa.Schema) -> Parsed:
        # As texts first, then each value by itself.
        lines, places = lines_of(block)
        why: dict[int, str] = {}
        for at, line in enumerate(lines):
            if not _is_utf8(line):
                why[at] = "not UTF-8"
            elif b'"' in line and not self._closes(line):
                why[at] = "a quote is not closed"
        rows = [at for at in range(len(lines)) if at not in why]
        texts, uneven = self._texts([lines[at] for at in rows], header, schema)
        for number, reason in uneven.items():
            why[rows[number]] = reason
        rows = [at for number, at in enumerate(rows) if number not in uneven]
        arrays, wrong = [], np.zeros(len(rows), bool)
        for field in schema:
            column = texts.column(field.name).combine_chunks()
            values, bad = converted(column, field.type)
            arrays.append(values)
            for place in np.flatnonzero(bad & ~wrong):
                value = column[int(place)].as_py()[:100]
                why[rows[place]] = f"{field.name} is not of type {field.type}: {value!r}"
            wrong |= bad
        table = pa.Table.from_arrays(arrays, schema=schema)
        good = table if not wrong.any() else table.filter(pa.array(~wrong))
        return Parsed(good, [(places[at], why[at], lines[at]) for at in sorted(why)])

    def _texts(
        self, lines: list[bytes], header: list[str], schema: pa.Schema
    ) -> tuple[pa.Table, dict[int, str]]:
        """Lines as texts, and those of another number of values."""
        plain = pa.schema([pa.field(name, pa.string()) for name in schema.names])
        uneven: dict[int, str] = {}

        def skip(row: Any) -> Literal["skip"]:
            reason = f"{row.actual_columns} values instead of {row.expected_columns}"
            uneven[row.number - 1] = reason
            return "skip"

        if not lines:
            return plain.empty_table(), uneven
        try:
            table = self._table(b"\n".join(lines) + b"\n", header, plain, skip)
            if table.num_rows + len(uneven) == len(lines):
                return table, uneven
            reason = "the line is not one row"
        except pa.ArrowInvalid as error:
            reason = reason_of(error)
        if len(lines) == 1:
            return plain.empty_table(), {0: reason}
        middle = len(lines) // 2
        first, uneven = self._texts(lines[:middle], header, schema)
        second, others = self._texts(lines[middle:], header, schema)
        uneven |= {middle + number: why for number, why in others.items()}
        return pa.concat_tables([first, second]), uneven


def _zones(block: bytes, schema: pa.Schema) -> tuple[str | None, ...]:
    """Which kind of times to try first: with a zone, or without."""
    if not any(pa.types.is_timestamp(field.type) for field in schema):
        return (None,)
    first = block[: block.find(b"\n") + 1 or len(block)]
    return ("UTC", None) if _ZONED.search(first) else (None, "UTC")


def _readable(schema: pa.Schema, zone: str | None) -> pa.Schema:
    """The types to ask Arrow for: it takes times with a zone, or without, but not both."""
    return pa.schema(
        [
            field.with_type(pa.timestamp(field.type.unit, zone))
            if isinstance(field.type, pa.TimestampType)
            else field
            for field in schema
        ]
    )


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
