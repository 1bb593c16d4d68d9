"""Columns on their way: numbers in few bytes, sorted runs as differences, the rest as Arrow has it.

    | rows | sizes | columns of numbers | other columns, a record batch | sorted runs |

The schema does not travel. A run of sorted numbers is what a median needs of a slice. Neighbours
differ little: the differences of their bits, one byte of all after the other, leave less to send
than the numbers.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.engine import numbers
from catchment.errors import DataError
from catchment.model.unpacking import uncompressed, unpacks

_SIZES = struct.Struct(">III")
"""Rows, and the bytes of the columns of numbers and of the record batch."""
_LARGEST = 1 << 30
"""Bytes that columns may have once they are unpacked."""
_REST = b"\0"
"""Stands for a column that is not encoded as numbers: the record batch has it."""


def pack(table: pa.Table) -> bytes:
    """A table as bytes, from which `unpack` makes it again given its schema."""
    runs: list[bytes] = []
    whole: list[bytes] = []
    rest: list[tuple[pa.Field[Any], pa.Array[Any]]] = []
    for field, column in zip(table.schema, table.columns, strict=True):
        array: Any = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if _is_run(field.type):
            runs.append(_differences(array.flatten()))
            array = array.value_lengths()
        if numbers.encodable(array.type) and not array.null_count:
            whole.append(numbers.encode(array))
        else:
            whole += [_REST] if numbers.encodable(array.type) else []
            rest.append((field, array))
    body = b""
    if rest:
        schema = _lean(pa.schema([field for field, _ in rest]))
        batch = pa.RecordBatch.from_arrays([array for _, array in rest], schema=schema)
        body = batch.serialize().to_pybytes()
    head = b"".join(whole)
    return _SIZES.pack(table.num_rows, len(head), len(body)) + head + body + b"".join(runs)


def unpack(data: bytes, schema: pa.Schema) -> pa.Table:
    """The inverse of `pack`."""
    rows, size, rest = _SIZES.unpack_from(data)
    begin = _SIZES.size + size
    at = begin + rest
    nbytes = rows * 8 * max(len(schema), 1)
    if at > len(data) or nbytes > _LARGEST:
        raise DataError("columns are not as long as they say", given=f"{len(data)} bytes")
    unpacks(nbytes)
    found = _numbers(data[_SIZES.size : begin], rows, schema)
    others = [field for field in schema if field.name not in found]
    if others:
        lean = _lean(pa.schema(others))
        message = pa.ipc.read_message(pa.py_buffer(data[begin:at]))
        if not uncompressed(memoryview(message.metadata)):
            raise DataError("columns are compressed twice", given=f"{len(data)} bytes")
        batch = pa.ipc.read_record_batch(message, lean)
        found |= dict(zip(lean.names, batch.columns, strict=True))
    arrays: list[pa.Array[Any]] = []
    for field in schema:
        array: Any = found[field.name]
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


def _numbers(data: bytes, rows: int, schema: pa.Schema) -> dict[str, pa.Array[Any]]:
    """The columns of numbers, by name."""
    found: dict[str, pa.Array[Any]] = {}
    at = 0
    for field in _lean(schema):
        if not numbers.encodable(field.type):
            continue
        if data[at : at + 1] == _REST:
            at += 1
        else:
            found[field.name], at = numbers.decode(data, at, rows, field.type)
    if at != len(data):
        raise DataError("columns of numbers are not as long as they say", given=f"{at} bytes")
    return found


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
