"""Results as rows of PostgreSQL tables: a row is put in, or takes the place of an older one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.types as of
from pydantic import ConfigDict, Field

from catchment.sinks.base import Delivery, Sink, register_sink
from catchment.sinks.naming import column_name, table_name, table_of_all
from catchment.sinks.options import Timeout, need, seconds
from catchment.sinks.rows import (
    BOUNDS,
    UPDATES,
    StackedResults,
    TableLayout,
    aggregates,
    bounds,
    grouped,
    is_long,
)
from catchment.sinks.text import ArrowArray, Style, objects, pc, texts, whole

if TYPE_CHECKING:
    from catchment.sinks.postgres_tables import TableTarget

STYLE = Style(bytes="hex", nul="\u2400")
"""PostgreSQL's texts hold no NUL; the sign for it stands in."""
_CHUNK = 20_000
"""Rows of one statement."""


@register_sink
class PostgresSink(Sink):
    """A table per query, `<prefix><query>`, or, in the long layout, `<prefix>results` for all.

    A delivery is one transaction. A row of a key and window (its bounds and, where they may
    repeat, its `window_index`) is there once: a newer revision takes the place of an older one,
    never the other way round. Missing tables and columns are made; what they are called is in
    `sinks/naming.py`. Needs PostgreSQL 15 or newer.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    type: Literal["postgres"] = "postgres"
    dsn: str = Field(repr=False, description="as in postgresql://user@host:5432/database")
    namespace: str = Field(default="public", alias="schema", description="the schema of the tables")
    prefix: str = Field(default="", description="goes before the names of tables")
    layout: TableLayout = Field(
        default="auto", description="a table per query, or one for all; auto: one past 100 queries"
    )
    timeout: Timeout = Field(default="30s", description="how long to try while the server is away")

    def check(self) -> None:
        need("psycopg", "postgres")
        from catchment.sinks import postgres_tables

        postgres_tables.check(self._target())

    def write(self, delivery: Delivery) -> None:
        groups = grouped(delivery)
        if not groups:
            return
        need("psycopg", "postgres")
        from catchment.sinks import postgres_tables

        if is_long(self.layout, delivery):
            made = [self._long(groups)]
        else:
            made = [rows for group in groups for rows in self._each(group)]
        postgres_tables.write(self._target(), made)

    def close(self) -> None:
        need("psycopg", "postgres")
        from catchment.sinks import postgres_tables

        postgres_tables.close(self._target())

    def _target(self) -> TableTarget:
        from catchment.sinks.postgres_tables import TableTarget

        return TableTarget(self.dsn, self.namespace, seconds(self.timeout))

    def _long(self, groups: Sequence[StackedResults]) -> TableRows:
        """All results as rows of one table, with keys and values as JSON."""
        rows: list[ArrowArray] = []
        for group in groups:
            table, count = group.table, group.table.num_rows
            column = dict(zip(table.column_names, _texts(table), strict=True))
            labels = aggregates(table, group.keys)
            parts = {
                "query": group.named([STYLE.quoted(query) for query in group.queries]),
                "key": objects(group.keys, [column[k] for k in group.keys], count, STYLE),
                "values": objects(labels, [column[a] for a in labels], count, STYLE),
            }
            parts |= {name: column[name] for name in _ADDED if name in column}
            rows.append(objects(parts, list(parts.values()), count))
        name = table_of_all(self.prefix)
        return TableRows(name, _LONG, _LONG_IDENTITY, list(_chunks(pa.concat_arrays(rows))))

    def _each(self, group: StackedResults) -> Iterator[TableRows]:
        """The results of each query as rows of its own table."""
        table, keys = group.table, group.keys
        # A column of which nothing is known yet is made when its type is.
        empty = [f.name for f in table.schema if f.name not in keys and of.is_null(f.type)]
        columns = {
            column_name(field.name): column_type(field.type)
            for field in table.schema
            if field.name not in empty
        }
        identity = tuple(column_name(name) for name in (*keys, *bounds(table)))
        names = map(column_name, table.column_names)
        rows = objects(names, _texts(table), table.num_rows)  # names of columns, as they are
        for query, start, count in group.spans():
            name, chunks = table_name(self.prefix, query), _chunks(rows.slice(start, count))
            yield TableRows(name, columns, identity, list(chunks), tuple(map(column_name, empty)))


def _texts(table: pa.Table) -> list[ArrowArray]:
    return texts([whole(column) for column in table.columns], STYLE)


class TableRows(NamedTuple):
    """Rows for one table: JSON lists of objects whose names are those of columns."""

    table: str
    columns: dict[str, str]
    """Name to type."""
    identity: tuple[str, ...]
    """The columns by which a row is the same row."""
    chunks: list[str]
    empty: tuple[str, ...] = ()
    """Columns of unknown type that hold nulls only."""


_LONG = {
    "query": "text",
    "key": "jsonb",
    "window_start": "timestamp with time zone",
    "window_end": "timestamp with time zone",
    "window_index": "bigint",
    "values": "jsonb",
    "revision": "bigint",
    "retracted": "boolean",
}
_ADDED = (*BOUNDS, *UPDATES)
_LONG_IDENTITY = ("query", "key", "window_start", "window_end", "window_index")


def _chunks(rows: ArrowArray) -> Iterator[str]:
    for start in range(0, len(rows), _CHUNK):
        some = rows.slice(start, _CHUNK)
        one = pa.ListArray.from_arrays(pa.array([0, len(some)], pa.int32()), some)
        yield f"[{pc.binary_join(one, ',')[0].as_py()}]"


def column_type(kind: Any) -> str:
    """The type of a column that holds these values, as PostgreSQL itself calls it.

    >>> column_type(pa.uint32()), column_type(pa.list_(pa.float64()))
    ('bigint', 'double precision[]')
    """
    if of.is_dictionary(kind):
        return column_type(kind.value_type)
    if of.is_timestamp(kind):
        return f"timestamp {'with' if kind.tz else 'without'} time zone"
    if of.is_list(kind) or of.is_large_list(kind) or of.is_fixed_size_list(kind):
        inner = column_type(kind.value_type)
        return "jsonb" if inner == "jsonb" or inner.endswith("[]") else f"{inner}[]"
    return next((name for is_kind, name in _TYPES if is_kind(kind)), "jsonb")


_TYPES: tuple[tuple[Any, str], ...] = (
    (of.is_boolean, "boolean"),
    (lambda kind: kind in (pa.int8(), pa.int16(), pa.uint8()), "smallint"),
    (lambda kind: kind in (pa.int32(), pa.uint16()), "integer"),
    (of.is_uint64, "numeric"),
    (of.is_integer, "bigint"),
    (lambda kind: of.is_float16(kind) or of.is_float32(kind), "real"),
    (of.is_float64, "double precision"),
    (of.is_decimal, "numeric"),
    (lambda kind: of.is_string(kind) or of.is_large_string(kind), "text"),
    (lambda kind: of.is_string_view(kind) or of.is_null(kind), "text"),
    (lambda kind: of.is_binary(kind) or of.is_large_binary(kind), "bytea"),
    (lambda kind: of.is_binary_view(kind) or of.is_fixed_size_binary(kind), "bytea"),
    (of.is_date, "date"),
    (of.is_time, "time without time zone"),
    (of.is_duration, "interval"),
)
