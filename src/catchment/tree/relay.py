"""A node in between.

Messages of its children come in through the inbox. A step takes some of them, merges their
partials, and writes a message for the parent with the slices that all children have passed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from catchment.durable.disk import Disk
from catchment.engine.partials import Partials
from catchment.marking.agreement import EventsKept
from catchment.marking.merging import checked_section
from catchment.model.capacity import Capacity
from catchment.planner.edges import EARLIEST, LATEST
from catchment.tree.charter import Charter
from catchment.tree.decode import taken
from catchment.tree.inbox import Inbox, taking
from catchment.tree.known_plans import KnownPlans, speaker_of
from catchment.tree.message import Head, behind_of, notes_of
from catchment.tree.outflow import Outflow
from catchment.tree.records import PlansBegun, RelayPlace, RelayStep
from catchment.tree.role_progress import RoleProgress


class Relay:
    """Takes messages, merges their slices once all children have passed them, step by step."""

    source = None
    orders = None
    questions = None
    edges = None

    def __init__(self, id: str, disk: Disk, charter: Charter, now: int) -> None:
        self.flow = Outflow(id, disk, charter)
        place = self.place
        self.inbox = Inbox(disk, {} if place is None else dict(place.children), charter)
        self.events_kept = EventsKept()
        """Events that children keep between marks; it is learnt anew after a restart."""
        self._begun: PlansBegun = {}
        """What it knew when it went over to versions of the plan, while it carries out a step."""
        self._expect(now)

    @property
    def place(self) -> RelayPlace | None:
        """The position of the node after its last step; None before the first step."""
        place = None if self.flow.note is None else self.flow.note.place
        assert place is None or isinstance(place, RelayPlace)
        return place

    @property
    def due(self) -> int | None:
        return self.flow.due

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
        """Takes messages that have come, as one step; False where there was nothing to do."""
        step = self.decide(now)
        if step is None:
            return False
        self._switch(step.plan)
        for id, seq in self.inbox.chosen(step.take):
            with taking(id, seq):
                head = self.inbox.head(id, seq)
                found = taken(self.inbox.body(id, seq), self.flow.plan, self.flow.charter)
                self.flow.merger.absorb(found.partials, head.newest)
            self.flow.notes += [] if found.notes is None else [found.notes]
            self.flow.ranks += [] if found.ranks is None else [found.ranks]
            self._hear_marks(head, found.marks)
            self._took(id, head, found.end)
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
        if not choice.upto and same and not flow.owes:
            return None
        version = flow.charter.version
        return RelayStep(self.number + 1, choice.plan, now, choice.upto, choice.view, version)

    def carried_out(
        self, step: RelayStep, partials: Partials, ends: dict[tuple[str, int], int]
    ) -> None:
        """A step was carried out elsewhere: the messages' partials are merged by now."""
        if step.step <= self.number:
            return
        self._switch(step.plan)
        newest = EARLIEST
        for id, seq in self.inbox.chosen(step.take):
            head = self.inbox.head(id, seq)
            newest = max(newest, head.newest)
            settings, body = self.flow.charter.settings, self.inbox.body
            if settings.distributes_counts and (notes := notes_of(body(id, seq))) is not None:
                self.flow.notes.append(notes)
            if settings.asks_values and (ranks := notes_of(body(id, seq), "ranks")) is not None:
                self.flow.ranks.append(ranks)
            if settings.asks_marks:
                self._hear_marks(head, notes_of(body(id, seq), "marks"))
            self._took(id, head, ends.get((id, seq), EARLIEST))
        self.flow.merger.absorb(partials, newest)
        self._finish(step)

    def _switch(self, plan: int) -> None:
        """Goes over to a version of the plan, and knows of all that was read by older ones."""
        plans = self.flow.charter.plans
        begun = {} if self.place is None else self.place.begun
        self._begun = {version: at for version, at in begun.items() if version in plans}
        if plan > self.flow.plan:
            newest = self.inbox.newest_before(plan)
            self.flow.switch(plan)
            self.flow.merger.absorb(Partials(), newest)
            self._begun[plan] = self.flow.merger.newest

    def _hear_marks(self, head: Head, said: pa.Table | None) -> None:
        """Passes on what a child says of events between marks, but for rows that contradict it."""
        plans = KnownPlans(self.flow.charter, self.flow.plan)
        found = checked_section(said, speaker_of(head, self.flow.charter), self.events_kept, plans)
        self.flow.marks += [] if found is None else [found]

    def _took(self, id: str, head: Head, end: int) -> None:
        self.flow.count(head.counts)
        self.flow.ended |= head.ended
        before = self.inbox.children[id].plan
        self.flow.lags(behind_of(head, self.flow.plan, before, self._begun))
        self.inbox.take(id, head, end)
        self.flow.lags(self.inbox.take_lost())

    def _finish(self, step: RelayStep) -> None:
        children = dict(self.inbox.children)
        place = RelayPlace(step.step, step.plan, step.view, children, self._begun)
        self.flow.step(step.view, place, step.now)
        for id, child in self.inbox.children.items():
            self.inbox.trim(id, child.taken)
        self.inbox.succeed(step.now)
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
