"""A node in between: merges what its children pass up, and passes that up."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from catchment.durable.disk import Disk
from catchment.engine.partials import Partials
from catchment.planner.edges import EARLIEST
from catchment.tree.charter import Charter
from catchment.tree.decode import taken
from catchment.tree.inbox import Child, Inbox, View, taking
from catchment.tree.message import COUNTS, Head, behind_of, plain_section
from catchment.tree.outflow import Outflow


class Relay:
    """Takes messages, merges their slices once all children have passed them, step by step."""

    def __init__(self, id: str, disk: Disk, charter: Charter, now: int) -> None:
        self.flow = Outflow(id, disk, charter)
        held = self.flow.note.get("children", {})
        children = {child: Child.from_dict(note) for child, note in held.items()}
        self.inbox = Inbox(disk, children, charter)
        self._expect(now)

    def _expect(self, now: int) -> None:
        charter, id = self.flow.charter, self.flow.id
        self.inbox.expect(charter, id, now, self.flow.frontier)
        gone = self.inbox.gone()
        self.inbox.forget(gone)
        if {*gone} & {*charter.children(id)}:  # removed and added again
            self.inbox.expect(charter, id, now, self.flow.frontier)

    def step(self, now: int) -> bool:
        """Takes what has come; whether anything happened."""
        note = self.decide(now)
        if note is None:
            return False
        self.flow.switch(note["plan"])
        for id, seq in self.inbox.chosen(note["take"]):
            with taking(id, seq):
                found = taken(self.inbox.body(id, seq), self.flow.plan, self.flow.charter)
                self.flow.merger.absorb(found.partials, found.head.newest)
            self.flow.notes += [] if found.notes is None else [found.notes]
            self._took(id, found.head, found.end)
        self._finish(note)
        return True

    def decide(self, now: int) -> dict[str, Any] | None:
        """What the next step takes, and how far it goes; None when there is nothing to do."""
        flow = self.flow
        told = flow.note.get("decided", [[]])[-1]
        choice = self.inbox.choose(
            flow.plan, flow.charter.plan, now, flow.charter.timeout, flow.frontier, told
        )
        view = choice.view
        decided = [choice.plan, view.frontier, view.sure, list(view.missing), list(view.landed)]
        if not choice.upto and decided == flow.note.get("decided"):
            return None
        return {
            "step": 1 + flow.note.get("step", 0),
            "plan": choice.plan,
            "now": now,
            "take": choice.upto,
            "decided": decided,
            "charter": flow.charter.version,
            "too_late": EARLIEST,
        }

    def carried_out(
        self, note: dict[str, Any], partials: Partials, ends: dict[tuple[str, int], int]
    ) -> None:
        """A step was carried out elsewhere: the messages' partials are merged by now."""
        if note["step"] <= self.flow.note.get("step", 0):
            return
        self.flow.switch(note["plan"])
        newest = EARLIEST
        for id, seq in self.inbox.chosen(note["take"]):
            head = self.inbox.head(id, seq)
            newest = max(newest, head.newest)
            self.flow.notes += self._notes(id, seq)
            self._took(id, head, ends.get((id, seq), EARLIEST))
        self.flow.merger.absorb(partials, newest)
        self._finish(note)

    def _notes(self, id: str, seq: int) -> list[pa.Table]:
        """What a message says of events that are counted."""
        if not self.flow.charter.asks:
            return []
        found = plain_section(self.inbox.body(id, seq), COUNTS)
        return [] if found is None else [found]

    def _took(self, id: str, head: Head, end: int) -> None:
        self.flow.count(head.counts)
        self.flow.ended |= head.ended
        self.flow.lags(behind_of(head, self.flow.plan))
        self.inbox.take(id, head, end)
        self.flow.lags(self.inbox.take_lost())

    def _finish(self, note: dict[str, Any]) -> None:
        _, frontier, sure, missing, landed = note["decided"]
        place = {
            "children": {id: child.to_dict() for id, child in self.inbox.children.items()},
            "missing": missing,
            "decided": note["decided"],
            "step": note["step"],
        }
        view = View(frontier, sure, tuple(missing), tuple(landed))
        self.flow.step(view, place, note["now"])
        for id, child in self.inbox.children.items():
            self.inbox.trim(id, child.taken)
        self.inbox.forget(self.inbox.gone())

    def acknowledged(self, received: int, settled: int) -> None:
        """The parent has messages: what is in them need not be kept below either."""
        note = self.flow.outbox.ending(received)
        if note is not None:
            reach = {id: child["taken"] for id, child in note["children"].items()}
            self.inbox.passed(reach, note["frontier"])
        self.flow.acknowledged(settled)

    def follow(self, charter: Charter, now: int) -> None:
        self.flow.follow(charter)
        self._expect(now)
