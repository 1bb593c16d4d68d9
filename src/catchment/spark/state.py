"""The state of a bucket of keys in Spark's state store, and its step from batch to batch.

What is kept is a log: the partials of each batch as they came, in columns, behind a snapshot of
the assembler. The assembler itself stays in the worker's memory; a worker that does not have it, or
has an older one, reads the log from where it stands. So a batch writes what is new, not all there
is.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from catchment.engine import codec
from catchment.engine.assembler import Assembler
from catchment.engine.bound import BoundPlan
from catchment.engine.parcels import pack_partials, partials_of, unpack_partials
from catchment.engine.partials import Partials, joined_partials
from catchment.engine.results import Results
from catchment.engine.times import now
from catchment.errors import StateError
from catchment.model import records
from catchment.model.capacity import Capacity
from catchment.model.frontier import Frontier
from catchment.planner.edges import EARLIEST, LATEST
from catchment.planner.planned import Planned
from catchment.sinks.result_counts import counts_of_results
from catchment.spark.bucket import BucketStates
from catchment.spark.deliver import deliver
from catchment.spark.planning import PLANS_BEHIND
from catchment.spark.profile import BucketSeconds, Stopwatch
from catchment.spark.records import BucketReport, Control, LogHead, Parcel, SplitNote, StepNote
from catchment.spark.rows import row_of
from catchment.spark.spec import Spec

_CHUNK = 4 << 20
"""A snapshot is kept in values of this many bytes."""
_SHORTEST = 4 << 20
"""A log shorter than this is never worth a snapshot."""


@dataclass
class HeldAssembler:
    """An assembler and the log entry it has come to."""

    tag: str
    plan: int
    assembler: Assembler


_HELD: dict[tuple[str, int], HeldAssembler] = {}
"""Engines in this worker's memory, by job and bucket."""
ENGINES = 64
"""Engines that a worker keeps: the one not used for longest is forgotten, and read again."""


class BatchStep(NamedTuple):
    """What one batch does to a bucket: all that its results depend on."""

    partials: Partials
    note: StepNote

    def to_bytes(self) -> bytes:
        return pack_partials(self.partials, self.note)

    @classmethod
    def from_bytes(cls, data: bytes) -> BatchStep:
        return cls(*unpack_partials(data, StepNote))


class BucketLog:
    """The state store's side: numbered entries behind a snapshot, and where it ends."""

    def __init__(self, store: BucketStates) -> None:
        self.head, self.entries, self.base = store

    def read_head(self) -> LogHead | None:
        note = self.head.get() if self.head.exists() else None
        what = "where the log of a bucket's state stands"
        return None if note is None else records.decode(LogHead, note[0].encode(), what)

    def entry(self, n: int) -> tuple[str, bytes]:
        tag, body = _there(self.entries.getValue((n,)))
        return tag, bytes(body)

    def snapshot(self, chunks: int) -> bytes:
        return b"".join(bytes(_there(self.base.getValue((n,)))[0]) for n in range(chunks))


def _there(value: tuple[Any, ...] | None) -> tuple[Any, ...]:
    if value is None:
        raise StateError(
            "the state of this job is not whole", hint="its checkpoint was changed by hand"
        )
    return value


class PlanVersions(Protocol):
    """Where a bucket finds the plans that it works by."""

    @property
    def job(self) -> str:
        """A name of the job, the same over restarts."""
        ...

    def bound(self, version: int) -> BoundPlan: ...
    def plan(self, version: int) -> Planned: ...


def step(spec: PlanVersions, held: HeldAssembler, taken: BatchStep) -> Results:
    """Takes a batch into a bucket's assembler: the windows now complete."""
    partials, move = taken
    if (
        held.plan < move.plan and move.complete_until is not None
    ):  # in a tree, what the others had seen when they went over
        held.assembler.absorb(Partials(), move.newest)
    while held.plan < move.plan:
        held.plan += 1
        planned = spec.plan(held.plan)
        held.assembler.clock = lambda: move.now
        held.assembler.follow(spec.bound(held.plan), planned.lineage, planned.leaving)
    held.assembler.clock = lambda: move.now
    held.assembler.live = move.live
    held.assembler.absorb(partials, move.newest)
    if move.ended:
        return held.assembler.close()
    return held.assembler.advance(min(move.frontier, LATEST - 1), move.complete_until)


class BucketState:
    """Brings a bucket's assembler to where the state store is, and the store to where it goes."""

    def __init__(self, spec: PlanVersions, bucket: int, log: BucketLog, origin: str = "") -> None:
        self.spec = spec
        self.key = (spec.job, bucket)
        self.log = log
        self.head = log.read_head()
        self._origin = origin

    @property
    def origin(self) -> str | None:
        """What the state was made for; None: there is none yet."""
        return None if self.head is None else self.head.origin

    def load(self, plan: int) -> HeldAssembler:
        """The assembler as it was after the last batch that was committed."""
        held = _HELD.pop(self.key, None)
        if self.head is None:
            return HeldAssembler("", plan, self.spec.bound(plan).assembler())
        if held is not None and held.tag == self.head.tag:
            return held
        entries = [self.log.entry(n) for n in range(self.head.first, self.head.next)]
        tags = [tag for tag, _ in entries]
        if held is not None and held.tag in tags:
            entries = entries[tags.index(held.tag) + 1 :]
        else:
            held = self._restored()
        for tag, body in entries:
            step(self.spec, held, BatchStep.from_bytes(body))
            held.tag = tag
        return held

    def _restored(self) -> HeldAssembler:
        assert self.head is not None
        plan = self.head.plan
        if not self.head.chunks:
            return HeldAssembler("", plan, self.spec.bound(plan).assembler())
        blob = self.log.snapshot(self.head.chunks)
        return HeldAssembler(self.head.base, plan, self.spec.bound(plan).assembler(blob))

    def save(self, held: HeldAssembler, move: BatchStep, began: int) -> None:
        """Writes the batch down, or the whole state when the log has grown longer than that."""
        held.tag = uuid.uuid4().hex
        body = move.to_bytes()
        head = self.head or LogHead(began, origin=self._origin)
        older = held.plan - head.plan > PLANS_BEHIND
        if older or head.bytes + len(body) > max(_SHORTEST, head.size):
            head = self._compact(held, head)
        else:
            self.log.entries.updateValue((head.next,), (held.tag, body))
            head = replace(head, next=head.next + 1, bytes=head.bytes + len(body), tag=held.tag)
        self.log.head.update((records.encode(head).decode(),))
        self.head = head
        _HELD[self.key] = held
        while len(_HELD) > ENGINES:
            del _HELD[next(iter(_HELD))]

    def capacity(self) -> Capacity:
        head = self.head or LogHead(0)
        most, then = max(_SHORTEST, head.size), "a snapshot takes the place of the log"
        return Capacity("log of a bucket's state", head.bytes, most, "bytes", then)

    def _compact(self, held: HeldAssembler, head: LogHead) -> LogHead:
        blob = held.assembler.save()
        chunks = [blob[at : at + _CHUNK] for at in range(0, len(blob), _CHUNK)]
        for n, chunk in enumerate(chunks):
            self.log.base.updateValue((n,), (chunk,))
        for n in range(len(chunks), head.chunks):
            self.log.base.removeKey((n,))
        for n in range(head.first, head.next):
            self.log.entries.removeKey((n,))
        return replace(
            head,
            first=head.next,
            bytes=0,
            chunks=len(chunks),
            size=len(blob),
            plan=held.plan,
            base=held.tag,
            tag=held.tag,
        )


class BucketStep:
    """One batch of one bucket: heartbeats give the frontier, partials the windows."""

    def __init__(self, spec: Spec, store: BucketStates) -> None:
        self.spec = spec
        self.log = BucketLog(store)

    def rows(self, label: int, bodies: Iterator[bytes]) -> Iterator[Any]:
        """Takes the parcels of a batch; the rows for the driver."""
        watch = Stopwatch()
        bucket = self.spec.labels.index(label)
        slices: list[tuple[Partials, SplitNote]] = []
        for body in bodies:
            partials, note = _read(body)
            if note is None:
                yield row_of(bucket, "aside", body)
            else:
                slices.append((partials, note))
        # In the order of splits, so that sums of floats come out the same every time.
        slices.sort(key=lambda part: part[1].number)
        control = slices[0][1].control
        frontier, newest = self._frontier(control, [note for _, note in slices])
        moved = StepNote(
            control.plan,
            frontier.value,
            newest,
            control.now,
            control.ended,
            control.complete_until,
            control.live,
        )
        move = BatchStep(joined_partials([partials for partials, _ in slices]), moved)
        watch.lap("decode")
        keeper = BucketState(self.spec, bucket, self.log)
        held = keeper.load(control.plan)
        watch.lap("state")
        repeats, missed = held.assembler.counts["duplicates"], held.assembler.missed
        results = step(self.spec, held, move)
        watch.lap("assemble")
        yield from deliver(self.spec, control, bucket, results)
        watch.lap("sink")
        keeper.save(held, move, control.plan)
        watch.lap("state")
        counts = held.assembler.counts
        report = BucketReport(
            bucket=bucket,
            control=control,
            frontier=frontier,
            results=results.rows(),
            duplicates=counts["duplicates"] - repeats,
            missed=held.assembler.missed - missed,
            drained=list(held.assembler.drained()),
            counts=[note.counts for _, note in slices if note.counts is not None],
            spilled=[kept for _, note in slices for kept in note.spilled],
            open_windows=counts["open_windows"],
            open_events=counts["open_events"],
            limits=[*held.assembler.capacities(), keeper.capacity()],
            seconds=BucketSeconds(**watch.seconds),
            splits=[note.seconds for _, note in slices if note.counts is not None],
            tallies=counts_of_results(dict(results.items()), now()) if self.spec.metered else {},
        )
        yield row_of(bucket, "report", records.encode(report))

    def _frontier(self, control: Control, notes: list[SplitNote]) -> tuple[Frontier, int]:
        """The frontier after the batch, and the newest event time."""
        if control.complete_until is not None:  # at the root of a tree the step says it
            newest = [note.newest for note in notes if note.newest is not None]
            return control.frontier, max(newest, default=EARLIEST)
        heard = heartbeats(notes)
        frontier = control.frontier.after(heard, control.now, self.spec.lateness, self.spec.idle)
        return frontier, frontier.newest


def _read(body: bytes) -> tuple[Partials, SplitNote | None]:
    """Partials and their note, or no note for rows set aside."""
    parcel, tables = codec.unpack(body, Parcel)
    if parcel.split is None:
        return Partials(), None
    return partials_of(tables), parcel.split


def heartbeats(notes: list[SplitNote]) -> dict[str, int]:
    """The newest time of each partition heard of."""
    heard: dict[str, int] = {}
    for note in notes:
        if note.partition is not None and note.newest is not None:
            heard[note.partition] = max(heard.get(note.partition, note.newest), note.newest)
    return heard
