"""What a node below the root does with partials: hold them until slices are whole, pass them up."""

from __future__ import annotations

from typing import Any

from catchment.engine.cutter import Cutter
from catchment.engine.parcels import pack_partials, unpack_partials
from catchment.model.window import Periodic
from catchment.planner.edges import EARLIEST, LATEST, Series
from catchment.tree.charter import Charter
from catchment.tree.disk import Disk
from catchment.tree.inbox import View
from catchment.tree.message import Head, encode
from catchment.tree.outbox import Outbox

NOWHERE = [EARLIEST, EARLIEST, -1]
"""Frontier, what is sure of it, and plan of a node that has said nothing yet."""


class Outflow:
    """Merges partials by slice, and writes down messages for the parent.

    All of it goes on after a crash from the outbox's last record.
    """

    def __init__(self, id: str, epoch: int, disk: Disk, charter: Charter) -> None:
        self.id, self.epoch = id, epoch
        self.charter = charter
        self.outbox = Outbox(disk)
        last = self.outbox.last
        self.note: dict[str, Any] = {} if last is None else last.note
        self.frontier: int = self.note.get("frontier", EARLIEST)
        self.sure: int = self.note.get("sure", EARLIEST)
        # Somebody who comes here by a move may bring what was cut by an older version.
        first = min(charter.plans) if charter.moves else charter.plan
        self.plan: int = self.note.get("plan", first)
        self._told: tuple[Any, ...] = tuple(self.note.get("told", ()))
        self.cutter = self._restored(b"" if last is None else last.carry)
        self.counts: dict[str, int] = dict(self.note.get("counts", {}))
        """What happened since the last message."""
        self.ended: dict[str, int] = dict(self.note.get("ends", {}))
        """The nodes below whose streams have ended, and the time of the last event of each."""

    def _restored(self, carry: bytes) -> Cutter:
        cutter = self.charter.cutter(self.plan)
        cutter.frontier, cutter.stream = self.frontier, self.id
        if carry:
            cutter.absorb(unpack_partials(carry)[0])
        cutter.newest = self.note.get("newest", EARLIEST)
        return cutter

    def follow(self, charter: Charter) -> None:
        """Takes a newer charter; the plan stays until `switch`."""
        self.charter = charter

    def switch(self, plan: int) -> None:
        """Goes over to a newer version of the plan."""
        while self.plan < plan:
            self.plan += 1
            planned = self.charter.plans[self.plan]
            self.cutter.follow(planned.plan, planned.lineage)

    def count(self, counts: dict[str, int]) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def step(self, view: View, place: dict[str, Any]) -> None:
        """Ends a step: passes up what is whole now, and notes how far the node has come."""
        before = self.frontier
        self._reach(view)
        self.cutter.frontier = self.frontier
        # Nobody waits for an idle node: what it holds back would come too late.
        partials = self.cutter.release(LATEST if view.frontier is None else self.frontier)
        newest = self.cutter.newest
        told = (
            view.frontier is None, self.plan, list(view.missing), self.sure == self.frontier,
            list(view.landed), sorted(self.ended),
        )  # fmt: skip
        some = any(table.num_rows for table in partials.values())
        message, stood = None, {"last": self.note.get("last", NOWHERE)}
        if some or told != self._told or self._edge_between(before, self.frontier):
            frontier = None if view.frontier is None else self.frontier
            head = Head(
                self.id, self.epoch, self.outbox.sent + 1, self.plan, frontier, self.sure,
                view.missing, newest, self.counts, view.landed, dict(self.ended),
            )  # fmt: skip
            message = encode(head, partials, self.charter)
            self.counts, self._told = {}, told
            stood = {
                "before": self.note.get("last", NOWHERE),
                "last": [frontier, self.sure, self.plan],
            }
        self.note = place | {
            "frontier": self.frontier, "sure": self.sure, "plan": self.plan, "newest": newest,
            "told": list(self._told), "counts": dict(self.counts), "ends": dict(self.ended),
            **stood,
        }  # fmt: skip
        self.outbox.append(self.note, message, pack_partials(self.cutter.held()))

    def _reach(self, view: View) -> None:
        """Moves the frontier on; only for a node that came from elsewhere does it go back."""
        back = EARLIEST if view.landed else self.frontier
        if view.frontier is not None:
            self.frontier = max(back, view.frontier)
        sure = min(view.sure, self.frontier)
        self.sure = sure if view.landed else max(self.sure, sure)

    def stood(self, seq: int) -> list[int | None]:
        """Frontier, what was sure of it, and plan, as of a message that the parent has."""
        following = self.outbox.note_of(seq + 1)
        if following is not None:
            return list(following["before"])
        return list(self.note.get("last", NOWHERE))

    def _edge_between(self, low: int, high: int) -> bool:
        """Whether a frontier that moved from one time to another can complete any window."""
        if low == high:
            return False
        if high >= LATEST or low <= EARLIEST:
            return True
        for group in self.charter.plans[self.plan].plan.groups:
            periodic = [w for w in group.windows if isinstance(w, Periodic)]
            if len(periodic) < len(group.windows):
                return True  # sessions, marks and counts end where the data says
            series = Series(periodic)
            if (series.ending_after(low) < series.ending_after(high)).any():
                return True
        return False

    def acknowledged(self, settled: int) -> None:
        """The parent has messages, and does not need them from here again."""
        self.outbox.settle(settled)
