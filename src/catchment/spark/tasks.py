"""What every task of a batch job knows, and what the tasks that read do: slice their splits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catchment.engine.bound import BoundPlan
from catchment.engine.merger import Merger
from catchment.engine.parcels import pack_partials, share_out
from catchment.engine.partials import Partials
from catchment.engine.slicer import Sliced, rank
from catchment.engine.slicing import SlicedGroup
from catchment.functions.user import define_all, defined
from catchment.model.capacity import MemoryLimits
from catchment.model.plan import Plan
from catchment.model.rules import EventRules
from catchment.operators.user import Monoid
from catchment.sources.aside_files import AsidePlace
from catchment.sources.base import Source, Split
from catchment.sources.reading import UnreadRow, pieces_of, unread_rows
from catchment.spark.local_parcels import FileParcels
from catchment.spark.profile import SplitSeconds, Stopwatch
from catchment.spark.records import SplitRead

_KNOWN: dict[bytes, Plan] = {}


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
    apart: frozenset[int] = frozenset()
    """Groups of count windows whose edges are found by samples: their events wait apart."""
    files: FileParcels | None = None
    """Where tasks leave large parcels for each other; None: Spark carries them."""
    late_by_slice: bool = False
    """Whether tasks that slice do not know the frontier: see `Assembler.on_time`."""

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
        made = plan or self.plan
        return BoundPlan(
            made,
            self.rules,
            self.schema,
            census=self.late_by_slice,
            limits=limits,
            apart=self.apart,
            late_by_slice=self.late_by_slice,
        )


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
                yield from parcels(self._handed_on(number))

    def _handed_on(self, number: int) -> Iterator[tuple[int, bytes]]:
        """The parcels of a split, or references to them."""
        files = self.work.files
        for place, (bucket, body) in enumerate(self._split(number)):
            yield bucket, body if files is None else files.put(f"{number}-{place}", body)

    def _split(self, number: int) -> Iterator[tuple[int, bytes]]:
        watch = Stopwatch()
        node, split = self.splits[number]
        spill = None if self.work.aside is None else self.work.aside.spill(number)
        bound = self.work.bound()
        merger = bound.merger(node)
        slicer = bound.slicer(encoder=merger.encoder, spill=spill)
        unread: list[UnreadRow] = []
        pieces = 0
        watch.lap("slice")
        for piece in pieces_of(self.source, split, self.columns, self.where):
            watch.lap("read")
            for sliced in slicer.slice(piece.events, arrival=rank(node, piece.arrival or 0)):
                merger.add(sliced)
                found = ready(merger, sliced, number)
                watch.lap("slice")
                note = SplitRead(number, pieces)
                yield from _packed(by_bucket(self.work, found, note), watch)
                pieces += 1
            if piece.bad is not None:
                slicer.unread(piece.bad)
                unread += unread_rows(piece, len(unread))
            watch.lap("slice")
        watch.lap("read")
        if spill is not None:
            for kind, held in slicer.aside.drained().items():
                spill(kind, held)
        spilled = [] if spill is None else spill.written
        rest = merger.take(number)
        watch.lap("slice")
        yield from _packed(by_bucket(self.work, rest, SplitRead(number, pieces)), watch)
        took = SplitSeconds(**watch.seconds)
        said = SplitRead(number, pieces + 1, slicer.counts, unread, spilled, took)
        yield 0, pack_partials(Partials(), said)


def _packed(rows: Iterable[tuple[int, bytes]], watch: Stopwatch) -> Iterator[tuple[int, bytes]]:
    """Parcels as they are packed, which is timed."""
    for row in rows:
        watch.lap("encode")
        yield row
        watch.skip()
    watch.lap("encode")


_FEW = 1 << 16
"""Rows of slices that are held in any case, until the split is read."""
_MANY = 1 << 20
"""Rows of slices that are held at most."""


def ready(merger: Merger, sliced: Sliced, seq: int) -> Partials:
    """What is not worth holding, or too much to hold, until the split is read.

    Events that are cut elsewhere are handed on at once. So are slices where the last events left
    more than half as many rows for each group: with so many keys, to merge them here saves little.
    """
    held = sum(len(rows) for group in merger.groups.values() for rows in group.rows)
    last = [len(part.rows) for part in sliced.parts.values() if isinstance(part, SlicedGroup)]
    if held > _MANY or (held > _FEW and 2 * sum(last) > len(last) * len(sliced.batch)):
        return merger.take(seq)
    return merger.take_events()


_DIVIDED = 1 << 17
"""Partials from which on they are divided finer than by bucket: whoever assembles then has less to
divide."""
SHARES = 16
"""Into so many shares the partials of a bucket are divided, by key, where they are many."""


def by_bucket(work: Work, partials: Partials, first: SplitRead) -> Iterator[tuple[int, bytes]]:
    """Partials packed by bucket; the first bucket gets all that is said of the split, if there is
    something to say.

    Many partials are packed by share of a bucket: see `share_of`.
    """
    note = SplitRead(first.number, first.piece)
    if partials.rows >= _DIVIDED and any(group.by for group in work.plan.groups):
        shares = share_out(partials, work.plan, work.buckets * SHARES)
        for place, share in shares.items():
            yield work.buckets + place, pack_partials(share, note)
        partials = Partials()
    shares = share_out(partials, work.plan, work.buckets)
    for bucket in range(work.buckets):
        said = first if bucket == 0 else note
        if bucket in shares or said != note:
            yield bucket, pack_partials(shares.get(bucket, Partials()), said)


def share_of(number: int, buckets: int) -> tuple[int, int | None]:
    """The bucket that a parcel's number stands for, and the share of it that the parcel holds.

    None: the parcel holds rows of any share.

    >>> share_of(1, 2), share_of(2, 2), share_of(5, 2)
    ((1, None), (0, 0), (1, 1))
    """
    return number % buckets, None if number < buckets else number // buckets - 1
