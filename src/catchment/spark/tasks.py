"""What executors do: read and slice a split, assemble a bucket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from catchment.engine.bound import BoundPlan
from catchment.engine.parcels import pack_partials, pack_results, share_out, unpack_partials
from catchment.engine.partials import Partials
from catchment.engine.slicer import rank
from catchment.functions.user import define_all, defined
from catchment.model.capacity import MemoryLimits
from catchment.model.plan import Plan
from catchment.model.rules import EventRules
from catchment.operators.user import Monoid
from catchment.sources.aside_files import AsidePlace, Kept
from catchment.sources.base import Source, Split
from catchment.sources.reading import UnreadRow, pieces_of, unread_rows
from catchment.spark.records import SplitRead

_KNOWN: dict[bytes, Plan] = {}


class Meets(Protocol):
    """Takes the partials that are its own, and gives those that they make together."""

    def take(self, partials: Partials) -> Partials: ...
    def full(self) -> Iterator[Partials]: ...

    @property
    def not_full(self) -> tuple[int, int]:
        """Windows that have begun and are not full, and the events in them; after `full`."""
        ...


@dataclass(frozen=True)
class Work:
    """What every task must know: the plan, the columns of events, and how to treat them."""

    plan_bytes: bytes
    schema: pa.Schema
    rules: EventRules
    buckets: int
    functions: dict[str, Monoid] = field(default_factory=defined)
    aside: AsidePlace | None = None
    """Where rows set aside are written; None: they are counted, and not kept."""
    state_bytes: int | None = None
    key_bytes: int | None = None

    @property
    def plan(self) -> Plan:
        """The plan; read once in each process."""
        define_all(self.functions)
        if self.plan_bytes not in _KNOWN:
            _KNOWN.clear()
            _KNOWN[self.plan_bytes] = Plan.from_bytes(self.plan_bytes)
        return _KNOWN[self.plan_bytes]

    def bound(self, plan: Plan | None = None) -> BoundPlan:
        """The plan, or a part of it; rows set aside are kept only if there is a place for them."""
        memory = self.aside.memory if self.aside else 0
        limits = MemoryLimits.of(self.state_bytes, self.key_bytes, memory)
        return BoundPlan(plan or self.plan, self.rules, self.schema, limits=limits)


def parcel(rows: list[tuple[int, bytes]]) -> pa.RecordBatch:
    """Rows on their way through Spark."""
    buckets, bodies = [bucket for bucket, _ in rows], [body for _, body in rows]
    columns: list[pa.Array[Any]] = [pa.array(buckets, pa.int32()), pa.array(bodies, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["bucket", "body"])


def parcels(rows: Iterable[tuple[int, bytes]]) -> Iterator[pa.RecordBatch]:
    """Rows on their way through Spark, each by itself: they may be large."""
    return (parcel([row]) for row in rows)


def bodies(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    """The rows of parcels."""
    for batch in batches:
        yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)


def pieces(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Batches that Spark hands over, joined to tables of at least so many rows, but for the last.

    >>> [len(piece) for piece in pieces(iter([parcel([(0, b"")])] * 5), 2)]
    [2, 2, 1]
    """
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(len(one) for one in held) >= rows:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


@dataclass(frozen=True)
class ReadAndSlice:
    """Reads the splits whose numbers it is given, and gives their partials by bucket."""

    work: Work
    source: Source
    splits: list[tuple[int, Split]]
    """With the number of each one's partition among all."""
    columns: list[str]
    where: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy().tolist():
                yield from parcels(self._split(number))

    def _split(self, number: int) -> Iterator[tuple[int, bytes]]:
        node, split = self.splits[number]
        spill = None if self.work.aside is None else self.work.aside.spill(number)
        bound = self.work.bound()
        merger = bound.merger(node)
        slicer = bound.slicer(encoder=merger.encoder, spill=spill)
        unread: list[UnreadRow] = []
        pieces = 0
        for piece in pieces_of(self.source, split, self.columns, self.where):
            for sliced in slicer.slice(piece.events, arrival=rank(node, piece.arrival or 0)):
                merger.add(sliced)
                note = SplitRead(number, pieces)
                yield from by_bucket(self.work, merger.take_events(), note)
                pieces += 1
            if piece.bad is not None:
                slicer.unread(piece.bad)
                unread += unread_rows(piece, len(unread))
        if spill is not None:
            for kind, held in slicer.aside.drained().items():
                spill(kind, held)
        spilled = [] if spill is None else spill.written
        first = SplitRead(number, pieces, slicer.counts, unread, spilled)
        yield from by_bucket(self.work, merger.take(number), first)


def by_bucket(work: Work, partials: Partials, first: SplitRead) -> Iterator[tuple[int, bytes]]:
    """Partials packed by bucket; the first bucket gets all that is said of the split, if there is
    something to say."""
    shares = share_out(partials, work.plan, work.buckets)
    note = SplitRead(first.number, first.piece)
    for bucket in range(work.buckets):
        said = first if bucket == 0 else note
        if bucket in shares or said != note:
            yield bucket, pack_partials(shares.get(bucket, Partials()), said)


@dataclass(frozen=True)
class Assemble:
    """Takes all partials of its buckets, and gives the results of all windows."""

    work: Work
    meeting: Callable[[BoundPlan], Meets] | None = None
    """Who puts count windows together whose events were cut apart, if any were."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        engines: dict[int, list[tuple[int, bytes]]] = {}
        for bucket, body in bodies(batches):
            engines.setdefault(bucket, []).append((0, body))
        for bucket, held in engines.items():
            yield parcel([(bucket, self._bucket([body for _, body in held]))])

    def _bucket(self, held: list[bytes]) -> bytes:
        bound = self.work.bound()
        assembler = bound.assembler()
        counts: Counter[str] = Counter()
        # In the order of splits, so that sums of floats come out the same every time.
        unpacked = [unpack_partials(body, SplitRead) for body in held]
        unpacked.sort(key=lambda part: (part[1].number, part[1].piece))
        unread, spilled = list[UnreadRow](), list[Kept]()
        meeting = None if self.meeting is None else self.meeting(bound)
        for partials, note in unpacked:
            unread += note.unread
            spilled += note.spilled
            assembler.absorb(partials if meeting is None else meeting.take(partials))
            counts.update(note.counts)
        for full in () if meeting is None else meeting.full():
            assembler.absorb(full)
        results = assembler.close()
        counts.update(assembler.counts)
        if meeting is not None:
            windows, events = meeting.not_full
            counts.update({"open_windows": windows, "open_events": events})
        made = SplitRead(counts=dict(counts), unread=unread, spilled=spilled)
        return pack_results(results, made)
