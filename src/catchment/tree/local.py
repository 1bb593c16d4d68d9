"""A node beside the data.

A source goes in; messages with partials come out in the outbox. A step reads at most a batch of
events, slices them, merges the slices, and releases those that have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from catchment.durable.disk import Disk
from catchment.engine.partials import Partials
from catchment.engine.slicer import rank
from catchment.errors import SourceError
from catchment.model.capacity import Capacity
from catchment.model.frontier import Frontier
from catchment.planner.edges import EARLIEST, LATEST
from catchment.sources.base import Piece, Position, Source
from catchment.tree.charter import Charter
from catchment.tree.outflow import Outflow
from catchment.tree.records import LocalPlace, View
from catchment.tree.role_progress import RoleProgress

PARTITIONS = 256
"""Partitions that one node may read: events rank by node, then partition, then arrival."""
_COUNTED = ("events", "late", "bad", "updates")


class AsideWriter(Protocol):
    """Keeps rows that were set aside, by the step that did."""

    def write(self, number: int, part: int, kind: str, rows: pa.Table) -> None:
        """Writes rows of a step; the same part again replaces what it had written."""

    def begin(self) -> None:
        """A step is begun anew: what it wrote before counts only if it is written again."""

    def end(self, number: int) -> None:
        """All rows of the step are written."""

    def capacity(self) -> Capacity:
        """How much is kept, and how much may be."""
        ...


@dataclass(frozen=True)
class SlicedElsewhere:
    """What a batch brought that was read and sliced elsewhere."""

    number: int
    plan: int
    partials: Partials
    frontier: Frontier
    counts: dict[str, int]
    ended: bool


class Local:
    """Turns a source into messages, step by step."""

    inbox = None
    orders = None

    def __init__(
        self, id: str, disk: Disk, charter: Charter, source: Source, keep: AsideWriter | None = None
    ) -> None:
        self.flow = Outflow(id, disk, charter)
        self.flow.count_windows(charter.places[id].number)
        self.source = source
        place = self.place
        self.at: Position | None = None if place is None else place.at
        self.frontier = Frontier() if place is None else place.partitions
        self.ended = place is not None and place.ended
        merger = self.flow.merger
        self.slicer = merger.bound.slicer(id, encoder=merger.encoder)
        self._keep = keep
        self._parts = 0
        if keep is not None:
            keep.begin()

    @property
    def place(self) -> LocalPlace | None:
        """How far it has come, as of its last step; None: it has taken none."""
        place = None if self.flow.note is None else self.flow.note.place
        assert place is None or isinstance(place, LocalPlace)
        return place

    @property
    def _first_rank(self) -> int:
        """The rank of its first partition among the partitions of all nodes."""
        return self.flow.charter.places[self.flow.id].number * PARTITIONS

    @property
    def plan(self) -> int:
        return self.flow.plan

    @property
    def number(self) -> int:
        return self.flow.outbox.number

    @property
    def done(self) -> bool:
        return self.ended and self.flow.frontier >= LATEST

    def step(self, now: int) -> bool:
        """Reads what there is, at most a batch; whether anything happened."""
        flow = self.flow
        asked = flow.counting is not None and flow.counting.leaf.pending
        if self.ended and flow.plan == flow.charter.plan and not asked:
            return False
        if self.at is None:
            self.at = self.source.start()
            self.frontier = self.frontier.knowing(self.source.partitions(self.at), now)
        end = self.at if flow.crowded else self.source.latest(self.at)
        ended = end == self.at and self.source.ended(end)
        settings = flow.charter.settings
        after = self.frontier.after({}, now, settings.lateness, settings.idle)
        news = end != self.at or ended != self.ended or flow.plan < flow.charter.plan
        older = after.value > self.frontier.value or self._idle(now) != self._was_idle
        if not news and not older and not asked:
            return False
        flow.switch(flow.charter.plan)
        heard = self._read(end, now)
        self.frontier = self.frontier.after(heard, now, settings.lateness, settings.idle)
        self.at, self.ended = end, ended
        self.finish(now)
        return True

    def take(self, batch: SlicedElsewhere, now: int) -> None:
        """Takes a batch that was read and sliced elsewhere; each counts once."""
        place = self.place
        if place is not None and place.batch is not None and batch.number <= place.batch:
            return
        self.flow.switch(batch.plan)
        self.flow.merger.absorb(batch.partials, batch.frontier.newest)
        self.flow.count({name: count for name, count in batch.counts.items() if count})
        self.frontier, self.at, self.ended = batch.frontier, {}, batch.ended
        self.finish(now, batch.number)

    def refresh(self, now: int) -> None:
        """Between batches: ends a step if partitions have fallen silent or come back, or if the
        root has asked about count windows."""
        asked = self.flow.counting is not None and self.flow.counting.leaf.pending
        idles = not self.ended and self._idle(now) != self._was_idle
        place = self.place
        if place is not None and (idles or asked):
            self.finish(now, place.batch)

    def finish(self, now: int, batch: int | None = None) -> None:
        """Ends a step whose events are in the merger; `batch` is one that was read elsewhere."""
        # Before the step is written down: one that is done again writes the same again.
        aside = self.slicer.aside
        held = aside.drained()
        if aside.dropped:
            self.flow.count({"aside_dropped": aside.dropped})
            aside.dropped = 0
        if self._keep is not None and batch is None:
            for kind, rows in held.items():
                self._keep.write(1 + self.flow.outbox.number, 0, kind, rows)
            self._keep.end(1 + self.flow.outbox.number)
        self._parts = 0
        value = LATEST if self.ended else self.frontier.value
        self.flow.ended = {self.flow.id: self.flow.merger.newest} if self.ended else {}
        counting = self.flow.counting
        if counting is not None:
            counting.feed(value, self.ended)
            if self.ended and not counting.leaf.done:
                value = LATEST - 1  # all is here, but it may still be asked where
        idle = not self.ended and self._idle(now)
        place = LocalPlace(self.at, self.frontier, self.ended, idle, batch)
        self.flow.step(View(None if idle else value, value), place, now)

    @property
    def _was_idle(self) -> bool:
        return self.place is not None and self.place.idle

    def _idle(self, now: int) -> bool:
        """Whether every partition has been silent for so long that nobody need wait for it."""
        idle = self.flow.charter.settings.idle
        seen = [at for _, at in self.frontier.partitions.values()]
        return idle is not None and bool(seen) and all(now - at > idle for at in seen)

    def _read(self, end: Position, now: int) -> dict[str, int]:
        """Cuts the events up to a position; the newest time of each partition."""
        heard: dict[str, int] = {}
        assert self.at is not None
        splits = self.source.splits(self.at, end, 1)
        self.frontier = self.frontier.knowing([split.partition for split in splits], now)
        slicer, settings = self.slicer, self.flow.charter.settings
        slicer.follow(self.flow.merger.bound)
        slicer.clock = lambda: now
        slicer.aside.spill = None if self._keep is None else self._spill
        if settings.ahead is not None:
            slicer.ceiling = now + settings.ahead
        assert self.flow.charter.schema is not None
        names = [n for n in self.flow.charter.schema.names if n in slicer.bound.columns]
        columns = None if settings.late == "collect" else names
        for split in splits:
            number = self.frontier.number(split.partition)
            if number >= PARTITIONS:
                raise SourceError(
                    "a node cannot read so many streams",
                    given=f"{number + 1} partitions",
                    hint=f"share them out over nodes, at most {PARTITIONS} each",
                )
            slicer.newest = EARLIEST
            arrival = split.arrival
            for piece in self.source.read(split, columns, None):
                arrival = self._slice(piece, self._first_rank + number, arrival)
            if slicer.newest > EARLIEST:
                heard[split.partition] = max(heard.get(split.partition, EARLIEST), slicer.newest)
        return heard

    def _slice(self, piece: Piece, node: int, arrival: int) -> int:
        """Slices a piece of a partition; gives the number of the event that follows it."""
        arrival = arrival if piece.arrival is None else piece.arrival
        before = dict(self.slicer.counts)
        for sliced in self.slicer.slice(piece.events, self.flow.frontier, rank(node, arrival)):
            self.flow.merger.add(sliced)
        counts = {name: self.slicer.counts[name] - before[name] for name in _COUNTED}
        if piece.bad is not None and piece.bad.num_rows:
            self.slicer.aside.add("unread", piece.bad)
            counts["events"] += piece.bad.num_rows
            counts["bad"] += piece.bad.num_rows
        self.flow.count({name: count for name, count in counts.items() if count})
        return arrival + piece.events.num_rows

    def _spill(self, kind: str, rows: pa.Table) -> None:
        """Keeps rows set aside before the step is over: they are too many to hold."""
        assert self._keep is not None
        self._parts += 1
        self._keep.write(1 + self.flow.outbox.number, self._parts, kind, rows)

    def commit(self) -> None:
        if self.at is not None:
            self.source.commit(self.at)

    def follow(self, charter: Charter, now: int) -> None:
        self.flow.follow(charter)

    def acknowledged(self, received: int, settled: int) -> None:
        self.flow.acknowledged(settled)

    def amendments(self) -> Iterator[Charter]:
        return iter(())

    def progress(self) -> RoleProgress:
        return self.flow.progress()

    def capacities(self) -> list[Capacity]:
        kept = [] if self._keep is None else [self._keep.capacity()]
        return [*self.flow.capacities(), self.slicer.aside.capacity(), *kept]
