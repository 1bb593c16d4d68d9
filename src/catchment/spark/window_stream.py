"""What the tasks of a streaming DataFrame of results do: slice rows, and assemble windows.

    rows --SliceStream--> parcels by bucket --bucket_rows, with state--> pieces of results

No folder, no driver and no clock of ours takes part: what a batch does depends on its rows and on
Spark's state store alone. So a task that slices cannot know the frontier. Each split tells every
bucket its newest event time, and the buckets find out what came too late (`Assembler.on_time`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row

from catchment.engine.bound import BoundPlan
from catchment.engine.parcels import pack_partials, pack_results, share_out, unpack_partials
from catchment.engine.partials import Partials, joined_partials
from catchment.engine.results import Results
from catchment.engine.slicer import rank
from catchment.engine.times import now as wall_clock
from catchment.errors import StateError
from catchment.planner.edges import EARLIEST
from catchment.planner.planned import Planned
from catchment.spark.as_text import AsText
from catchment.spark.bucket import BucketStates
from catchment.spark.records import StepNote, StreamSplit
from catchment.spark.state import BatchStep, BucketLog, BucketState, step
from catchment.spark.tasks import Work, parcels, pieces, ready

_PIECE = 1 << 18
"""Rows sliced at once."""
_RESULTS = 1 << 17
"""Result rows of a group that are one piece."""
_QUERY = "sql.streaming.queryId"
_BOUND: dict[str, BoundPlan] = {}
"""The plan in use, by what it was made for; to bind it takes longer than a small batch."""


@dataclass(frozen=True)
class StreamWork(AsText):
    """What every task must know."""

    work: Work
    labels: tuple[int, ...]
    """A grouping key for each bucket."""
    origin: str
    """What a checkpoint must have been made for: see `checked`."""

    @property
    def job(self) -> str:
        """The streaming query that this task works for: the same over restarts."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY)
        return query or self.origin

    def bound(self, version: int = 0) -> BoundPlan:
        """The only version of the plan, bound to the columns of the events."""
        if self.origin not in _BOUND:
            _BOUND.clear()
            _BOUND[self.origin] = self.work.bound()
        return _BOUND[self.origin]

    def plan(self, version: int) -> Planned:
        raise StateError("the queries of a streaming DataFrame do not change", given=str(version))


@dataclass(frozen=True)
class SliceStream:
    """Slices the rows of a Spark partition, and gives their partials by bucket."""

    work: StreamWork
    names: tuple[str, ...]
    """The columns of the events that are sent here."""
    clock: bool
    """Whether the last column is the time of the batch."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        bound = self.work.bound()
        merger = bound.merger(number)
        now: list[int] = []
        slicer = bound.slicer(encoder=merger.encoder, clock=lambda: now[-1])
        arrival = handed = 0
        for piece in pieces(batches, _PIECE):
            if self.clock and piece.num_rows:
                now.append(piece.column(len(self.names))[0].cast(pa.int64()).as_py())
            events = piece.select(range(len(self.names))).rename_columns(list(self.names))
            for sliced in slicer.slice(events, arrival=rank(number, arrival)):
                merger.add(sliced)
                some = ready(merger, sliced, number)
                if some.rows:
                    yield from self._parcels(some, StreamSplit(number, handed))
                    handed += 1
            arrival += piece.num_rows
        if arrival:
            newest = slicer.newest if slicer.newest > EARLIEST else None
            said = StreamSplit(number, handed, newest, now[-1] if now else None, slicer.counts)
            yield from self._parcels(merger.take(number), said)

    def _parcels(self, partials: Partials, said: StreamSplit) -> Iterator[pa.RecordBatch]:
        """Partials by bucket. Every bucket hears of the newest time, the first of the counts."""
        plan = self.work.work.plan
        shares = share_out(partials, plan, len(self.work.labels))
        others = StreamSplit(said.number, said.piece, said.newest, said.now)
        last = bool(said.counts)
        for bucket, label in enumerate(self.work.labels):
            if bucket in shares or last:
                note = others if bucket else said
                packed = pack_partials(shares.get(bucket, Partials()), note)
                yield from parcels([(label, packed)])


def bucket_rows(
    work: StreamWork, store: BucketStates, label: int, bodies: Iterator[bytes]
) -> Iterator[Any]:
    """One batch of one bucket: what came too late is left out, and complete windows are given."""
    slices = [unpack_partials(body, StreamSplit) for body in bodies]
    # In the order of splits, so that sums of floats come out the same every time.
    slices.sort(key=lambda part: (part[1].number, part[1].piece))
    notes = [note for _, note in slices]
    keeper = BucketState(work, work.labels.index(label), BucketLog(store), work.origin)
    checked(work.origin, keeper.origin)
    held = keeper.load(0)
    partials, late = held.assembler.on_time(joined_partials([some for some, _ in slices]))
    newest = max((note.newest for note in notes if note.newest is not None), default=EARLIEST)
    lateness = work.work.rules.lateness
    frontier = max(EARLIEST, max(newest, held.assembler.newest) - lateness)
    now = max((note.now for note in notes if note.now is not None), default=wall_clock())
    moved = BatchStep(partials, StepNote(0, frontier, newest, now, ended=False))
    repeats = held.assembler.counts["duplicates"]
    results = step(work, held, moved)
    keeper.save(held, moved, 0)
    counts = {
        "events": sum(note.counts.get("events", 0) for note in notes),
        "bad": sum(note.counts.get("bad", 0) for note in notes),
        "late": late,
        "duplicates": held.assembler.counts["duplicates"] - repeats,
        "rows": results.rows(),
    }
    yield Row(**counts, grp=None, body=None)
    for group, body in _packed(results):
        yield Row(**dict.fromkeys(counts, 0), grp=group, body=body)


def _packed(results: Results) -> Iterator[tuple[int | None, bytes]]:
    """Results as bytes, by group where they are many."""
    if 0 < results.rows() <= _RESULTS:
        yield None, pack_results(results)
    elif results.rows():
        for group, piece in results.pieces(_RESULTS):
            yield group, pack_results(piece)


def checked(wanted: str, found: str | None) -> None:
    """Refuses a checkpoint that was made by other queries, or shared out otherwise."""
    if found is None or found == wanted:
        return
    (buckets, _), (before, _) = wanted.split(" ", 1), found.split(" ", 1)
    if buckets != before:
        raise StateError(
            "the checkpoint shares keys out among another number of buckets",
            given=f"{before} there, {buckets} here",
            hint=f"say buckets={before}, or use another checkpoint",
        )
    raise StateError(
        "the checkpoint is of other queries, other columns, or another version of Catchment",
        hint="use another checkpoint: a stream of results begins anew when its query changes",
    )
