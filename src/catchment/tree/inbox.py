"""The inbox of a parent: what each child has sent, how far it was taken, and who is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice, takewhile
from typing import Any

from catchment.durable.log import Gap
from catchment.errors import RefusedError
from catchment.model.names import file_name
from catchment.planner.edges import EARLIEST, LATEST
from catchment.tree.charter import Charter
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
    landed: tuple[int, ...] = ()
    """Moves that end below it, as of the last message taken."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Child:
        lists = {name: tuple(data[name]) for name in ("missing", "landed")}
        return cls(**(data | lists))


@dataclass(frozen=True)
class View:
    """The frontier of a subtree: what is expected, what is sure, and who is the difference."""

    frontier: int | None
    sure: int
    missing: tuple[str, ...]
    landed: tuple[int, ...] = ()
    """Moves that end in it: it waits for the nodes that came, and may go back for them."""


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
        self._sizes: dict[str, int] = {}
        self._dips: dict[str, list[int]] = {}
        """Messages of a child whose frontier is before that of the message before."""
        self._moves: dict[int, str] = {}
        self._begun: dict[str, int] = {}
        """Children that came by a move and are here: which move."""
        self.heard: dict[str, int] = {}
        """When each child was last heard of, by the wall clock."""
        for id in children:
            self._open(id)

    def _log(self, id: str) -> Log:
        return self.disk.log(f"inbox-{file_name(id)}")

    def _open(self, id: str) -> None:
        log, child = self._log(id), self.children[id]
        lost = log.gap(child.taken)
        if lost is not None:
            log.rewind(lost.after)  # the child is asked again from there on
        self._received[id], self._sizes[id] = max(log.last or 0, child.taken), log.nbytes
        self._heads[id], self._dips[id] = {}, []
        for seq, _, body in log.entries():
            if seq > child.taken:
                self._note(id, seq, head_of(body))

    def _note(self, id: str, seq: int, head: Head) -> None:
        before = next(reversed(self._heads[id].values()), self.children[id]).frontier
        if head.frontier is not None and (before is None or head.frontier < before):
            self._dips[id].append(seq)
        self._heads[id][seq] = head

    def expect(self, charter: Charter, id: str, now: int, frontier: int) -> None:
        """Whose parent this node is now; a new child is waited for, from the frontier on."""
        self._moves = charter.moves
        self._here = [*charter.children(id), *charter.leaving(id)]
        self._known = charter.places.keys()
        coming = [mover for mover in self._moves.values() if charter.places[mover].parent == id]
        self.join(coming, None)  # its former parent waits for it until it is here
        self.join(self._here, frontier)
        for child in self._here:
            self.heard.setdefault(child, now)

    def gone(self) -> list[str]:
        """Children of old: removed, or landed elsewhere and all they sent here is taken."""
        return [
            id for id, child in self.children.items()
            if id not in self._here
            and (id not in self._known or child.taken == self._received[id])
        ]  # fmt: skip

    def forget(self, ids: list[str]) -> None:
        """Lets go of children of old."""
        for id in ids:
            for held in (self.children, self._heads, self._received, self._dips, self._sizes):
                del held[id]
            self.heard.pop(id, None)
            self._begun.pop(id, None)
            self._log(id).clear()

    def begin(self, id: str, came: Mapping[str, Any]) -> None:
        """A child came by a move; its messages up to one are with the parent it had before.

        It may have been here earlier: what it sent then must be taken before it goes on.
        """
        child, seq = self.children[id], came["from"]
        if seq >= self._received[id] and came["move"] != self._begun.get(id):
            if child.taken < self._received[id]:
                raise RefusedError(
                    "this node was here before", given=id,
                    hint="it may go on as soon as what it sent then has been passed on",
                )  # fmt: skip
            child.taken, child.epoch, self._received[id] = seq, came["epoch"], seq
            child.frontier, child.sure, child.plan = came["at"]
        self._begun[id] = came["move"]

    def join(self, ids: list[str], frontier: int | None) -> None:
        """Knows these children, if it does not yet."""
        for id in set(ids) - set(self.children):
            since = EARLIEST if frontier is None else frontier
            self.children[id] = Child(since, frontier=frontier, sure=since)
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
        return sum(self._sizes.values())

    def receive(self, head: Head, body: bytes, now: int) -> int:
        """Writes a message down, once; the number of the last one here."""
        self.heard[head.node] = now
        if head.seq == self._received[head.node] + 1:
            log = self._log(head.node)
            log.append(head.seq, {}, body)
            self._sizes[head.node] = log.nbytes
            self._note(head.node, head.seq, head)
            self._received[head.node] = head.seq
        return self._received[head.node]

    # -- what a step takes ------------------------------------------------------------------------

    def choose(
        self, plan: int, newest: int, now: int, timeout: int | None, at: int,
        told: Collection[int] | None = None,
    ) -> Choice:  # fmt: skip
        """What the next step takes; `at` is how far the children were, `newest` the newest plan.

        A new version of the plan begins once all that is cut by the old one has been taken, of
        everyone worth waiting for. That a move ends here is told above before anything that it
        brings: `told` are the moves of which that was said.
        """
        if told is not None and self.landed() - set(told):
            return Choice(plan, {}, self._view({}, now, timeout, at))
        found = self._next(plan)
        if not found and plan < newest and not self._behind(plan + 1, now, timeout):
            plan += 1
            found = self._next(plan)
        upto = dict(found)
        return Choice(plan, upto, self._view(upto, now, timeout, at))

    def chosen(self, upto: Mapping[str, int]) -> list[tuple[str, int]]:
        """The messages up to these, which were not taken yet."""
        for id, last in upto.items():
            if last > self.children[id].taken and last not in self._heads[id]:
                # A step that was decided before took it, and it must come out the same again.
                raise Gap(self._received[id], last, f"the messages of {id}").error()
        return [
            (id, seq) for id, last in upto.items()
            for seq in takewhile(last.__ge__, self._heads[id])
        ]  # fmt: skip

    def _next(self, plan: int) -> list[tuple[str, int]]:
        """Messages to take now that are cut by this version of the plan, or an older one."""
        found: list[tuple[str, int]] = []
        for id in self.children:
            soon = takewhile(lambda head: head.plan <= plan, self._heads[id].values())
            found += [(id, head.seq) for head in islice(soon, _AT_ONCE)]
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
        nearest = next(iter(self._heads[id].values()), None)
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
        child.landed = head.landed
        if last_end > EARLIEST:
            child.loose.append([head.seq, last_end])
        self._heads[id].pop(head.seq, None)
        self._dips[id] = [seq for seq in self._dips[id] if seq > head.seq]

    def _view(self, upto: Mapping[str, int], now: int, timeout: int | None, frontier: int) -> View:
        """How far the children are together once messages are taken, and who is missing."""
        waited, sure, back = [], [], []
        missing: set[str] = set()
        landed: set[int] = set()
        lows: dict[str, int] = {}
        for id in self.children:
            states = list(self._states(id, upto.get(id)))
            missing |= set(states[0].missing)
            came = self._landed(id)
            landed |= came
            known = [state.frontier for state in states if state.frontier is not None]
            if not known:
                continue
            lows[id] = min(known)
            sure.append(min(state.sure for state in states if state.frontier is not None))
            if not self._silent(id, now, timeout, upto):
                waited.append(lows[id])
            back += [lows[id]] if came else []
        idle = not lows  # and so is who has no children left
        at = min([max([frontier, min(waited)]) if waited else frontier, *back])
        missing |= {id for id, low in lows.items() if low < at}
        return View(
            None if idle else at, min([at, *sure]), tuple(sorted(missing)), tuple(sorted(landed))
        )

    def _states(self, id: str, last: int | None) -> Iterator[Child | Head]:
        """What says how far a child is: the last message taken, and later ones that go back."""
        yield self._state(id, last)
        for seq in self._dips[id]:
            if last is None or seq > last:
                yield self._heads[id][seq]

    def _landed(self, id: str) -> set[int]:
        """Moves that end with a child or below it, by all it sent, and are not over yet."""
        if not self._moves:
            return set()
        found = set(self.children[id].landed)
        found.update(*(head.landed for head in self._heads[id].values()))
        found.add(self._begun.get(id, 0))
        return found & self._moves.keys()

    def landed(self) -> set[int]:
        """Moves that end in this subtree, and are not over yet."""
        return set().union(*(self._landed(id) for id in self.children))

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
        log = self._log(id)
        log.trim(seq)
        self._sizes[id] = log.nbytes
