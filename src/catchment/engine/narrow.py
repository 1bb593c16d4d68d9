"""Events that wait, on their way between processes: numbers in as few bytes as hold them.

The times and ranks of a piece of events lie close together. Each becomes its distance from the
least, which the schema tells, and which mostly fits into half the bytes or less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from catchment.operators.values import one_piece

_LEAST, _TYPE = b"catchment least", b"catchment type"
_WIDTHS = (np.uint8, np.uint16, np.uint32, np.uint64)


def narrowed(table: pa.Table) -> pa.Table:
    """Events with narrow numbers; users' columns stay as they are, but for the places of keys."""
    for place, field in enumerate(table.schema):
        column = one_piece(table.column(place))
        if isinstance(column, pa.DictionaryArray):
            width = _width(len(column.dictionary))
            table = table.set_column(place, field.name, _indexed(column, width))
        elif field.name.startswith("#") and pa.types.is_integer(field.type):
            values = column.to_numpy()
            least = int(values.min(initial=np.iinfo(values.dtype).max))
            width = _width(int(values.max(initial=least)) - least)
            array = pa.array((values - values.dtype.type(least)).astype(width))
            told = {_LEAST: str(least).encode(), _TYPE: values.dtype.str.encode()}
            table = table.set_column(place, pa.field(field.name, array.type, metadata=told), array)
    return table


def widened(table: pa.Table) -> pa.Table:
    """The inverse."""
    for place, field in enumerate(table.schema):
        column = one_piece(table.column(place))
        if isinstance(column, pa.DictionaryArray):
            table = table.set_column(place, field.name, _indexed(column, np.dtype(np.int32)))
        elif field.metadata and _LEAST in field.metadata:
            kind = np.dtype(field.metadata[_TYPE].decode())
            values = column.to_numpy().astype(kind)
            values += kind.type(int(field.metadata[_LEAST]))
            table = table.set_column(place, field.name, pa.array(values))
    return table


def _width(most: int) -> np.dtype[Any]:
    """The narrowest type that holds the numbers up to this one."""
    return next(np.dtype(width) for width in _WIDTHS if most <= np.iinfo(width).max)


def _indexed(
    column: pa.DictionaryArray[Any, Any], width: np.dtype[Any]
) -> pa.DictionaryArray[Any, Any]:
    """The same column, with places in its dictionary of this width."""
    indices: Any = column.indices.cast(pa.from_numpy_dtype(width))
    return pa.DictionaryArray.from_arrays(indices, column.dictionary)
