"""Values of a small table by key: `lookup('devices.parquet', 'room', 'id', device)`.

SQL's `JOIN devices USING (id)` becomes such calls, so that joined columns are expressions like all
others: a condition, a key or an argument of an aggregate, evaluated where events are read. Each
process reads a table once, when it first meets it, and looks whether it has changed whenever events
come (`refresh`): the new rows are for the events from then on.

    events --device--> index of the keys --> row, or none --room--> a value, or null
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq

from catchment.errors import (
    CatchmentError,
    LimitError,
    QueryError,
    SchemaError,
    SourceError,
    did_you_mean,
    needing,
)
from catchment.expression.nodes import Call, Literal, Node, walk
from catchment.expression.values import Value, decoded

UNQUALIFIED = "lookup_unqualified"
"""The same as `lookup`, of a column that SQL names without its table."""
MOST_BYTES = 1 << 30
"""How large a table may be that every process holds."""
_AGAIN = 60.0
"""Seconds after which a table of a database is read again."""
_FORMS = "a file .parquet, .csv or .arrow, or postgresql://host/database#table"


@dataclass
class LookupTable:
    """A table that is held here."""

    origin: str
    rows: pa.Table
    mark: object
    """What changes with the table; of a database, nothing tells."""
    read_at: float
    _places: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def keys(self, names: tuple[str, ...]) -> Any:
        """The values of key columns, of which no two rows may have the same."""
        if names not in self._places:
            found = _joined([_plain(self.column(name)) for name in names])
            counted = pc.value_counts(found.filter(pc.is_valid(found)))
            twice = counted.filter(pc.greater(counted.field("counts"), pa.scalar(1)))
            if len(twice):
                raise SourceError(
                    f"a lookup table has several rows of one {', '.join(names)}",
                    given=f"{twice.field('values')[0].as_py()!r} in {self.origin}",
                    hint="keep one row for each key, or join by more columns",
                )
            self._places[names] = found
        return self._places[names]

    def column(self, name: str) -> Any:
        if name not in self.rows.schema.names:
            raise SchemaError(
                "a lookup table has no such column",
                given=f"{name} of {self.origin}",
                hint=did_you_mean(name, self.rows.schema.names),
            )
        column = self.rows.column(name)
        whole = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        return decoded(whole)


_held: dict[str, LookupTable] = {}


def looked_up(node: Call, args: Sequence[Value]) -> Value:
    """The value of a column in the row whose keys are equal; null where there is none."""
    texts = [arg.value for arg in (*node.args[:2], *node.args[2::2]) if isinstance(arg, Literal)]
    origin, name, *names = map(str, texts)
    table = _held.get(origin)
    if table is None:
        table = _held[origin] = _read(origin)
    values = list(args[3::2])
    keys = table.keys(tuple(names))
    wanted = _as_keys(values, [table.column(key).type for key in names], names)
    column = table.column(name)
    if isinstance(wanted, pa.Scalar):
        place = pc.index_in(pa.array([wanted.as_py()], wanted.type), keys, skip_nulls=True)
        return column.take(place)[0]
    made: Value = column.take(pc.index_in(wanted, keys, skip_nulls=True))
    return made


def lookup_columns(origin: str) -> tuple[str, ...] | None:
    """The columns of a table; None where it cannot be read here."""
    if origin in _held:
        return tuple(_held[origin].rows.schema.names)
    try:
        changes = int(time.monotonic() / _AGAIN) if _is_database(origin) else _mark(origin)
    except SourceError:
        return None
    return _columns_of(origin, changes)


@lru_cache(maxsize=1024)
def _columns_of(origin: str, _: object) -> tuple[str, ...] | None:
    """The columns of a table as it is now: what changes with it is the second argument."""
    read = _SCHEMAS.get(Path(origin).suffix.lower())
    try:
        if _is_database(origin):
            return tuple(_from_postgres(origin, "LIMIT 0").schema.names)
        return None if read is None else tuple(read(origin).names)
    except (CatchmentError, pa.ArrowInvalid, OSError):
        return None


def check_unqualified(node: Node, schema: pa.Schema) -> None:
    """Refuses a column that was written without its table where events have one of that name."""
    for call in walk(node):
        if isinstance(call, Call) and call.op == UNQUALIFIED:
            origin, name = (str(arg.value) for arg in call.args[:2] if isinstance(arg, Literal))
            if name in schema.names:
                raise SchemaError(
                    "a column is ambiguous: the events and a joined table have it",
                    given=f"{name} of the events and of {origin}",
                    hint=f"write it with the name of its table, as in e.{name} or d.{name}",
                )


def check_call(node: Call, text: str, what: str) -> Call:
    """The call, if its arguments are as they must be."""
    constants = (*node.args[:2], *node.args[2::2])
    named = all(isinstance(arg, Literal) and arg.kind == "string" for arg in constants)
    if not named or len(node.args) % 2:
        raise QueryError(
            f"the {what} gives lookup the wrong arguments",
            given=text,
            hint="write lookup('devices.parquet', 'room', 'id', device): the table, the column "
            "that is wanted, and by turns key columns of the table and what they are equal to",
        )
    return node


def refresh() -> list[str]:
    """Reads tables again that have changed, and says which; whoever takes in events calls it."""
    if not _held:
        return []
    changed = []
    for origin, table in list(_held.items()):
        if _is_database(origin):
            if time.monotonic() - table.read_at < _AGAIN:
                continue
        elif _mark(origin) == table.mark:
            continue
        _held[origin] = _read(origin)
        changed.append(origin)
    return changed


def forget() -> None:
    """Lets go of all tables."""
    _held.clear()


def _as_keys(values: list[Value], kinds: list[pa.DataType], names: Sequence[str]) -> Value:
    """What is looked up, in the types of the keys."""
    made = []
    for value, kind, name in zip(values, kinds, names, strict=True):
        if pa.types.is_null(value.type):
            value = value.cast(kind)
        value = _plain(value)
        if value.type != _plain(pa.array([], kind)).type:
            raise SchemaError(
                "a key of a lookup table has another type than what it is to be equal to",
                given=f"{name} is {kind}, the other {value.type}",
                hint="cast one of them, as in CAST(id AS STRING)",
            )
        made.append(value)
    return _joined(made)


def _plain(value: Any) -> Any:
    """Numbers and texts of any width as those of one width."""
    if pa.types.is_integer(value.type):
        return value.cast(pa.int64())
    return value.cast(pa.string()) if pa.types.is_large_string(value.type) else value


def _joined(columns: list[Any]) -> Any:
    """One column that tells rows apart by several: as texts, each behind its length."""
    if len(columns) == 1:
        return columns[0]
    parts: list[Any] = []
    for column in columns:
        text = pc.cast(column, pa.string())
        parts += [pc.cast(pc.utf8_length(text), pa.string()), text]
    return pc.binary_join_element_wise(*parts, pa.scalar(":"))


def _is_database(origin: str) -> bool:
    return origin.startswith(("postgresql://", "postgres://"))


def _mark(origin: str) -> object:
    try:
        held = os.stat(origin)
    except OSError as error:
        raise SourceError(
            "a lookup table cannot be read",
            given=origin,
            hint=f"{error.strerror}; every node that reads events must have it",
        ) from error
    return held.st_mtime_ns, held.st_size, held.st_ino


def _read(origin: str) -> LookupTable:
    began = time.monotonic()
    if _is_database(origin):
        return LookupTable(origin, _bounded(_from_postgres(origin), origin), None, began)
    mark = _mark(origin)
    reader = _READERS.get(Path(origin).suffix.lower())
    if reader is None:
        raise SourceError("not a lookup table", given=origin, hint=f"it is {_FORMS}")
    if os.path.getsize(origin) > MOST_BYTES:
        raise _too_large(origin, os.path.getsize(origin))
    try:
        rows = reader(origin)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        raise SourceError(
            "a lookup table cannot be read", given=origin, hint=str(error).splitlines()[0]
        ) from error
    return LookupTable(origin, _bounded(rows, origin), mark, began)


def _csv_schema(origin: str) -> pa.Schema:
    with pyarrow.csv.open_csv(origin, convert_options=_CSV) as reader:
        return reader.schema


def _arrow_schema(origin: str) -> pa.Schema:
    with pa.memory_map(origin) as file:
        return pa.ipc.open_file(file).schema


_CSV = pyarrow.csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
"""Nothing between two commas is null, and so are the words that are null in columns of numbers."""


def _read_csv(origin: str) -> pa.Table:
    return pyarrow.csv.read_csv(origin, convert_options=_CSV)


_SCHEMAS: dict[str, Callable[[str], pa.Schema]] = {
    ".parquet": pq.read_schema,
    ".csv": _csv_schema,
    ".arrow": _arrow_schema,
}
_READERS: dict[str, Callable[[str], pa.Table]] = {
    ".parquet": pq.read_table,
    ".csv": _read_csv,
    ".arrow": pyarrow.feather.read_table,
}


def _bounded(rows: pa.Table, origin: str) -> pa.Table:
    if rows.nbytes > MOST_BYTES:
        raise _too_large(origin, rows.nbytes)
    return rows


def _too_large(origin: str, size: int) -> LimitError:
    return LimitError(
        "a lookup table is too large to be held everywhere",
        given=f"{origin}: {size:,} bytes",
        hint=f"at most {MOST_BYTES:,}; leave out columns and rows that no query needs",
    )


def _from_postgres(origin: str, limit: str = "") -> pa.Table:
    with needing("to look up values in PostgreSQL"):
        import psycopg
        from psycopg import sql
    place, _, table = origin.partition("#")
    if not table:
        raise SourceError("a lookup table has no name", given=place, hint=f"it is {_FORMS}")
    name = sql.SQL(".").join(map(sql.Identifier, table.split(".")))
    try:
        with psycopg.connect(place, connect_timeout=10) as connection:
            found = connection.execute(sql.SQL(f"SELECT * FROM {{}} {limit}").format(name))
            columns = [column.name for column in found.description or ()]
            values = list(zip(*found.fetchall(), strict=True)) or [()] * len(columns)
    except psycopg.Error as error:
        raise SourceError(
            "a lookup table cannot be read",
            given=f"{table} of {place.rpartition('@')[2]}",
            hint=str(error).splitlines()[0],
        ) from error
    return pa.table({n: list(v) for n, v in zip(columns, values, strict=True)})
