"""A node in between: merges what its children pass up, and passes that up."""

from __future__ import annotations

import copy
from typing import Any

from catchment.engine.partials import Partials, ends_of, split_at
from catchment.planner.edges import EARLIEST
from catchment.tree.charter import Charter
from catchment.tree.disk import Disk
from catchment.tree.inbox import Child, Inbox, View
from catchment.tree.message import Head, decode
from catchment.tree.outflow import Outflow


class Relay:
    """Takes messages, merges their slices once all children have passed them, step by step."""

    def __init__(self, id: str, epoch: int, disk: Disk, charter: Charter, now: int) -> None:
        self.flow = Outflow(id, epoch, disk, charter)
        held = self.flow.note.get("children", {})
        self.inbox = Inbox(disk, {child: Child.from_dict(note) for child, note in held.items()})
        self.inbox.expect(charter.children(id), now, self.flow.frontier)

    def step(self, now: int) -> bool:
        """Takes what has come; whether anything happened."""
        note = self.decide(now)
        if note is None:
            return False
        self.flow.switch(note["plan"])
        for id, seq in self.taken(note):
            head, partials = self.read(id, seq)
            self.flow.cutter.absorb(partials, head.newest)
            self._took(id, head, last_end(partials))
        self._finish(note)
        return True

    def decide(self, now: int) -> dict[str, Any] | None:
        """What the next step takes, and how far it goes; None when there is nothing to do."""
        flow, timeout = self.flow, self.flow.charter.timeout
        plan = flow.plan
        found = self.inbox.next(plan)
        waits = self.inbox.behind(plan + 1, now, timeout)
        if not found and plan < flow.charter.plan and not waits:
            # All that is cut by the old plan has been taken, of everyone worth waiting for.
            plan += 1
            found = self.inbox.next(plan)
        after = {id: copy.copy(child) for id, child in self.inbox.children.items()}
        view = self.inbox.ahead(found, after).view(now, timeout, flow.frontier)
        told = [plan, view.frontier, view.sure, list(view.missing)]
        if not found and told == flow.note.get("decided"):
            return None
        upto: dict[str, int] = {}
        for id, seq in found:
            upto[id] = max(upto.get(id, 0), seq)
        return {
            "step": 1 + flow.note.get("step", 0), "plan": plan, "now": now, "take": upto,
            "decided": told, "charter": flow.charter.version, "too_late": EARLIEST,
            "skip": {id: c.skip for id, c in self.inbox.children.items() if c.skip is not None},
        }  # fmt: skip

    def taken(self, note: dict[str, Any]) -> list[tuple[str, int]]:
        """The messages that a step takes, which was not carried out yet."""
        return [
            (id, seq) for id, upto in note["take"].items()
            for seq in range(self.inbox.children[id].taken + 1, upto + 1)
        ]  # fmt: skip

    def carried_out(
        self, note: dict[str, Any], partials: Partials, ends: dict[tuple[str, int], int]
    ) -> None:
        """A step was carried out elsewhere: the messages' partials are merged by now."""
        if note["step"] <= self.flow.note.get("step", 0):
            return
        self.flow.switch(note["plan"])
        newest = EARLIEST
        for id, seq in self.taken(note):
            head = self.inbox.head(id, seq)
            newest = max(newest, head.newest)
            self._took(id, head, ends.get((id, seq), EARLIEST))
        self.flow.cutter.absorb(partials, newest)
        self._finish(note)

    def _took(self, id: str, head: Head, end: int) -> None:
        self.flow.count(head.counts)
        self.inbox.take(id, head, end)

    def _finish(self, note: dict[str, Any]) -> None:
        _, frontier, sure, missing = note["decided"]
        place = {
            "children": {id: child.to_dict() for id, child in self.inbox.children.items()},
            "missing": missing, "decided": note["decided"], "step": note["step"],
        }  # fmt: skip
        reach = {id: (c.epoch, c.taken) for id, c in self.inbox.children.items() if c.taken}
        self.flow.step(View(frontier, sure, tuple(missing)), place, reach)
        for id, child in self.inbox.children.items():
            self.inbox.trim(id, child.taken)

    def read(self, id: str, seq: int) -> tuple[Head, Partials]:
        """A message as it counts here: by the plan in use, without what came another way."""
        head, partials = decode(self.inbox.body(id, seq), self.flow.charter)
        skip = self.inbox.children[id].skip
        if skip is not None and seq <= skip[0]:
            partials = split_at(partials, skip[1])[1]
        return head, upgraded(partials, head.plan, self.flow.plan, self.flow.charter)

    def acknowledged(self, received: int, settled: int) -> None:
        """The parent has messages: what is in them need not be kept below either."""
        note = self.flow.outbox.note_of(received)
        if note is not None:
            reach = {id: child["taken"] for id, child in note["children"].items()}
            self.inbox.passed(reach, note["frontier"])
        self.flow.acknowledged(settled)

    def follow(self, charter: Charter, now: int) -> None:
        self.flow.follow(charter)
        self.inbox.expect(charter.children(self.flow.id), now, self.flow.frontier)


def upgraded(partials: Partials, cut: int, plan: int, charter: Charter) -> Partials:
    """Partials cut by an older version of the plan, as far as they serve a newer one."""
    if cut >= plan:
        return partials
    cutter = charter.cutter(cut)
    cutter.absorb(partials)
    for version in range(cut + 1, plan + 1):
        planned = charter.plans[version]
        cutter.follow(planned.plan, planned.lineage)
    return cutter.take()


def last_end(partials: Partials) -> int:
    """When the last of them is past."""
    ends = [int(ends_of(table).max()) for table in partials.values() if table.num_rows]
    return max(ends, default=EARLIEST)
