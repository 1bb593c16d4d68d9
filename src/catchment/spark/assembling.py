"""What the tasks of a batch job do that assemble: partials of a bucket in, results out.

parcels of a bucket --Assemble--> results --KeepRows-----> rows of all queries, for their frames
                                          --GiveResults--> the rows of the only query
                                          --KeepResults--> pieces, as bytes
pieces --ReadRows-----> rows of all queries, for their frames
       --ReadResults--> the rows of a query
       --CutResults---> the rows of a query as bytes, for the driver
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa
from msgspec import structs

from catchment.engine import codec
from catchment.engine.bound import BoundPlan
from catchment.engine.parcels import NoNote, pack_results, unpack_results
from catchment.engine.partials import Partials, joined_partials
from catchment.engine.results import Results
from catchment.errors import StateError
from catchment.model import records
from catchment.model.rules import EventRules
from catchment.sources.aside_files import AsideFile
from catchment.sources.reading import UnreadRow
from catchment.spark.dividing import Parcelled, shares_of
from catchment.spark.local_parcels import bytes_of
from catchment.spark.profile import BucketSeconds, SplitSeconds, Stopwatch
from catchment.spark.records import BucketMade
from catchment.spark.shared_rows import SharedColumns
from catchment.spark.tasks import Work, bodies

_PIECE = 1 << 17
"""Result rows of a group that are kept as one piece."""
_ROWS = 1 << 16
"""Rows of a query that are given to Spark at once."""


class PartialsMerger(Protocol):
    """Takes the partials that are its own, and gives those that they make together."""

    def take(self, partials: Partials) -> Partials: ...
    def full(self) -> Iterator[Partials]: ...

    @property
    def not_full(self) -> tuple[int, int]:
        """Windows that have begun and are not full, and the events in them; after `full`."""
        ...


@dataclass(frozen=True)
class Assemble:
    """Takes all partials of its buckets, and gives the results of all windows."""

    work: Work
    meeting: Callable[[BoundPlan], PartialsMerger] | None = None
    """Who puts count windows together whose events were cut apart, if any were."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Results, BucketMade]]:
        """The results of each bucket, and what is said of it; of a large one, by share of keys."""
        watch = Stopwatch()
        bound = self.work.bound()
        watch.lap("assemble")
        for unpacked in shares_of(self.work, _came(bodies(batches), watch)):
            watch.lap("decode")
            if unpacked:
                yield self._assembled(bound, unpacked, watch)
                watch.skip()

    def _assembled(
        self, bound: BoundPlan, unpacked: list[Parcelled], watch: Stopwatch
    ) -> tuple[Results, BucketMade]:
        assembler = bound.assembler()
        counts: Counter[str] = Counter()
        # In the order of splits, so that sums of floats come out the same every time.
        unpacked.sort(key=lambda part: (part[1].number, part[1].piece))
        unread, spilled, splits = list[UnreadRow](), list[AsideFile](), list[SplitSeconds]()
        meeting = None if self.meeting is None else self.meeting(bound)
        found = []
        for partials, note in unpacked:
            unread += note.unread
            spilled += note.spilled
            found.append(partials if meeting is None else meeting.take(partials))
            counts.update(note.counts)
            splits += [] if note.seconds is None else [note.seconds]
        # All at once, so that every key is looked at once.
        assembler.absorb(joined_partials(found))
        unpacked.clear()
        found.clear()
        for full in () if meeting is None else meeting.full():
            assembler.absorb(full)
        self._weigh(assembler.held_bytes)
        results = assembler.close()
        counts.update(assembler.counts)
        if meeting is not None:
            windows, events = meeting.not_full
            counts.update({"open_windows": windows, "open_events": events})
        watch.lap("assemble")
        took, watch.seconds = BucketSeconds(**watch.seconds), {}
        rows = results.rows()
        return results, BucketMade(dict(counts), unread, spilled, rows, 0, took, splits)

    def _weigh(self, held: int) -> None:
        """Refuses what a user has not allowed the memory for: it cannot be divided any further."""
        most = self.work.state_bytes
        if most is not None and held > most:
            raise StateError(
                "the state takes more memory than it may, even divided by key",
                given=f"{held:,} of {most:,} bytes",
                hint="the windows of one key, or of a query without keys, are in one place: "
                "allow more with state_bytes, shorten windows, or add keys or conditions",
            )


def _came(rows: Iterable[tuple[int, bytes]], watch: Stopwatch) -> Iterator[tuple[int, bytes]]:
    """Parcels as Spark hands them over, for which nobody here is timed."""
    for row in rows:
        watch.skip()
        yield row
        watch.lap("decode")
    watch.skip()


@dataclass(frozen=True)
class KeepResults:
    """Results of all queries as rows that Spark keeps: pieces of them, and what is said of each
    bucket. Few results are one piece, in the same row."""

    assemble: Assemble

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for results, made in self.assemble(batches):
            if made.rows <= _PIECE:
                few = pack_results(results) if made.rows else None
                yield _result_batch(None, _with_pieces(made, 0 if few is None else 1), few)
                continue
            pieces = 0
            for group, piece in results.pieces(_PIECE):
                yield _result_batch(group, None, self._stored(pack_results(piece)))
                pieces += 1
            yield _result_batch(None, _with_pieces(made, pieces), None)

    def _stored(self, piece: bytes) -> bytes:
        """What Spark keeps of a piece: a reference to it, where that is enough."""
        files = self.assemble.work.files
        return piece if files is None else files.put(uuid4().hex, piece)


def _with_pieces(made: BucketMade, pieces: int) -> bytes:
    return records.encode(structs.replace(made, pieces=pieces))


def _result_batch(group: int | None, note: bytes | None, body: bytes | None) -> pa.RecordBatch:
    columns: list[pa.Array[Any]] = [
        pa.array([group], pa.int32()),
        pa.array([note], pa.binary()),
        pa.array([body], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["grp", "note", "body"])


@dataclass(frozen=True)
class KeepRows:
    """The rows of all queries, which Spark keeps, and what is said of each bucket."""

    assemble: Assemble
    shared: SharedColumns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for results, made in self.assemble(batches):
            yield self.shared.note(records.encode(made))
            yield from self.shared.rows(results.items())


@dataclass(frozen=True)
class ReadRows:
    """The rows of all queries, of pieces that were kept: their bytes are the only column."""

    work: Work
    shared: SharedColumns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bound = self.work.bound()
        for results in results_in(bound, batches):
            yield from self.shared.rows(results.items())


@dataclass(frozen=True)
class GiveResults:
    """The results of one query, row by row in Spark's types."""

    assemble: Assemble
    name: str
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for results, _ in self.assemble(batches):
            yield from in_types(results[self.name], self.schema)


@dataclass(frozen=True)
class ReadResults:
    """The results of one query, row by row in Spark's types, from pieces that were kept."""

    work: Work
    name: str
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in tables_in(self.work, self.name, batches):
            yield from in_types(table, self.schema)


@dataclass(frozen=True)
class CutResults:
    """The results of one query as bytes, from pieces that were kept."""

    work: Work
    name: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for table in tables_in(self.work, self.name, batches):
            if table.num_rows:
                yield _result_batch(None, None, codec.pack(NoNote(), {"rows": table}, "lz4"))


def tables_in(work: Work, name: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The results of a query in each piece; its bytes are the only column."""
    return (results[name] for results in results_in(_bound_once(work), batches))


def results_in(bound: BoundPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[Results]:
    """The results in each piece; its bytes are the only column."""
    for batch in batches:
        for body in batch.column(0):
            yield unpack_results(bytes_of(bytes(body.as_buffer())), bound)[0]


_BOUND: dict[tuple[bytes, pa.Schema, EventRules], BoundPlan] = {}
"""The plan whose results this process reads: many frames of one call read the same."""


def _bound_once(work: Work) -> BoundPlan:
    key = work.plan_bytes, work.schema, work.rules
    if key not in _BOUND:
        _BOUND.clear()
        _BOUND[key] = work.bound()
    return _BOUND[key]


def in_types(table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A table in batches of these types."""
    return iter(table.cast(schema).to_batches(max_chunksize=_ROWS))
