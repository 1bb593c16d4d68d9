"""The inbox of a parent: what each child has sent, how far it was taken, and who is missing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from catchment.planner.edges import EARLIEST, LATEST
from catchment.tree.disk import Disk, Log
from catchment.tree.message import Head, head_of

_AT_ONCE = 256
"""Messages of a child that one step takes."""


@dataclass
class Child:
    """What is known of a child."""

    since: int = EARLIEST
    """The frontier when it joined: it is waited for from then on."""
    epoch: int = 0
    taken: int = 0
    """The last of its messages that was taken; those after it wait in the log."""
    plan: int = -1
    """The version of the plan of the last message taken."""
    frontier: int | None = EARLIEST
    sure: int = EARLIEST
    missing: tuple[str, ...] = ()
    loose: list[list[int]] = field(default_factory=list)
    """Messages taken whose slices are not all passed on: number, and the end of the last slice."""
    skip: list[int] | None = None
    """After a move: of messages up to a number, slices that end by a time came another way."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Child:
        return cls(**(data | {"missing": tuple(data["missing"])}))


@dataclass(frozen=True)
class View:
    """The frontier of a subtree: what is expected, what is sure, and who is the difference."""

    frontier: int | None
    sure: int
    missing: tuple[str, ...]


class Inbox:
    """The children of a node, and a log of messages for each."""

    def __init__(self, disk: Disk, children: dict[str, Child]) -> None:
        self.disk = disk
        self.children = children
        self._heads: dict[str, dict[int, Head]] = {}
        self._received: dict[str, int] = {}
        self.heard: dict[str, int] = {}
        """When each child was last heard of, by the wall clock."""
        for id in children:
            self._open(id)

    def _log(self, id: str) -> Log:
        return self.disk.log(f"inbox-{id}")

    def _open(self, id: str) -> None:
        log, child = self._log(id), self.children[id]
        self._received[id] = max(log.last or 0, child.taken)
        self._heads[id] = {n: head_of(body) for n, _, body in log.entries() if n > child.taken}

    def expect(self, ids: list[str], now: int, frontier: int) -> None:
        """Whose parent this node is now; a new child is waited for, from the frontier on."""
        self.join(ids, frontier)
        for id in ids:
            self.heard.setdefault(id, now)
        for id in set(self.children) - set(ids):
            del self.children[id], self._heads[id], self._received[id]
            self.heard.pop(id, None)
            self._log(id).clear()

    def join(self, ids: list[str], frontier: int = EARLIEST) -> None:
        """Knows these children, if it does not yet."""
        for id in set(ids) - set(self.children):
            self.children[id] = Child(frontier, frontier=frontier, sure=frontier)
            self._open(id)

    def received(self, id: str) -> int:
        """The last message of a child that is safely here."""
        return self._received[id]

    def epoch(self, id: str) -> int:
        """Which life of a child its messages here are from."""
        waiting = self._heads[id].values()
        return next((head.epoch for head in waiting), self.children[id].epoch)

    @property
    def nbytes(self) -> int:
        """What waits here takes up so much."""
        return sum(self._log(id).nbytes for id in self.children)

    def receive(self, head: Head, body: bytes, now: int) -> int:
        """Writes a message down, once; the number of the last one here."""
        self.heard[head.node] = now
        if head.seq == self._received[head.node] + 1:
            self._log(head.node).append(head.seq, {}, body)
            self._heads[head.node][head.seq] = head
            self._received[head.node] = head.seq
        return self._received[head.node]

    # -- what a step takes ------------------------------------------------------------------------

    def next(self, plan: int) -> list[tuple[str, int]]:
        """Messages to take now that are cut by this version of the plan, or an older one."""
        found: list[tuple[str, int]] = []
        for id, child in self.children.items():
            for seq in range(child.taken + 1, min(self._received[id], child.taken + _AT_ONCE) + 1):
                if self._heads[id][seq].plan > plan:
                    break
                found.append((id, seq))
        return found

    def behind(self, plan: int, now: int, timeout: int | None) -> list[str]:
        """Children that have not come to a version of the plan, and are worth waiting for."""
        return [
            id for id, child in self.children.items()
            if child.frontier != LATEST and not self._silent(id, now, timeout)
            and not self._reached(id, plan)
        ]  # fmt: skip

    def _reached(self, id: str, plan: int) -> bool:
        child = self.children[id]
        if child.plan >= plan:
            return True
        nearest = self._heads[id].get(child.taken + 1)
        return nearest is not None and nearest.plan >= plan

    def head(self, id: str, seq: int) -> Head:
        """The head of a message that was not taken yet."""
        return self._heads[id][seq]

    def body(self, id: str, seq: int) -> bytes:
        return self._log(id).read(seq)[1]

    def take(self, id: str, head: Head, last_end: int) -> None:
        """A message was taken in."""
        child = self.children[id]
        child.epoch, child.taken, child.plan = head.epoch, head.seq, head.plan
        child.frontier, child.sure, child.missing = head.frontier, head.sure, head.missing
        if last_end > EARLIEST:
            child.loose.append([head.seq, last_end])
        self._heads[id].pop(head.seq, None)

    def ahead(self, found: list[tuple[str, int]], children: dict[str, Child]) -> Inbox:
        """This inbox as it will be once messages are taken; `children` are copies to change."""
        for id, seq in found:
            head, child = self._heads[id][seq], children[id]
            child.taken, child.plan = seq, head.plan
            child.frontier, child.sure, child.missing = head.frontier, head.sure, head.missing
        after = Inbox.__new__(Inbox)
        after.children, after.heard, after._received = children, self.heard, self._received
        return after

    def view(self, now: int, timeout: int | None, frontier: int) -> View:
        """How far the children are together; `frontier` is how far they were."""
        waited, sure = [], []
        for id, child in self.children.items():
            if child.frontier is None:
                continue
            sure.append(child.sure)
            if not self._silent(id, now, timeout):
                waited.append(child.frontier)
        idle = bool(self.children) and all(c.frontier is None for c in self.children.values())
        at = max(frontier, min(waited)) if waited else frontier
        missing = {name for child in self.children.values() for name in child.missing}
        missing |= {
            id for id, c in self.children.items() if c.frontier is not None and c.frontier < at
        }
        return View(None if idle else at, min([at, *sure]), tuple(sorted(missing)))

    def _silent(self, id: str, now: int, timeout: int | None) -> bool:
        if timeout is None or self.children[id].frontier == LATEST:
            return False
        waiting = self._received[id] > self.children[id].taken
        return not waiting and now - self.heard.get(id, now) > timeout

    # -- letting go -------------------------------------------------------------------------------

    def passed(self, reach: dict[str, int], frontier: int) -> None:
        """Slices that end by the frontier, of messages up to `reach`, are safe further up."""
        for id, child in self.children.items():
            child.loose = [
                [seq, end] for seq, end in child.loose
                if seq > reach.get(id, 0) or end > frontier
            ]  # fmt: skip

    def settled(self, id: str) -> int:
        """The last message of a child that this node could lose without loss to anybody."""
        child = self.children[id]
        return child.loose[0][0] - 1 if child.loose else child.taken

    def trim(self, id: str, seq: int) -> None:
        self._log(id).trim(seq)
