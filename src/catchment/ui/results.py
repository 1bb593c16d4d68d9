"""Results of a job, read from where it puts them, for the page's chart, table and exports.

A sink in this process' memory, or Parquet files: the newest rows of a query come out. What other
sinks hold (a database, a topic) is for the programs that read those.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as of
from msgspec import Raw, Struct

from catchment.errors import QueryError
from catchment.sinks.base import Sink
from catchment.sinks.memory import Memory
from catchment.sinks.parquet import ParquetSink
from catchment.sinks.text import ArrowArray, decoded, pc, texts, whole

SHOWN = 5_000
"""Rows of a query that the page gets at most: the newest."""
EXPORTED = 1_000_000
"""Rows of an export at most: the newest."""
HELD_QUERIES = 8
"""Queries of which files that were read are remembered."""
_EXACT = 2**53
"""JavaScript knows every integer below."""


class RowsView(Struct, frozen=True):
    """Rows as the page shows them: times are microseconds since 1970."""

    columns: list[str]
    kinds: list[str]
    """The kind of each column: time, number or text."""
    rows: list[Raw]
    """A JSON list for each row, oldest first."""
    keys: tuple[str, ...] = ()
    more: bool = False
    """Whether there are older ones."""


class ResultReader:
    """Reads the results that a job's sinks hold."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        kinds = (Memory, ParquetSink)
        readable = [sink for kind in kinds for sink in sinks if isinstance(sink, kind)]
        self._sink = readable[0] if readable else None
        self._others = ", ".join(sink.type for sink in sinks) or "none"
        self._held: dict[str, dict[str, pa.Table]] = {}
        self._lock = threading.Lock()

    @property
    def location(self) -> str | None:
        """Where results are read from, in words; None: nowhere."""
        if isinstance(self._sink, Memory):
            return f"memory of the job: the newest {self._sink.limit:,} rows of all queries"
        return None if self._sink is None else f"Parquet files in {self._sink.path}"

    def newest(self, output: str, rows: int) -> pa.Table:
        """The newest results given under a name, at most so many."""
        if isinstance(self._sink, Memory):
            return _last(self._sink.results(output), rows)
        if isinstance(self._sink, ParquetSink):
            with self._lock:
                held = self._held.pop(output, {})
                table = self._sink.newest(output, rows, held)
                self._held[output] = held
                for old in [*self._held][:-HELD_QUERIES]:
                    del self._held[old]
            return _last(table, rows)
        raise QueryError(
            "the page cannot read where this job's results go",
            given=self._others,
            hint="it reads the sinks memory (of a job run with --ui) and parquet",
        )


def _last(table: pa.Table, rows: int) -> pa.Table:
    return table.slice(max(table.num_rows - rows, 0))


def rows_view(table: pa.Table, rows: int = SHOWN, keys: Sequence[str] = ()) -> RowsView:
    """Rows for the page.

    >>> made = rows_view(pa.table({"k": ["<b>"], "n": [2.5]}))
    >>> made.kinds, bytes(made.rows[0])
    (['text', 'number'], b'["<b>",2.5]')
    """
    shown = _last(table, rows)
    columns = [decoded(whole(column)) for column in shown.columns]
    kinds = [_kind(column.type) for column in columns]
    values = texts([_plain(column, kind) for column, kind in zip(columns, kinds, strict=True)])
    if not values:
        return RowsView([], [], [])
    cells = [column.to_pylist() for column in values]
    lines = [Raw(f"[{','.join(row)}]".encode()) for row in zip(*cells, strict=True)]
    return RowsView(table.column_names, kinds, lines, tuple(keys), table.num_rows > len(lines))


def _kind(kind: pa.DataType) -> str:
    if of.is_timestamp(kind):
        return "time"
    number = of.is_integer(kind) or of.is_floating(kind) or of.is_decimal(kind)
    return "number" if number else "text"


def _plain(array: ArrowArray, kind: str) -> ArrowArray:
    """A column whose JSON a browser reads without loss, or nearly: what it cannot is a text."""
    if kind == "time":
        return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
    if of.is_decimal(array.type):
        return array.cast(pa.float64())
    if of.is_integer(array.type):
        most = pc.max(pc.abs(array.cast(pa.float64(), safe=False))).as_py()
        return array if most is None or most < _EXACT else array.cast(pa.string())
    return array


def as_csv(table: pa.Table) -> bytes:
    """Rows as CSV; lists and the like are JSON texts."""
    import pyarrow.csv as csv

    columns = [decoded(whole(column)) for column in table.columns]
    flat = [texts([one])[0] if of.is_nested(one.type) else one for one in columns]
    made = pa.table(dict(zip(table.column_names, flat, strict=True)))
    stream = pa.BufferOutputStream()
    csv.write_csv(made, stream)
    return bytes(stream.getvalue().to_pybytes())


def as_parquet(table: pa.Table) -> bytes:
    """Rows as a Parquet file."""
    import pyarrow.parquet as pq

    stream = pa.BufferOutputStream()
    pq.write_table(table, stream, compression="zstd")
    return bytes(stream.getvalue().to_pybytes())
