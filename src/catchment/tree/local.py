"""A node beside the data.

A source goes in; messages with partials come out in the outbox. A step reads at most a batch of
events, slices them, merges the slices, and releases those that have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from catchment.durable import records
from catchment.durable.disk import Disk
from catchment.engine.partials import Partials
from catchment.engine.slicer import rank
from catchment.errors import SourceError, StateError
from catchment.expression import columns_read
from catchment.marking.leaf import LeafMarks
from catchment.model.capacity import Capacity
from catchment.model.frontier import Frontier
from catchment.planner.edges import EARLIEST, LATEST
from catchment.ranking.leaf import LeafRanks
from catchment.sources.base import Piece, Position, Source
from catchment.tree.charter import Charter
from catchment.tree.outflow import Outflow
from catchment.tree.records import Lag, LocalPlace, View
from catchment.tree.role_progress import RoleProgress
from catchment.tree.take_over import NOTE, Replay, ReplayedEvents
from catchment.tree.words import PartitionsRead, TakeOver

PARTITIONS = 256
"""Partitions that one node may read: events rank by node, then partition, then arrival."""
_COUNTED = ("events", "late", "bad", "updates", "no_window")


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
    questions = None
    edges = None
    due = None

    def __init__(
        self, id: str, disk: Disk, charter: Charter, source: Source, keep: AsideWriter | None = None
    ) -> None:
        told = records.get(disk, NOTE, TakeOver)
        begins = None if told is None or told.at.plan not in charter.plans else told.at.plan
        self.flow = Outflow(id, disk, charter, begins)
        self.flow.count_windows(charter.places[id].number)
        self.flow.keep_values(charter.places[id].number)
        self.flow.keep_between_marks(charter.places[id].number)
        self.source = source
        place = self.place
        self.at: Position | None = None if place is None else place.at
        self.frontier = Frontier() if place is None else place.partitions
        self.ended = place is not None and place.ended
        self.read: PartitionsRead = {} if place is None else dict(place.read or {})
        """How far each partition was read, in places of events."""
        merger = self.flow.merger
        self.slicer = merger.bound.slicer(charter.stream(id), encoder=merger.encoder)
        self.replay: Replay | None = None
        """While it takes over from a node: what that one had read is read again."""
        self._unread_since: int | None = None
        """Where it goes on from a node whose source cannot be read again: the newest event that
        this one had, until the first event has come."""
        if told is not None and (place is None or not place.read):
            self._take_over(told)
        self._heard: dict[str, int] = {}
        """The newest event time of each partition in the step at hand."""
        self._keep = keep
        self._parts = 0
        if keep is not None:
            keep.begin()

    @property
    def place(self) -> LocalPlace | None:
        """The position of the node after its last step; None before the first step."""
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

    def _take_over(self, told: TakeOver) -> None:
        """Goes on from another node, as far as its parent has heard of it."""
        flow = self.flow
        if self.source.replays:
            self.replay = Replay(told, flow.charter)
            return
        flow.frontier = flow.complete_until = told.at.complete_until
        flow.lags({told.old: Lag(lost=told.newest)})
        self._unread_since = told.newest

    def _read_again(self, now: int) -> bool:
        """Reads what the node before had read, at most a batch; whether anything happened."""
        replay, settings = self.replay, self.flow.charter.settings
        assert replay is not None
        self._begin(now)
        assert self.at is not None
        end = self.source.latest(self.at)
        if end == self.at and not self.source.ended(end):
            return False
        if end == self.at:
            self._caught_up(replay, lost=replay.take_over.newest)
            return True
        heard = self._read(end, now)
        self.frontier = self.frontier.after(heard, now, settings.lateness, settings.idle)
        self.at = end
        if self.replay is None:
            self.finish(now)
            return True
        # What the parent has need not be held here until all is read again.
        self.flow.frontier = min(self.frontier.value, replay.take_over.at.complete_until)
        self.flow.merger.release(self.flow.frontier)
        return True

    def _replayed(self, replay: Replay, piece: Piece, partition: str, arrival: int) -> None:
        """Slices what is read again, and forgets what the parent has of it."""
        alone = len(self.frontier.partitions) == 1
        replay.add(partition, arrival, piece.events, alone)
        for part in replay.parts():
            if part is None:
                replay.check(self.flow.merger.newest)
                self._caught_up(replay)
            elif isinstance(part, ReplayedEvents):
                self._add(part.events, part.partition, part.arrival, counts=replay.over)
            elif part.head.frontier is None:  # it was idle, and had sent all
                self.flow.merger.release(LATEST, settles=part.head.complete_until)
            else:
                self.flow.merger.discard(part.partials)

    def _caught_up(self, replay: Replay, lost: int | None = None) -> None:
        """All is held again that the node before held, but for what is lost."""
        flow, told = self.flow, replay.take_over
        self.replay = None
        reached = told.at.complete_until
        if replay.gap:
            lost = told.newest
        if told.unsure > reached:
            lost = max(told.unsure - 1, told.newest)
        if told.at.plan != flow.plan:
            lost, reached = told.newest, LATEST
        flow.merger.release(max(reached, told.unsure), settles=told.at.complete_until)
        flow.frontier = flow.complete_until = told.at.complete_until
        # What was kept back until it is asked for is gone with whom it would be asked of.
        counted = [*flow.charter.distributed_groups(flow.plan)]
        for id in counted:
            flow.merger.take_waiting(id)
        ranked = [] if flow.ranking is None else flow.ranking.questioned
        sets = () if flow.marking is None else flow.charter.cut_sets(flow.plan)
        marked = [group for id in sets for group in flow.merger.bound.waiting[id].groups]
        # Windows of this stream follow from the order in which events were taken in.
        planned = flow.charter.plans[flow.plan].plan
        streams = [group.id for group in planned.groups if group.slicing == "stream"]
        own = streams if replay.unordered else []
        late = dict.fromkeys([*counted, *ranked, *marked, *own], told.newest + 1)
        if late or lost is not None:
            flow.lags({told.old: Lag(lost=lost, late=late)})
        if replay.skipped():
            self._unread_since = told.newest

    def _begin(self, now: int) -> None:
        if self.at is None:
            self.at = self.source.start()
            self.frontier = self.frontier.knowing(self.source.partitions(self.at), now)

    def step(self, now: int) -> bool:
        """Reads what there is, at most a batch; whether anything happened."""
        if self.replay is not None:
            return self._read_again(now)
        flow = self.flow
        asked = self._pending
        if self.ended and flow.plan == flow.charter.plan and not asked:
            return False
        self._begin(now)
        assert self.at is not None
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
        if self.replay is not None:
            raise StateError(
                "a node on Spark cannot take over from another",
                given=f"{self.flow.id}, from {self.replay.take_over.old}",
                hint="start it with --engine embedded",
            )
        self.flow.switch(batch.plan)
        self.flow.merger.absorb(batch.partials, batch.frontier.newest)
        self.flow.count({name: count for name, count in batch.counts.items() if count})
        self.frontier, self.at, self.ended = batch.frontier, {}, batch.ended
        self.finish(now, batch.number)

    def refresh(self, now: int) -> None:
        """Between batches: ends a step if partitions have fallen silent or come back, or if the
        root has asked something."""
        asked = self._pending
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
        stream = self.flow.charter.stream(self.flow.id)
        self.flow.ended = {stream: self.flow.merger.newest} if self.ended else {}
        counting = self.flow.counting
        if counting is not None:
            counting.feed(value, self.ended)
            if self.ended and not counting.leaf.done:
                value = LATEST - 1  # all is here, but it may still be asked where
        if self.ended and self._holds:
            value = LATEST - 1
        idle = not self.ended and self._idle(now)
        read = dict(self.read) if batch is None else None
        place = LocalPlace(self.at, self.frontier, self.ended, idle, batch, read)
        self.flow.step(View(None if idle else value, value), place, now)

    @property
    def _holders(self) -> list[LeafRanks | LeafMarks]:
        """What keeps values or events back here, until the root lets go of them."""
        logs = (self.flow.ranking, self.flow.marking)
        return [log.leaf for log in logs if log is not None and log.leaf.held]

    @property
    def _holds(self) -> bool:
        """Whether something is kept back here, or may be, that the root has not let go of."""
        kept, place = self._holders, self.place
        if not kept:
            return False
        return place is None or not place.ended or not all(leaf.empty for leaf in kept)

    @property
    def _pending(self) -> bool:
        """Whether the root has asked something, or has let go of all that a node keeps that has
        ended."""
        if self.flow.pending:
            return True
        counting = self.flow.counting
        over = counting is None or counting.leaf.done
        return self.ended and bool(self._holders) and over and not self.done and not self._holds

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
        self._heard = {}
        assert self.at is not None
        splits = self.source.splits(self.at, end, 1)
        self.frontier = self.frontier.knowing([split.partition for split in splits], now)
        slicer, settings = self.slicer, self.flow.charter.settings
        slicer.follow(self.flow.merger.bound)
        slicer.clock = lambda: now
        kept = self._keep is not None and self.replay is None
        slicer.aside.spill = self._spill if kept else None
        if settings.ahead is not None:
            slicer.ceiling = now + settings.ahead
        assert self.flow.charter.schema is not None
        names = columns_read(self.flow.charter.schema.names, slicer.bound.columns)
        columns = None if settings.late == "collect" else names
        for split in splits:
            number = self.frontier.number(split.partition)
            if number >= PARTITIONS:
                raise SourceError(
                    "a node cannot read so many streams",
                    given=f"{number + 1} partitions",
                    hint=f"share them out over nodes, at most {PARTITIONS} each",
                )
            arrival = split.arrival
            for piece in self.source.read(split, columns, None):
                arrival = self._slice(piece, split.partition, arrival)
            self.read[split.partition] = max(arrival, self.read.get(split.partition, 0))
        heard = self._heard
        if heard and self._unread_since is not None and self.replay is None:
            # What came after the last event of the node before, until now, nobody has read.
            old = self.flow.charter.places[self.flow.id].replaces[-1]
            lost = max(self._unread_since, *heard.values())
            self.flow.lags({old: Lag(lost=lost)})
            self._unread_since = None
        return heard

    def _slice(self, piece: Piece, partition: str, arrival: int) -> int:
        """Slices a piece of a partition; gives the number of the event that follows it."""
        arrival = arrival if piece.arrival is None else piece.arrival
        if self.replay is not None:
            self._replayed(self.replay, piece, partition, arrival)
        else:
            self._add(piece.events, partition, arrival)
        if piece.bad is not None and piece.bad.num_rows and self.replay is None:
            self.slicer.aside.add("unread", piece.bad)
            self.flow.count({"events": piece.bad.num_rows, "bad": piece.bad.num_rows})
        return arrival + piece.events.num_rows

    def _add(self, events: pa.Table, partition: str, arrival: int, counts: bool = True) -> None:
        """Slices events; those that are read again were counted before."""
        slicer, before = self.slicer, dict(self.slicer.counts)
        slicer.newest = EARLIEST
        place = rank(self._first_rank + self.frontier.number(partition), arrival)
        # What is read again is not late: the old node read other batches, and may have had it in
        # time. Where it is not needed, it is forgotten with its slice.
        frontier = self.flow.frontier if counts else EARLIEST
        for sliced in slicer.slice(events, frontier, place):
            self.flow.merger.add(sliced)
            oldest = self.flow.frontier - slicer.bound.keep
            if not counts and self.replay is not None and len(sliced.batch):
                self.replay.unordered |= sliced.batch.span[0] < oldest
        if slicer.newest > EARLIEST:
            newest = self._heard.get(partition, EARLIEST)
            self._heard[partition] = max(newest, slicer.newest)
        if counts:
            found = {name: self.slicer.counts[name] - before[name] for name in _COUNTED}
            self.flow.count({name: count for name, count in found.items() if count})
        else:
            self.slicer.aside.drained()  # they were set aside before

    def _spill(self, kind: str, rows: pa.Table) -> None:
        """Writes rows set aside to a file before the step ends: they are too many for memory."""
        assert self._keep is not None
        self._parts += 1
        self._keep.write(1 + self.flow.outbox.number, self._parts, kind, rows)

    def commit(self) -> None:
        if self.at is not None and self.replay is None:
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
