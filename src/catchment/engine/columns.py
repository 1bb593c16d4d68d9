"""Columns on their way: a record batch without its schema, sorted runs as differences.

A run of sorted numbers is what a median needs of a slice. Neighbours differ little: the differences
of their bits, one byte of all after the other, leave less to send than the numbers.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.errors import DataError

_SIZES = struct.Struct(">QQ")


def pack(table: pa.Table) -> bytes:
    """A table as bytes, from which `unpack` makes it again given its schema."""
    runs: list[bytes] = []
    arrays: list[pa.Array[Any]] = []
    for field, column in zip(table.schema, table.columns, strict=True):
        array: Any = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if _is_run(field.type):
            runs.append(_differences(array.flatten()))
            array = array.value_lengths()
        arrays.append(array)
    batch = pa.RecordBatch.from_arrays(arrays, schema=_lean(table.schema))
    body = batch.serialize().to_pybytes()
    rest = b"".join(runs)
    return _SIZES.pack(len(body), len(rest)) + body + rest


def unpack(data: bytes, schema: pa.Schema) -> pa.Table:
    """The inverse of `pack`."""
    size, rest = _SIZES.unpack_from(data)
    at = _SIZES.size + size
    if at + rest != len(data):
        raise DataError("columns are not as long as they say", given=f"{len(data)} bytes")
    batch = pa.ipc.read_record_batch(pa.py_buffer(data[_SIZES.size : at]), _lean(schema))
    arrays: list[pa.Array[Any]] = []
    for field, array in zip(schema, batch.columns, strict=True):
        run: Any = field.type
        if _is_run(field.type):
            lengths = array.to_numpy(zero_copy_only=False).astype(np.int64)
            wrong = array.null_count or ((lengths < 0) | (lengths > len(data))).any()
            if wrong or int(lengths.sum()) * 8 > len(data) - at:
                raise DataError("a sorted run is not as long as it says", given=field.name)
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            count = int(offsets[-1])
            values = _values(data[at : at + 8 * count], run.value_type)
            at += 8 * count
            small = pa.types.is_list(run)
            maker: Any = pa.ListArray if small else pa.LargeListArray
            places = pa.array(offsets, pa.int32() if small else pa.int64())
            array = maker.from_arrays(places, values, type=run)
        arrays.append(array)
    if at != len(data):
        raise DataError("sorted runs are not as long as they say", given=f"{len(data)} bytes")
    return pa.Table.from_arrays(arrays, schema=schema)


def _is_run(kind: Any) -> bool:
    """Lists of numbers of eight bytes, none of them null."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    return bool(kind.value_type in (pa.int64(), pa.float64()))


def _lean(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [
            pa.field(field.name, pa.int32() if pa.types.is_list(field.type) else pa.int64())
            if _is_run(field.type)
            else field
            for field in schema
        ]
    )


def _differences(values: pa.Array[Any]) -> bytes:
    bits = np.ascontiguousarray(values.to_numpy(zero_copy_only=False)).view(np.int64)
    steps = np.diff(bits, prepend=np.int64(0))
    return steps.view(np.uint8).reshape(-1, 8).T.tobytes()


def _values(data: bytes, kind: pa.DataType) -> pa.Array[Any]:
    steps = np.frombuffer(data, np.uint8).reshape(8, -1).T.copy().view(np.int64).ravel()
    bits = np.cumsum(steps)
    made: pa.Array[Any] = pa.array(bits if kind == pa.int64() else bits.view(np.float64), kind)
    return made
