"""Columns that are taken out of nested ones, by their paths, where events are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from catchment.errors import CatchmentError, SchemaError
from catchment.expression import column_in, steps_of, taken_out, type_at
from catchment.operators.values import one_piece


def _raise(mistake: CatchmentError) -> None:
    raise mistake


def with_paths(
    schema: pa.Schema, names: Iterable[str], refuse: Callable[[CatchmentError], None] = _raise
) -> pa.Schema:
    """The columns of events, and those that are taken out of them by the paths among some names.

    >>> nested = pa.schema({"req": pa.struct({"bytes": pa.int64()})})
    >>> with_paths(nested, ["req.bytes", "v"]).names
    ['req', 'req.bytes']
    """
    for name in sorted(names):
        try:
            if name in schema.names:
                _refuse_ambiguous(schema, name)
                continue
            kind = type_at(schema, name)
        except CatchmentError as mistake:
            refuse(mistake)
            continue
        if kind is not None:
            schema = schema.append(pa.field(name, kind))
    return schema


def _refuse_ambiguous(schema: pa.Schema, name: str) -> None:
    """Refuses the name of a column that is the path of a field of another column, too."""
    others = [other for other in schema.names if other != name]
    column = column_in(others, name)
    if column is None:
        return
    try:
        type_at(pa.schema([field for field in schema if field.name == column]), name)
    except SchemaError:
        return
    raise SchemaError(
        "a column has the name of a field of another one",
        given=f"{name}, of {column}",
        hint="rename one of them",
    )


def column_at(table: pa.Table, name: str) -> pa.ChunkedArray[Any]:
    """What a path names, of a table that has it."""
    column = column_in(table.schema.names, name)
    assert column is not None
    steps = steps_of(name, column) or []
    return pa.chunked_array([taken_out(one_piece(table.column(column)), steps)])
