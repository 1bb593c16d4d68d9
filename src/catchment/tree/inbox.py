"""The inbox of a parent: what each child has sent, how far it was taken, and who is missing."""

from __future__ import annotations

from collections.abc import Mapping
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


@dataclass(frozen=True)
class Choice:
    """What a step takes, by which version of the plan, and how far it comes."""

    plan: int
    upto: dict[str, int]
    """The last message that is taken of each child that sent some."""
    view: View


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

    def choose(self, plan: int, newest: int, now: int, timeout: int | None, at: int) -> Choice:
        """What the next step takes; `at` is how far the children were, `newest` the newest plan.

        A new version of the plan begins once all that is cut by the old one has been taken, of
        everyone worth waiting for.
        """
        found = self._next(plan)
        if not found and plan < newest and not self._behind(plan + 1, now, timeout):
            plan += 1
            found = self._next(plan)
        upto = dict(found)
        return Choice(plan, upto, self._view(upto, now, timeout, at))

    def chosen(self, upto: Mapping[str, int]) -> list[tuple[str, int]]:
        """The messages up to these, which were not taken yet."""
        return [
            (id, seq) for id, last in upto.items()
            for seq in range(self.children[id].taken + 1, last + 1)
        ]  # fmt: skip

    def _next(self, plan: int) -> list[tuple[str, int]]:
        """Messages to take now that are cut by this version of the plan, or an older one."""
        found: list[tuple[str, int]] = []
        for id, child in self.children.items():
            for seq in range(child.taken + 1, min(self._received[id], child.taken + _AT_ONCE) + 1):
                if self._heads[id][seq].plan > plan:
                    break
                found.append((id, seq))
        return found

    def _behind(self, plan: int, now: int, timeout: int | None) -> list[str]:
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

    def _view(self, upto: Mapping[str, int], now: int, timeout: int | None, frontier: int) -> View:
        """How far the children are together once messages are taken, and who is missing."""
        waited, sure = [], []
        missing: set[str] = set()
        states = {id: self._state(id, upto.get(id)) for id in self.children}
        for id, state in states.items():
            missing |= set(state.missing)
            if state.frontier is None:
                continue
            sure.append(state.sure)
            if not self._silent(id, now, timeout, upto):
                waited.append(state.frontier)
        idle = bool(states) and all(state.frontier is None for state in states.values())
        at = max(frontier, min(waited)) if waited else frontier
        missing |= {id for id, s in states.items() if s.frontier is not None and s.frontier < at}
        return View(None if idle else at, min([at, *sure]), tuple(sorted(missing)))

    def _state(self, id: str, last: int | None) -> Child | Head:
        """What says how far a child is: the last message that is taken."""
        return self.children[id] if last is None else self._heads[id][last]

    def _silent(
        self, id: str, now: int, timeout: int | None, upto: Mapping[str, int] | None = None
    ) -> bool:
        last = (upto or {}).get(id)
        if timeout is None or self._state(id, last).frontier == LATEST:
            return False
        taken = self.children[id].taken if last is None else last
        waiting = self._received[id] > taken
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
