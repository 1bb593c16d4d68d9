"""A node in between.

Messages of its children come in through the inbox. A step takes some of them, merges their
partials, and writes a message for the parent with the slices that all children have passed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from catchment.durable.disk import Disk
from catchment.engine.partials import Partials
from catchment.model.capacity import Capacity
from catchment.planner.edges import EARLIEST, LATEST
from catchment.tree.charter import Charter
from catchment.tree.decode import taken
from catchment.tree.inbox import Inbox, taking
from catchment.tree.message import Head, behind_of, notes_of
from catchment.tree.outflow import Outflow
from catchment.tree.records import RelayPlace, RelayStep
from catchment.tree.role_progress import RoleProgress


class Relay:
    """Takes messages, merges their slices once all children have passed them, step by step."""

    source = None
    orders = None

    def __init__(self, id: str, disk: Disk, charter: Charter, now: int) -> None:
        self.flow = Outflow(id, disk, charter)
        place = self.place
        self.inbox = Inbox(disk, {} if place is None else dict(place.children), charter)
        self._expect(now)

    @property
    def place(self) -> RelayPlace | None:
        """How far it has come, as of its last step; None: it has taken none."""
        place = None if self.flow.note is None else self.flow.note.place
        assert place is None or isinstance(place, RelayPlace)
        return place

    @property
    def plan(self) -> int:
        return self.flow.plan

    @property
    def number(self) -> int:
        return 0 if self.place is None else self.place.step

    @property
    def done(self) -> bool:
        return self.flow.complete_until >= LATEST

    def _expect(self, now: int) -> None:
        charter, id = self.flow.charter, self.flow.id
        self.inbox.expect(charter, id, now, self.flow.frontier)
        gone = self.inbox.gone()
        self.inbox.forget(gone)
        if {*gone} & {*charter.children(id)}:  # removed and added again
            self.inbox.expect(charter, id, now, self.flow.frontier)

    def step(self, now: int) -> bool:
        """Takes what has come; whether anything happened."""
        step = self.decide(now)
        if step is None:
            return False
        self.flow.switch(step.plan)
        for id, seq in self.inbox.chosen(step.take):
            with taking(id, seq):
                found = taken(self.inbox.body(id, seq), self.flow.plan, self.flow.charter)
                self.flow.merger.absorb(found.partials, found.head.newest)
            self.flow.notes += [] if found.notes is None else [found.notes]
            self._took(id, found.head, found.end)
        self._finish(step)
        return True

    def decide(self, now: int) -> RelayStep | None:
        """What the next step takes, and how far it goes; None when there is nothing to do."""
        flow, place = self.flow, self.place
        landed = () if place is None else place.view.landed
        choice = self.inbox.choose(
            flow.plan, flow.charter.plan, now, flow.charter.settings.timeout, flow.frontier, landed
        )
        same = place is not None and (choice.plan, choice.view) == (place.plan, place.view)
        if not choice.upto and same:
            return None
        version = flow.charter.version
        return RelayStep(self.number + 1, choice.plan, now, choice.upto, choice.view, version)

    def carried_out(
        self, step: RelayStep, partials: Partials, ends: dict[tuple[str, int], int]
    ) -> None:
        """A step was carried out elsewhere: the messages' partials are merged by now."""
        if step.step <= self.number:
            return
        self.flow.switch(step.plan)
        newest = EARLIEST
        for id, seq in self.inbox.chosen(step.take):
            head = self.inbox.head(id, seq)
            newest = max(newest, head.newest)
            self.flow.notes += self._notes(id, seq)
            self._took(id, head, ends.get((id, seq), EARLIEST))
        self.flow.merger.absorb(partials, newest)
        self._finish(step)

    def _notes(self, id: str, seq: int) -> list[pa.Table]:
        """What a message says of events that are counted."""
        if not self.flow.charter.settings.distributes_counts:
            return []
        found = notes_of(self.inbox.body(id, seq))
        return [] if found is None else [found]

    def _took(self, id: str, head: Head, end: int) -> None:
        self.flow.count(head.counts)
        self.flow.ended |= head.ended
        self.flow.lags(behind_of(head, self.flow.plan))
        self.inbox.take(id, head, end)
        self.flow.lags(self.inbox.take_lost())

    def _finish(self, step: RelayStep) -> None:
        place = RelayPlace(step.step, step.plan, step.view, dict(self.inbox.children))
        self.flow.step(step.view, place, step.now)
        for id, child in self.inbox.children.items():
            self.inbox.trim(id, child.taken)
        self.inbox.forget(self.inbox.gone())

    def acknowledged(self, received: int, settled: int) -> None:
        """The parent has messages: what is in them need not be kept below either."""
        note = self.flow.outbox.ending(received)
        if note is not None and isinstance(note.place, RelayPlace):
            reach = {id: child.taken for id, child in note.place.children.items()}
            self.inbox.passed(reach, note.frontier)
        self.flow.acknowledged(settled)

    def commit(self) -> None:
        return

    def follow(self, charter: Charter, now: int) -> None:
        self.flow.follow(charter)
        self._expect(now)

    def amendments(self) -> Iterator[Charter]:
        return iter(())

    def progress(self) -> RoleProgress:
        return self.flow.progress()

    def capacities(self) -> list[Capacity]:
        return self.flow.capacities()
