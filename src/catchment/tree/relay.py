"""A node in between: merges what its children pass up, and passes that up."""

from __future__ import annotations

from catchment.engine.partials import Partials, ends_of, split_at
from catchment.planner.edges import EARLIEST
from catchment.tree.charter import Charter
from catchment.tree.disk import Disk
from catchment.tree.inbox import Child, Inbox
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
        flow, timeout = self.flow, self.flow.charter.timeout
        found = self.inbox.next(flow.plan)
        waits = self.inbox.behind(flow.plan + 1, now, timeout)
        if not found and flow.plan < flow.charter.plan and not waits:
            # All that is cut by the old plan has been taken, of everyone worth waiting for.
            flow.switch(flow.plan + 1)
            found = self.inbox.next(flow.plan)
        switched = flow.plan != flow.note.get("plan", flow.plan)
        for id, seq in found:
            head, partials = self.read(id, seq)
            self.take(id, head, partials)
        view = self.inbox.view(now, timeout, flow.frontier)
        same = view.frontier == (None if flow.note.get("idle") else flow.frontier)
        if not found and not switched and same and list(view.missing) == self._missing:
            return False
        children = {id: child.to_dict() for id, child in self.inbox.children.items()}
        place = {
            "children": children, "missing": list(view.missing), "idle": view.frontier is None,
        }  # fmt: skip
        reach = {id: (c.epoch, c.taken) for id, c in self.inbox.children.items() if c.taken}
        flow.step(view, place, reach)
        for id, child in self.inbox.children.items():
            self.inbox.trim(id, child.taken)
        return True

    @property
    def _missing(self) -> list[str]:
        names: list[str] = self.flow.note.get("missing", [])
        return names

    def read(self, id: str, seq: int) -> tuple[Head, Partials]:
        """A message as it counts here: by the plan in use, without what came another way."""
        head, partials = decode(self.inbox.body(id, seq), self.flow.charter)
        skip = self.inbox.children[id].skip
        if skip is not None and seq <= skip[0]:
            partials = split_at(partials, skip[1])[1]
        return head, upgraded(partials, head.plan, self.flow.plan, self.flow.charter)

    def take(self, id: str, head: Head, partials: Partials) -> None:
        """Takes a message in."""
        self.flow.cutter.absorb(partials, head.newest)
        self.flow.count(head.counts)
        self.inbox.take(id, head, last_end(partials))

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
    ends = [int(ends_of(id, table).max()) for id, table in partials.items() if table.num_rows]
    return max(ends, default=EARLIEST)
