"""Partials as Arrow tables, and named tables as bytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from catchment.engine.rows import Operators, Rows, identity_fields
from catchment.errors import StateError
from catchment.model import records
from catchment.operators.ragged import Field, Ints, Ragged
from catchment.operators.values import Mask, from_arrow, one_piece, to_arrow

Compression = Literal["lz4", "zstd"]
_T = TypeVar("_T")

MAGIC = b"CATCHMENT"
FORMAT = 5
_HEAD = struct.Struct(">9sHIQ")
_LARGE = 4096
"""A table of fewer bytes is not compressed: it would take longer than writing what it saves."""
_WHAT = "the record of a snapshot"

BOUNDS = ("slice_start", "slice_end", "key", "slice_first", "slice_last")


def rows_to_table(rows: Rows, operators: Operators) -> pa.Table:
    """Rows with their key codes as they are."""
    columns: dict[str, pa.Array[Any]] = {
        name: pa.array(column) for name, column in zip(BOUNDS, rows.columns(), strict=True)
    }
    return pa.table(columns | fields_to_arrow(rows.fields, operators))


def fields_to_arrow(fields: Mapping[str, Field], operators: Operators) -> dict[str, pa.Array[Any]]:
    return {
        f"{id}.{name}": to_arrow(
            fields[f"{id}.{name}"], kind, _values(fields[f"{id}.{name}"], kind)
        )
        for id, operator in operators.items()
        for name, kind in operator.fields.items()
    }


def _values(field: Field, kind: pa.DataType) -> Mask | None:
    """Where a field of a narrow type holds values: its identity is beyond the type, and is null."""
    if isinstance(field, Ragged) or field.dtype != np.int64 or kind == pa.int64():
        return None
    bounds = np.iinfo(np.int64)
    there: Mask = (field != bounds.min) & (field != bounds.max)
    return there


def table_to_rows(table: pa.Table, operators: Operators) -> Rows:
    columns = [ints(table, name) for name in BOUNDS]
    return Rows.of(columns, fields_from_arrow(table, operators))


def fields_from_arrow(table: pa.Table, operators: Operators) -> dict[str, Field]:
    like = identity_fields(operators, 1)
    there = [name for name in like if name in table.schema.names]
    fields = {name: from_arrow(whole(table, name), like[name]) for name in there}
    if len(there) < len(like):  # an older version had fewer operators
        fields |= {
            name: field
            for name, field in identity_fields(operators, table.num_rows).items()
            if name not in fields
        }
    return fields


def whole(table: pa.Table, name: str) -> pa.Array[Any]:
    return one_piece(table.column(name))


def ints(table: pa.Table, name: str) -> Ints:
    # A copy: what is read from bytes may not be written to, and keys are renumbered in place.
    return np.array(whole(table, name).to_numpy(zero_copy_only=False), np.int64)


def to_ipc(table: pa.Table) -> bytes:
    """A table in Arrow's stream format; `from_ipc` is the inverse."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def from_ipc(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


class _SnapshotText(msgspec.Struct, frozen=True):
    """The JSON before the tables."""

    meta: msgspec.Raw
    """The record beside the tables."""
    tables: dict[str, int]
    """The bytes of each table, in their order."""


def pack(
    record: object,
    tables: Mapping[str, pa.Table],
    compression: Compression | None = "zstd",
    plain: Collection[str] = (),
) -> bytes:
    """A header, a record as JSON, and tables in Arrow's stream format, under one checksum.

    Tables whose names are in `plain` are not compressed.
    """
    parts: list[Any] = []
    sizes: dict[str, int] = {}
    for name, table in tables.items():
        sink = pa.BufferOutputStream()
        pressed = table.nbytes >= _LARGE and name not in plain
        options = pa.ipc.IpcWriteOptions(compression=compression if pressed else None)
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
        data = sink.getvalue()
        sizes[name] = data.size
        parts.append(data)
    text = records.encode(_SnapshotText(msgspec.Raw(records.encode(record)), sizes))
    parts = [struct.pack(">Q", len(text)), text, *parts]
    checksum = 0
    for part in parts:  # one after the other, so that tables are copied only once
        checksum = zlib.crc32(part, checksum)
    size = sum(memoryview(part).nbytes for part in parts)
    return b"".join([_HEAD.pack(MAGIC, FORMAT, checksum, size), *parts])


def unpack(data: bytes, kind: type[_T]) -> tuple[_T, dict[str, pa.Table]]:
    """The inverse of `pack`: a record of this kind, and the tables; refuses what is not whole."""
    if len(data) < _HEAD.size or not data.startswith(MAGIC):
        raise StateError(
            "these bytes are not a snapshot",
            given=f"{len(data)} bytes",
            hint="a snapshot is written by engine.snapshot()",
        )
    _, version, checksum, length = _HEAD.unpack_from(data)
    older = "read the events again, or finish with the version that wrote it"
    records.check_format("the snapshot", version, FORMAT, older)
    body = memoryview(data)[_HEAD.size :]
    if len(body) != length or zlib.crc32(body) != checksum:
        raise StateError(
            "the snapshot is damaged or cut short",
            given=f"{len(body)} of {length} bytes",
            hint="take it again, or restore an older one",
        )
    (size,) = struct.unpack_from(">Q", body)
    text = records.decode(_SnapshotText, bytes(body[8 : 8 + size]), _WHAT)
    tables = {}
    at = 8 + size
    for name, length in text.tables.items():
        tables[name] = pa.ipc.open_stream(pa.py_buffer(body[at : at + length])).read_all()
        at += length
    return records.decode(kind, text.meta, _WHAT), tables
