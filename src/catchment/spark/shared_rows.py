"""The results of many queries as rows of one DataFrame, from which the frame of each is selected.

A DataFrame has one schema, and queries have many. So the rows have as many columns of each type as
the query that has most of that type; a column of a query is one of those of its type, and what a
query does not need is null in its rows. A frame is then a condition and a selection, which Spark
itself carries out: to read one takes no Python worker, and frames with the same types run the same
compiled code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from catchment.errors import SchemaError
from catchment.spark.types import for_spark, spark_schema

_ROWS = 1 << 16
"""Rows that are given to Spark at once."""
_QUERY, _NOTE = "query", "note"


@dataclass(frozen=True)
class SharedColumns:
    """The columns that the rows of some queries have together.

    >>> int, text = pa.int64(), pa.string()
    >>> schemas = {"a": pa.schema({"k": text, "n": int}), "b": pa.schema({"m": int, "n": int})}
    >>> made = SharedColumns.of(schemas)
    >>> made.schema.names
    ['query', 'note', 'c0', 'c1', 'c2']
    >>> made.places
    {'a': {'k': 2, 'n': 3}, 'b': {'m': 4, 'n': 3}}
    """

    schema: pa.Schema
    """First the name of the query, and notes on the rows of a task; a note has a row of its own."""
    places: dict[str, dict[str, int]]
    """For each query, the places of its columns in the schema."""

    @classmethod
    def of(cls, schemas: Mapping[str, pa.Schema]) -> SharedColumns:
        """The columns of these queries."""
        fields: list[pa.Field[Any]] = [pa.field(_QUERY, pa.string()), pa.field(_NOTE, pa.binary())]
        of_type: dict[pa.DataType, list[int]] = {}
        named: dict[tuple[str, pa.DataType], int] = {}
        places: dict[str, dict[str, int]] = {}
        for query, schema in schemas.items():
            columns = for_spark(schema)
            known = {named[key] for field in columns if (key := (field.name, field.type)) in named}
            free = {kind: [n for n in there if n not in known] for kind, there in of_type.items()}
            places[query] = {}
            for field in columns:
                # Where columns of one name can be the same, one frame of all queries is simpler.
                place = named.get((field.name, field.type))
                if place is None or place in places[query].values():
                    unused = free.get(field.type, [])
                    place = unused.pop(0) if unused else len(fields)
                if place == len(fields):
                    fields.append(pa.field(f"c{place - 2}", field.type))
                    of_type.setdefault(field.type, []).append(place)
                named.setdefault((field.name, field.type), place)
                places[query][field.name] = place
        return cls(pa.schema(fields), places)

    def spark_schema(self) -> StructType:
        """The columns as Spark has them."""
        return spark_schema(self.schema)

    def rows(self, tables: Iterable[tuple[str, pa.Table]]) -> Iterator[pa.RecordBatch]:
        """The rows of queries; few rows of many queries go together."""
        held: list[pa.Table] = []
        for query, table in tables:
            held.append(self._shared(query, table))
            if sum(len(one) for one in held) >= _ROWS:
                yield from _batches(held)
                held = []
        if held:
            yield from _batches(held)

    def note(self, note: bytes) -> pa.RecordBatch:
        """A note in a row of its own."""
        noted = {_NOTE: pa.array([note], pa.binary())}
        columns = [noted.get(f.name, pa.nulls(1, f.type)) for f in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _shared(self, query: str, table: pa.Table) -> pa.Table:
        count = len(table)
        columns: dict[int, Any] = {0: pa.repeat(pa.scalar(query), count)}
        for place, column in zip(self.places[query].values(), table.columns, strict=True):
            columns[place] = column.cast(self.schema.field(place).type)
        given = [
            columns[place] if place in columns else pa.nulls(count, field.type)
            for place, field in enumerate(self.schema)
        ]
        return pa.Table.from_arrays(given, schema=self.schema)


def _batches(tables: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    whole = pa.concat_tables(tables).combine_chunks()
    return iter(whole.to_batches(max_chunksize=_ROWS))


def frame_of_query(rows: DataFrame, shared: SharedColumns, query: str) -> DataFrame:
    """The results of a query, of rows that it shares with others."""
    names = shared.schema.names
    places = shared.places[query].items()
    # As text, for one call of Java: a call for each column takes longer than to write few rows.
    columns = [f"{names[place]} AS {_quoted(name)}" for name, place in places]
    # A text is an argument of the code that Spark compiles, and a number would be a part of it.
    return rows.where(sf.col(_QUERY) == sf.lit(query)).selectExpr(*columns)


def _quoted(name: str) -> str:
    """A name as an identifier of SQL.

    >>> _quoted("max(`v`)")
    '`max(``v``)`'
    """
    doubled = name.replace("`", "``")
    return f"`{doubled}`"


def union_of_queries(rows: DataFrame, shared: SharedColumns) -> DataFrame:
    """The results of all queries: the name of each row's query, then the columns of all of them.

    SchemaError, where columns of one name are of different types, or one is named as the first.
    """
    named = _places_of_names(shared)
    names_at = Counter(place for places in named.values() for place in places)
    columns = [sf.col(_QUERY)]
    for name, places in named.items():
        value = sf.lit(None)
        for place, queries in places.items():
            here = sf.col(shared.schema.names[place])
            if len(places) == 1 and names_at[place] == 1:  # it is null in the rows of all others
                value = here
            else:
                value = sf.when(sf.col(_QUERY).isin(queries), here).otherwise(value)
        columns.append(value.alias(name))
    return rows.where(sf.col(_QUERY).isNotNull()).select(*columns)


def _places_of_names(shared: SharedColumns) -> dict[str, dict[int, list[str]]]:
    """By name of a column and place among the shared ones, the queries that have it there."""
    found: dict[str, dict[int, list[str]]] = {}
    for query, places in shared.places.items():
        for name, place in places.items():
            found.setdefault(name, {}).setdefault(place, []).append(query)
    for name, queries in found.items():
        types = {shared.schema.field(place).type: some[0] for place, some in queries.items()}
        if name == _QUERY or len(types) > 1:
            given = ", ".join(f"{kind} in {query!r}" for kind, query in types.items())
            raise SchemaError(
                f"one DataFrame of all queries can have one column {name!r} only",
                given=given,
                hint="name it otherwise with .alias(...), or take a frame for each query",
            )
    return found


def queries_in(rows: DataFrame) -> list[str]:
    """The queries that have rows."""
    found = rows.where(sf.col(_QUERY).isNotNull()).select(_QUERY).distinct().toArrow()
    return [str(name) for name in found.column(_QUERY).to_pylist()]


def notes_of(rows: DataFrame) -> list[bytes]:
    """All notes, brought here."""
    told = rows.where(sf.col(_NOTE).isNotNull()).select(_NOTE).toArrow()
    return [bytes(note or b"") for note in told.column(_NOTE).to_pylist()]
