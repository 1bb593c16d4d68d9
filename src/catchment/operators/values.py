"""Between Arrow columns and the NumPy arrays that operators work on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catchment.expression.decimals import digits_of
from catchment.operators.base import Argument, InputForm, is_exact
from catchment.operators.coupons import coupons
from catchment.operators.limbs import doubles_of, is_narrow, narrow_decimals, split, units_of
from catchment.operators.ragged import Array, Field, Ints, Ragged, plain

Mask = npt.NDArray[np.bool_]


class ColumnValues(NamedTuple):
    """A column's values (int64, float64, ranks into `levels`, or units), and which are not null."""

    values: Array
    valid: Mask | None
    levels: Array | None
    parts: tuple[Argument, ...] = ()
    """The columns of arguments that are read as parts; there are no values then."""

    def take(self, rows: Ints) -> ColumnValues:
        """Some of the rows."""
        return ColumnValues(
            self.values.take(rows) if not self.parts else self.values,
            None if self.valid is None else self.valid.take(rows),
            self.levels,
            tuple(part.where(rows) for part in self.parts),
        )

    def hashed(self) -> ColumnValues:
        """The same as hashes: coupons, or ranks into those of all values that there may be."""
        values, levels = coupons(self.values, self.levels)
        return ColumnValues(values, self.valid, levels)


def truths(array: pa.Array[Any]) -> Mask:
    """A column of booleans without nulls. Arrow hands them over one by one, NumPy eight at once.

    >>> truths(pa.array([True, False, True]).slice(1)).tolist()
    [False, True]
    """
    _, bits = array.buffers()
    if not len(array) or bits is None:
        return np.zeros(0, np.bool_)
    first, offset = divmod(array.offset, 8)
    some: Any = memoryview(bits)[first : first + (offset + len(array) + 7) // 8]
    unpacked = np.unpackbits(np.frombuffer(some, np.uint8), bitorder="little")
    return unpacked[offset : offset + len(array)].view(np.bool_)


def of_truths(mask: Mask) -> pa.Array[Any]:
    """The same as a column again."""
    bits: Any = np.packbits(mask, bitorder="little")  # the stubs know no buffer protocol
    made: pa.Array[Any] = pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits)])
    return made


_NOTHING = np.empty(0, np.int64)


def one_piece(column: pa.ChunkedArray[Any]) -> pa.Array[Any]:
    """A column as one array, without a copy where it is one already."""
    if not column.num_chunks:
        nothing: pa.Array[Any] = pa.nulls(0, column.type)
        return nothing
    if column.num_chunks == 1:
        return column.chunks[0]
    if isinstance(column.type, pa.DictionaryType):  # together they may not fit one dictionary
        column = column.cast(column.type.value_type)
    return column.combine_chunks()


def column_of(array: pa.Array[Any], reads: InputForm = "doubles") -> ColumnValues:
    """Reads a column as an operator wants it, without a copy where its type and nulls allow."""
    if reads == "hashes":
        return column_of(array, "values").hashed()
    if reads == "parts":
        assert isinstance(array, pa.StructArray)
        inner = [column_of(part, "values") for part in array.flatten()]
        return ColumnValues(_NOTHING, None, None, tuple(Argument(*read[:3]) for read in inner))
    valid = None
    if array.null_count:
        valid = truths(pc.is_valid(array))
    kind = array.type
    if reads != "doubles" and is_exact(kind) and (reads == "units" or is_narrow(kind)):
        return ColumnValues(units_of(array), valid, None)
    if reads == "doubles" and pa.types.is_decimal(kind):
        return ColumnValues(doubles_of(split(units_of(array)), digits_of(kind)[1]), valid, None)
    if pa.types.is_floating(kind) or (reads == "doubles" and is_exact(kind)):
        return ColumnValues(_plain(array, pa.float64()), valid, None)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return ColumnValues(_plain(array, pa.int64()), valid, None)
    if pa.types.is_boolean(kind):
        return ColumnValues(truths(array.fill_null(False)).astype(np.int64), valid, None)
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        return ColumnValues(_plain(array.view(_whole(kind.bit_width)), pa.int64()), valid, None)
    if pa.types.is_null(kind):
        return ColumnValues(np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_), None)
    return _ranked(array, valid)


def _whole(bits: int) -> pa.DataType:
    return pa.int32() if bits == 32 else pa.int64()


def _plain(array: pa.Array[Any], type: pa.DataType) -> Array:
    if array.type != type:
        array = array.cast(type, safe=False)
    if array.null_count:
        array = array.fill_null(0)
    return array.to_numpy(zero_copy_only=False)


def _ranked(array: pa.Array[Any], valid: Mask | None) -> ColumnValues:
    """Values that are not numbers, as ranks into their sorted distinct values."""
    kind = array.type
    if isinstance(kind, pa.Decimal32Type | pa.Decimal64Type):  # which have no kernels yet
        array = array.cast(pa.decimal128(kind.precision, kind.scale))
    try:
        if isinstance(array, pa.DictionaryArray) and array.dictionary.null_count:
            array = array.dictionary_decode()
            valid = truths(pc.is_valid(array))
        encoded = array if isinstance(array, pa.DictionaryArray) else array.dictionary_encode()
        order = _order(encoded.dictionary)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError):
        return ColumnValues(np.arange(len(array)), valid, objects(array.to_pylist()))
    rank = np.empty(len(order) + 1, np.int64)
    rank[order] = np.arange(len(order))
    indices = encoded.indices.fill_null(len(order)) if array.null_count else encoded.indices
    levels = objects(encoded.dictionary.take(order).to_pylist())
    return ColumnValues(rank[indices.to_numpy().astype(np.int64)], valid, levels)


def column_of_texts(codes: Ints, texts: pa.Array[Any]) -> ColumnValues:
    """A column of texts, given as their places among distinct ones, of which one may be null.

    >>> made = column_of_texts(np.array([1, 0, 1]), pa.array(["b", "a"]))
    >>> made.values.tolist(), made.levels.tolist()
    ([0, 1, 0], ['a', 'b'])
    """
    order = _order(texts)  # null comes last
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    values = rank[codes]
    known = len(texts) - texts.null_count
    levels = objects(texts.take(order[:known]).to_pylist())
    return ColumnValues(values, values < known if texts.null_count else None, levels)


def _order(values: pa.Array[Any]) -> Ints:
    """The places of values, from the least to the greatest."""
    try:
        return pc.array_sort_indices(values).to_numpy().astype(np.int64)
    except pa.ArrowNotImplementedError:
        listed: list[Any] = values.to_pylist()
        return np.array(sorted(range(len(listed)), key=lambda row: listed[row]), np.int64)


def objects(values: list[Any]) -> Array:
    """An object array of exactly these, whatever they are."""
    out = np.empty(len(values), object)
    out[:] = values if not values or not isinstance(values[0], list) else None
    if values and isinstance(values[0], list):
        for row, value in enumerate(values):
            out[row] = value
    return out


def to_arrow(values: Field, type: pa.DataType, valid: Mask | None = None) -> pa.Array[Any]:
    """Values back in their Arrow type; null where not valid."""
    if isinstance(values, Ragged):
        assert isinstance(type, pa.ListType)
        offsets = pa.array(values.offsets, pa.int32())
        return pa.ListArray.from_arrays(offsets, to_arrow(values.values, type.value_type))
    mask = None if valid is None or valid.all() else ~valid
    if values.dtype == object:
        return pa.array(values.tolist() if mask is None else _masked(values, mask), type)
    if pa.types.is_boolean(type):
        return pa.array(values.astype(np.bool_), mask=mask)
    if pa.types.is_temporal(type):
        whole = _whole(type.bit_width)
        return pa.array(values, mask=mask).cast(whole, safe=False).view(type)
    if values.dtype == np.int64 and pa.types.is_decimal(type):
        return narrow_decimals(values, type, mask)
    array = pa.array(values, mask=mask)
    return array if array.type == type else array.cast(type, safe=False)


def _masked(values: Array, mask: Mask) -> list[Any]:
    return [None if gone else value for value, gone in zip(values.tolist(), mask, strict=True)]


def from_arrow(array: pa.Array[Any], like: Field) -> Field:
    """A partial's column as operators hold it; null is the identity, as in `like`'s one row."""
    if isinstance(like, Ragged):
        assert isinstance(array, pa.ListArray)
        offsets = array.offsets.to_numpy().astype(np.int64)
        flat = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        return Ragged(offsets - offsets[0], plain(from_arrow(flat, like.values)))
    if like.dtype == object:
        return objects(array.to_pylist())
    column = column_of(array, "values")
    if column.valid is None:
        return column.values
    return np.where(column.valid, column.values, like[0])


def counts(field: Field) -> Ints:
    """A count field, for the type checker's sake."""
    return plain(field)
