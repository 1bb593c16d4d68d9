"""Reading a split in an executor: events go in, partials come out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from msgspec.structs import replace

from catchment.engine import codec
from catchment.engine.bound import BoundPlan
from catchment.engine.merger import Merger
from catchment.engine.parcels import pack_partials, share_out
from catchment.engine.partials import Partials
from catchment.engine.slicer import rank
from catchment.expression import columns_read
from catchment.planner.edges import EARLIEST
from catchment.sources.base import Piece, Split
from catchment.spark.profile import SplitSeconds, Stopwatch
from catchment.spark.records import Control, Parcel, SplitNote
from catchment.spark.spec import Spec
from catchment.spark.stepping import StepMessages, Steps

_BOUND: dict[tuple[str, int], BoundPlan] = {}
"""The plan in use; binding a plan to columns takes longer than a small batch."""


@dataclass
class SplitReader:
    """Reads one split of a batch: slices what is on time, sets the rest aside, counts all."""

    spec: Spec
    control: Control
    number: int
    node: int

    def rows(self, split: Split | None) -> list[tuple[int, bytes]]:
        """A split's partials by bucket, and what was set aside."""
        source = self.spec.source
        if isinstance(source, Steps):
            return self._merged(split)
        if split is None or source is None:
            return self.sliced([], None, 0)
        pieces = source.read(split, self.columns(), None)
        return self.sliced(pieces, split.partition, split.arrival)

    def _merged(self, split: Split | None) -> list[tuple[int, bytes]]:
        """The partials of messages from below, merged."""
        watch = Stopwatch()
        merger = self._bound().merger(self.node)
        full = Partials()
        note = SplitNote(self.number, self.control, counts={})
        if split is not None:
            messages = StepMessages(self.spec, split)
            for partials in messages:
                merger.absorb(partials)
            full = messages.full
            late = messages.counts.get("late", 0) + messages.late
            counts = messages.counts | {"late": late}
            note = replace(note, newest=messages.newest, ends=messages.ends, counts=counts)
        watch.lap("slice")
        return self._parcels(merger, note, watch, full)

    def _parcels(
        self, merger: Merger, note: SplitNote, watch: Stopwatch, full: Partials | None = None
    ) -> list[tuple[int, bytes]]:
        """What a merger holds, by bucket. Every bucket hears of every split: so each knows the
        frontier without asking; one gets the counts."""
        plan = self.spec.plan(self.control.plan).plan
        found = merger.take(self.number)
        if full is not None:
            found = Partials(found.groups | full.groups, found.events)
        shares = share_out(found, plan, self.spec.buckets)
        others = Parcel(replace(note, counts=None, spilled=[]))
        packed = [
            (label, pack_partials(shares.get(bucket, Partials()), others))
            for bucket, label in enumerate(self.spec.labels)
            if bucket
        ]
        watch.lap("encode")
        counted = Parcel(replace(note, seconds=SplitSeconds(**watch.seconds)))
        first = pack_partials(shares.get(0, Partials()), counted)
        return [(self.spec.labels[0], first), *packed]

    def columns(self) -> list[str] | None:
        """The columns to read: those needed, or all where late events are kept."""
        if self.spec.late == "collect":
            return None
        return columns_read(self.spec.schema.names, self._bound().columns)

    def sliced(
        self, pieces: Iterable[Piece], partition: str | None, arrival: int
    ) -> list[tuple[int, bytes]]:
        """The partials of pieces of a partition."""
        watch = Stopwatch()
        spill = self.spec.aside_place(self.control.batch).spill(self.number)
        bound, frontier = self._bound(), self.control.frontier.value
        merger = bound.merger(self.node)
        clock, stream = lambda: self.control.now, self.spec.stream
        slicer = bound.slicer(stream, encoder=merger.encoder, clock=clock, spill=spill)
        if self.spec.ahead is not None:
            slicer.ceiling = self.control.now + self.spec.ahead
        watch.lap("slice")
        for piece in pieces:
            watch.lap("read")
            arrival = arrival if piece.arrival is None else piece.arrival
            for sliced in slicer.slice(piece.events, frontier, rank(self.node, arrival)):
                merger.add(sliced)
            arrival += piece.events.num_rows
            if piece.bad is not None:
                slicer.unread(piece.bad)
            watch.lap("slice")
        watch.lap("read")
        newest = slicer.newest if slicer.newest > EARLIEST else None
        counts = slicer.counts | {"aside_dropped": slicer.aside.dropped}
        note = SplitNote(self.number, self.control, partition, newest, counts, spill.written)
        made = self._parcels(merger, note, watch)
        held = slicer.aside.drained()
        return made + [(self.spec.labels[0], _parcel(*one)) for one in held.items()]

    def _bound(self) -> BoundPlan:
        key = (self.spec.job, self.control.plan)
        if key not in _BOUND:
            _BOUND.clear()
            _BOUND[key] = self.spec.bound(self.control.plan)
        return _BOUND[key]


def _parcel(kind: str, table: pa.Table) -> bytes:
    return codec.pack(Parcel(aside=kind), {"rows": table})
