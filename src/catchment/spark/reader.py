"""Reading a split in an executor: events go in, partials come out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from catchment.engine import codec
from catchment.engine.cutter import Cutter
from catchment.engine.parcels import pack_partials, share_out
from catchment.engine.partials import Partials
from catchment.engine.set_aside import SetAside
from catchment.planner.edges import EARLIEST
from catchment.sources.base import Piece, Split
from catchment.spark.spec import Control, Spec
from catchment.spark.stepping import Messages, Steps

_CUTTERS: dict[tuple[str, int], Cutter] = {}
"""One for the plan in use; binding a plan to columns takes longer than a small batch."""


@dataclass
class Reading:
    """Reads one split of a batch: slices what is on time, sets the rest aside, counts all."""

    spec: Spec
    control: Control
    number: int
    node: int

    def rows(self, split: Split | None) -> list[tuple[int, bytes]]:
        """A split's partials by bucket, and what was set aside."""
        if isinstance(self.spec.source, Steps):
            return self._merged(split)
        if split is None:
            return self.sliced([], None, 0)
        pieces = self.spec.source.read(split, self.columns(), None)
        return self.sliced(pieces, split.partition, split.arrival)

    def _merged(self, split: Split | None) -> list[tuple[int, bytes]]:
        """The partials of messages from below, merged."""
        cutter = self._cutter()
        full: Partials = {}
        note: dict[str, Any] = {"newest": None, "ends": [], "counts": {}}
        if split is not None:
            messages = Messages(self.spec, split)
            for partials in messages:
                cutter.absorb(partials)
            full = messages.full
            late = messages.counts.get("late", 0) + messages.late
            note = {"newest": messages.newest, "ends": messages.ends}
            note["counts"] = messages.counts | {"late": late}
        return self._parcels(cutter, note | {"partition": None}, full)

    def _parcels(
        self, cutter: Cutter, note: dict[str, Any], full: Partials | None = None
    ) -> list[tuple[int, bytes]]:
        """What a cutter holds, by bucket. Every bucket hears of every split: so each knows the
        frontier without asking; one gets the counts."""
        spec, version = self.spec, self.control.plan
        found = cutter.take(self.number) | (full or {})
        shares = share_out(found, spec.plan(version).plan, spec.buckets, spec.asked(version))
        counted = note | {"control": self.control.to_dict(), "number": self.number}
        once = ("counts", "spilled")
        others = {name: value for name, value in counted.items() if name not in once}
        return [
            (label, pack_partials(shares.get(bucket, {}), others if bucket else counted))
            for bucket, label in enumerate(self.spec.labels)
        ]

    def columns(self) -> list[str] | None:
        """The columns to read: those needed, or all where late events are kept."""
        if self.spec.late == "collect":
            return None
        needed = self._cutter().needed | {self.spec.time}
        return [name for name in self.spec.schema.names if name in needed]

    def sliced(
        self, pieces: Iterable[Piece], partition: str | None, arrival: int
    ) -> list[tuple[int, bytes]]:
        """The partials of pieces of a partition."""
        cutter = self._cutter()
        spill = self.spec.aside_place(self.control.batch).spill(self.number)
        cutter.aside = SetAside(cutter.aside.limit, spill)
        unread = 0
        for piece in pieces:
            arrival = arrival if piece.arrival is None else piece.arrival
            cutter.cut(piece.events, arrival)
            arrival += piece.events.num_rows
            if piece.bad is not None:
                unread += piece.bad.num_rows
                cutter.aside.add("unread", piece.bad)
        newest = cutter.newest if cutter.newest > EARLIEST else None
        counts = self._counts(cutter, unread)
        note = {"partition": partition, "newest": newest, "counts": counts}
        made = self._parcels(cutter, note | {"spilled": [list(kept) for kept in spill.written]})
        held = cutter.aside.drained()
        return made + [(self.spec.labels[0], _parcel(*one)) for one in held.items()]

    def _cutter(self) -> Cutter:
        key = (self.spec.job, self.control.plan)
        if key not in _CUTTERS:
            _CUTTERS.clear()
            _CUTTERS[key] = self.spec.cutter(self.control.plan)
        cutter = _CUTTERS[key]
        cutter.reset(self.node, self.control.frontier.value)
        cutter.clock = lambda: self.control.now
        if self.spec.ahead is not None:
            cutter.ceiling = self.control.now + self.spec.ahead
        return cutter

    def _counts(self, cutter: Cutter, unread: int) -> dict[str, int]:
        counts = dict(cutter.counts) | {"aside_dropped": cutter.aside.dropped}
        counts["events"] += unread
        counts["bad"] += unread
        return counts


def _parcel(kind: str, table: pa.Table) -> bytes:
    return codec.pack({"kind": kind}, {"rows": table})
