"""Results as Parquet files, one per delivery or one per delivery and query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.types as of
from msgspec import Struct
from pydantic import Field

from catchment.arrow_memory import arrow_input
from catchment.errors import SinkError, StateError
from catchment.model import records
from catchment.sinks.base import Delivery, Sink, register_sink
from catchment.sinks.naming import folder_name
from catchment.sinks.place import FilePlace
from catchment.sinks.rolled import WAITING, RolledFiles, file_name
from catchment.sinks.rows import (
    StackedResults,
    TableLayout,
    aggregates,
    filled,
    grouped,
    is_long,
    latest,
)
from catchment.sinks.text import ArrowArray, decoded, objects, pc, texts, whole

NEWEST = 256
"""Files that are read at most where only the newest rows are wanted."""
_MARKER = "_catchment.json"
_QUERY = b"catchment.query"
_TRIES = 5
"""How often a folder is read anew because files went meanwhile."""
_EXACT = 2**53
"""Doubles hold every integer below."""
_TIME = pa.timestamp("us", "UTC")

_owned: set[tuple[str, str]] = set()
"""Folders, and the jobs that were seen to own them, so that each process looks once."""
_looked: set[tuple[str, str, int]] = set()
"""Folders of queries, and their parts, whose files are of one delivery each: the first that came
was in no file of several that was made before."""


class GoneError(SinkError):
    """A file is not there any more."""


class Owner(Struct, frozen=True):
    """Whose folder it is."""

    job: str


@register_sink
class ParquetSink(Sink):
    """Files that appear whole and never change: `path/<query>/<batch>-<part>.parquet`, or, in the
    long layout, `path/<batch>-<part>.parquet` with a row per query, key, window and aggregate.

    The same delivery makes the same file again. With `roll`, deliveries of so many batches make one
    file, `<first batch>_<last batch>-<part>.parquet`; until a later one comes their rows wait in
    files that readers of folders pass over. A job that ends leaves none waiting.

    A folder belongs to one job: another's batches would have the same names. A job that may grow
    past 100 queries should name its layout.
    """

    type: Literal["parquet"] = "parquet"
    path: str = Field(description="a local folder, or a URI such as s3://bucket/results")
    layout: TableLayout = Field(
        default="auto",
        description="a folder per query, or all in long form; auto: long past 100 queries",
    )
    compression: Literal["none", "snappy", "gzip", "brotli", "lz4", "zstd"] = "zstd"
    roll: int = Field(
        default=1,
        ge=1,
        le=10_000,
        description="batches whose results become one file: more make fewer and larger files, "
        "which appear later",
    )

    def check(self) -> None:
        """Writes a small file and removes it."""
        place = FilePlace(self.path)
        place.probe()
        place.tidy()

    def write(self, delivery: Delivery) -> None:
        tables = filled(delivery)
        if not tables:
            return
        place = FilePlace(self.path)
        self._own(place, delivery.job)
        if is_long(self.layout, delivery):
            with _named("all queries"):
                self._put(place, "", delivery, long_table(grouped(delivery)))
            return
        for query, table in tables:
            with _named(query):
                named = table.replace_schema_metadata({_QUERY: query.encode()})
                self._put(place, folder_name(query), delivery, named)

    def finish(self) -> None:
        place = FilePlace(self.path)
        for folder in ("", *place.names()[1]):
            self._rolled(place, folder).roll()

    def _put(self, place: FilePlace, folder: str, delivery: Delivery, table: pa.Table) -> None:
        files = self._rolled(place, folder)
        if self.roll > 1:
            files.add(delivery.batch, delivery.part, table, self.roll)
            return
        looked = (self.path, folder, delivery.part)
        if looked not in _looked:  # where `roll` was larger before, a file may hold it already
            if files.holds(delivery.batch, delivery.part):
                return
            _looked.add(looked)
        name = file_name(delivery.batch, delivery.part)
        place.write(f"{folder}/{name}" if folder else name, self._file(table))

    def _rolled(self, place: FilePlace, folder: str) -> RolledFiles:
        return RolledFiles(place, folder, lambda name: _table(place, name), self._file)

    def read(self, query: str | None = None) -> pa.Table:
        """All rows of a query, or of all queries; columns that some files lack are null there.

        Without files the table has no columns.
        """
        return self._again(lambda place: self._all(place, query))

    def _all(self, place: FilePlace, query: str | None) -> pa.Table:
        found: list[pa.Table] = []
        for name in self._names(place, query):
            found += _read(place, name, query)
        return pa.concat_tables(found, promote_options="permissive") if found else pa.table({})

    def _names(self, place: FilePlace, query: str | None) -> list[str]:
        """The files that may hold results of a query, or of all."""
        folders = place.names()[1]
        if query is not None:
            folders = _folders_of(query, folders)
        return [name for one in ("", *folders) for name in self._rolled(place, one).names()]

    def _again(self, read: Callable[[FilePlace], pa.Table]) -> pa.Table:
        """What is read, from the start where files went while they were read: others hold their
        rows then."""
        place = FilePlace(self.path)
        for _ in range(_TRIES):
            with suppress(GoneError):
                return read(place)
        return read(place)

    def newest(self, query: str, rows: int, held: dict[str, pa.Table] | None = None) -> pa.Table:
        """The newest rows of a query, at least so many if there are, out of at most `NEWEST` files.

        `held` are tables of files that were read before, by name: files never change, so they are
        not read again. It is left with those that were used now.
        """
        return self._again(lambda place: self._newest(place, query, rows, held))

    def _newest(
        self, place: FilePlace, query: str, rows: int, held: dict[str, pa.Table] | None
    ) -> pa.Table:
        before = held or {}
        names = [(name.rpartition("/")[2], name) for name in self._names(place, query)]
        found: dict[str, pa.Table] = {}
        count = 0
        for _, name in sorted(names, reverse=True)[:NEWEST]:
            if count >= rows:
                break
            if name not in before:
                read = _read(place, name, query)
                before = before | {name: read[0] if read else pa.table({})}
            found[name] = before[name]
            count += found[name].num_rows
        if held is not None:
            held.clear()
            held.update(found)
        tables = [table for table in reversed(found.values()) if table.num_rows]
        return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})

    @staticmethod
    def latest(table: pa.Table, keys: Sequence[str]) -> pa.Table:
        """The newest revision of each key and window; retracted ones are gone.

        For the long layout the keys are query, key and aggregate.
        """
        return latest(table, keys)

    def _own(self, place: FilePlace, job: str) -> None:
        if (self.path, job) in _owned:
            return
        owner = _owner(place)
        if owner is None:
            place.write(_MARKER, records.encode(Owner(job)))
            owner = _owner(place)
        if owner != job:
            raise SinkError(
                "the folder holds results of another job",
                given=f"{self.path}: {owner}",
                hint="batches of two jobs have the same names; give each job its own folder",
            )
        _owned.add((self.path, job))

    def _file(self, table: pa.Table) -> pa.Buffer:
        """The bytes of a file, which depend on nothing but the rows."""
        stream = pa.BufferOutputStream()
        import pyarrow.parquet as pq  # late: a node with another sink does without

        pq.write_table(table.combine_chunks(), stream, compression=self.compression)
        return stream.getvalue()


def long_table(groups: Sequence[StackedResults]) -> pa.Table:
    """A row per query, key, window and aggregate.

    `value` is the number, `text` the JSON of what is no number or does not fit a double.
    """
    return pa.concat_tables([_long(group) for group in groups]).unify_dictionaries()


def _long(group: StackedResults) -> pa.Table:
    table, rows = group.table, group.table.num_rows
    labels = aggregates(table, group.keys)
    numbers = [_number(decoded(whole(table[label]))) for label in labels]
    key = objects(group.keys, texts([whole(table[name]) for name in group.keys]), rows)

    def repeated(column: ArrowArray) -> ArrowArray:
        return pa.chunked_array([column] * len(labels), column.type).combine_chunks()

    return pa.table(
        {
            "query": repeated(group.named(group.queries)).dictionary_encode(),
            "key": repeated(key),
            "window_start": repeated(_column(table, "window_start", _TIME)),
            "window_end": repeated(_column(table, "window_end", _TIME)),
            "window_index": repeated(_column(table, "window_index", pa.int64())),
            "aggregate": _labels(labels, rows),
            "value": pa.chunked_array([value for value, _ in numbers], pa.float64()),
            "text": pa.chunked_array([text for _, text in numbers], pa.string()),
            "revision": repeated(_column(table, "revision", pa.int64())),
            "retracted": repeated(_column(table, "retracted", pa.bool_())),
        }
    )


def _column(table: pa.Table, name: str, kind: Any) -> ArrowArray:
    if name not in table.column_names:
        return pa.nulls(table.num_rows, kind)
    column = whole(table[name])
    return column if column.type == kind else column.cast(kind)


def _number(array: ArrowArray) -> tuple[ArrowArray, ArrowArray]:
    kind, none = array.type, pa.scalar(None, pa.string())
    if of.is_floating(kind):
        return array.cast(pa.float64()), pa.nulls(len(array), pa.string())
    value = pa.nulls(len(array), pa.float64())
    told = array.is_valid()
    if of.is_integer(kind) or of.is_decimal(kind):
        value = array.cast(pa.float64(), safe=False)
    if of.is_integer(kind):
        inside = pc.less(pc.abs(value), _EXACT)
        told = pc.and_(told, pc.invert(pc.fill_null(inside, True)))
    if not pc.any(told, min_count=0).as_py():
        return value, pa.nulls(len(array), pa.string())
    return value, pc.if_else(told, texts([array])[0], none)


def _labels(labels: Sequence[str], rows: int) -> ArrowArray:
    """Each label, repeated for a number of rows, as a column that holds every label once."""
    places = np.repeat(np.arange(len(labels), dtype=np.int32), rows)
    return pa.DictionaryArray.from_arrays(places, pa.array(labels, pa.string()))


def _folders_of(query: str, folders: Sequence[str]) -> list[str]:
    """Those that may hold results of a query."""
    # Percent signs, in folders of older versions, quoted what now others do.
    own = (folder_name(query), query)
    return [f for f in folders if f in own or ("%" in f and unquote(f) == query)]


def _owner(place: FilePlace) -> str | None:
    data = place.read(_MARKER)
    if data is None:
        return None
    marker = f"{place.shown}/{_MARKER}"
    try:
        return records.decode(Owner, data, marker).job
    except StateError as error:
        raise SinkError(
            "the folder is marked, but not by a job",
            given=marker,
            hint="choose another folder, or remove this file",
        ) from error


def _table(place: FilePlace, name: str) -> pa.Table:
    data = place.read(name)
    if data is None:
        raise GoneError("a result file has gone while it was read", given=f"{place.shown}/{name}")
    with _named(name):
        import pyarrow.parquet as pq

        return pq.read_table(arrow_input(data))


def _read(place: FilePlace, name: str, query: str | None) -> list[pa.Table]:
    """The rows of a file, which holds those of one query where it is in a folder of its own."""
    if name.removeprefix(f"{WAITING}/").count("/"):
        return _read_one(place, name, query)
    return [_read_long(place, name, query)]


def _read_long(place: FilePlace, name: str, query: str | None) -> pa.Table:
    table = _table(place, name)
    for column in ("query", "aggregate"):
        text = table[column].cast(pa.string())
        table = table.set_column(table.column_names.index(column), column, text)
    return table if query is None else table.filter(pc.equal(table["query"], query))


def _read_one(place: FilePlace, name: str, wanted: str | None) -> list[pa.Table]:
    """The rows of a file, unless they are of another query than the one wanted."""
    table = _table(place, name)
    query = (table.schema.metadata or {}).get(_QUERY, b"").decode()
    table = table.replace_schema_metadata(None)
    if wanted is None:
        return [table.add_column(0, "query", pa.repeat(pa.scalar(query), table.num_rows))]
    return [table] if query == wanted else []


@contextmanager
def _named(query: str) -> Iterator[None]:
    try:
        yield
    except pa.ArrowException as error:
        raise SinkError(
            "the results do not fit a Parquet file", given=query, hint=str(error)
        ) from error
