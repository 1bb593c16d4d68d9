"""The inbox of a parent: what each child has sent, how far it was taken, and who is missing.

A message is understood whole before it is written down. What cannot be read later, or cannot be
taken in, is set aside with the reason, and the rest goes on: results that may lack it say so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice, takewhile
from typing import Any

from catchment.durable.disk import Disk, Log
from catchment.errors import DataError, RefusedError, StateError
from catchment.model.node_id import node_id
from catchment.planner.edges import EARLIEST, LATEST
from catchment.tree.charter import Charter
from catchment.tree.message import Head, checked
from catchment.tree.stale_plan import LOST, Behind, joined
from catchment.tree.words import Moved

_AT_ONCE = 256
"""Messages of a child that one step takes."""
_ASIDE = 1000
"""Messages that are kept aside; the oldest go first."""


@dataclass
class Child:
    """What is known of a child."""

    since: int = EARLIEST
    """The frontier when it joined: it is waited for from then on."""
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
    added: int = 0
    """The version of the charter that brought it."""

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


class UntakenError(StateError):
    """A message in the inbox that cannot be taken in."""

    def __init__(self, id: str, seq: int, why: Exception) -> None:
        text = f"{type(why).__name__}: {why}"[:300]
        super().__init__("a message cannot be taken in", given=f"{id}, message {seq}: {text}")
        self.id, self.seq = id, seq


@contextmanager
def taking(id: str, seq: int) -> Iterator[None]:
    """Says which message it was, if taking it in fails."""
    try:
        yield
    except (StateError, MemoryError):
        raise  # it is the disk or the machine, not the message
    except Exception as error:
        raise UntakenError(id, seq, error) from error


def set_aside(disk: Disk, charter: Charter, id: str, seq: int, why: str) -> None:
    """Puts a message that cannot be taken where nobody takes it; it stays on disk."""
    log, place = disk.log("aside"), charter.places.get(id)
    added = 0 if place is None else place.added
    _, body = disk.log(f"inbox-{node_id(id)}").read(seq)
    note = {"node": id, "seq": seq, "why": why[:1000], "added": added}
    log.append(1 + (log.last or 0), note, body)
    log.trim((log.last or 0) - _ASIDE)


class Inbox:
    """The children of a node, and a log of messages for each."""

    def __init__(self, disk: Disk, children: dict[str, Child], charter: Charter) -> None:
        self.disk = disk
        self.children = children
        self._charter = charter
        self.aside: dict[str, dict[int, str]] = {}
        """Messages that were set aside, by child and number, and why."""
        for _, note, _ in disk.log("aside").entries():
            place = charter.places.get(note["node"])
            if place is not None and place.added == note["added"]:
                self.aside.setdefault(note["node"], {})[note["seq"]] = note["why"]
        self._holes: dict[str, list[int]] = {}
        """Numbers of messages that should be here and cannot be taken, in order."""
        self._lost: Behind = {}
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
        return self.disk.log(f"inbox-{node_id(id)}")

    def _open(self, id: str) -> None:
        log, child = self._log(id), self.children[id]
        self._heads[id], self._dips[id], self._sizes[id] = {}, [], log.nbytes
        for seq, note, body in log.entries():
            if seq <= child.taken:
                continue
            if "began" in note:
                child.taken = seq
                child.frontier, child.sure, child.plan = note["began"]
            elif seq not in self.aside.get(id, ()) and "lost" not in note:
                self._reopen(id, seq, body)
        self._received[id] = max(log.last or 0, child.taken)
        there = range(child.taken + 1, self._received[id] + 1)
        self._holes[id] = [seq for seq in there if seq not in self._heads[id]]
        for seq in self._holes[id]:
            self.aside.setdefault(id, {}).setdefault(seq, "it is not on the disk any more")

    def _reopen(self, id: str, seq: int, body: bytes) -> None:
        try:
            head = checked(body, self._charter)
            if head.node != id or head.seq != seq:
                raise DataError("a message is not in its place", given=f"{head.node} {head.seq}")
        except DataError as error:
            self.aside.setdefault(id, {})[seq] = str(error)
            set_aside(self.disk, self._charter, id, seq, str(error))
        else:
            self._note(id, seq, head)

    def lacks(self, id: str, seq: int) -> Behind:
        """What results lack, once a message is taken: those before it that could not be taken.

        As with plans: a version before the first, and how far events in them may reach.
        """
        if not any(hole < seq for hole in self._holes[id]):
            return {}
        return {id: {LOST: self._heads[id][seq].newest}}

    def take_lost(self) -> Behind:
        """What results lack of messages that could not be taken, since the last call."""
        lost, self._lost = self._lost, {}
        return lost

    def skip(self, id: str, last: int) -> None:
        """Gives messages up to one up for lost: they will never come."""
        if last > self._received[id]:
            log = self._log(id)
            log.append(last, {"lost": True}, b"")
            self._holes[id] += range(self._received[id] + 1, last + 1)
            self._received[id], self._sizes[id] = last, log.nbytes

    def _note(self, id: str, seq: int, head: Head) -> None:
        before = next(reversed(self._heads[id].values()), self.children[id]).frontier
        if head.frontier is not None and (before is None or head.frontier < before):
            self._dips[id].append(seq)
        self._heads[id][seq] = head

    def expect(self, charter: Charter, id: str, now: int, frontier: int) -> None:
        """Whose parent this node is now; a new child is waited for, from the frontier on."""
        self._charter, self._moves = charter, charter.moves
        self._here = [*charter.children(id), *charter.leaving(id)]
        self._known = charter.places.keys()
        for child, held in [*self.children.items()]:
            # Removed and added again: it begins anew.
            if child in self._here and held.added != charter.places[child].added:
                self._here.remove(child)
        coming = [mover for mover in self._moves.values() if charter.places[mover].parent == id]
        self.join(coming, None)  # its former parent waits for it until it is here
        self.join(self._here, frontier)
        for child in self._here:
            self.heard.setdefault(child, now)

    def gone(self) -> list[str]:
        """Children of old: removed, or landed elsewhere and all they sent here is taken."""
        return [
            id
            for id, child in self.children.items()
            if id not in self._here
            and (
                id not in self._known
                or child.added != self._charter.places[id].added
                or not self._heads[id]
            )
        ]

    def forget(self, ids: list[str]) -> None:
        """Lets go of children of old."""
        for id in ids:
            for held in (
                self.children,
                self._heads,
                self._received,
                self._dips,
                self._sizes,
                self._holes,
            ):
                del held[id]
            self.heard.pop(id, None)
            self._begun.pop(id, None)
            self.aside.pop(id, None)
            self._log(id).clear()

    def begins(self, id: str, moved: Moved) -> bool:
        """Whether a child that says to have come by a move begins here with that."""
        return moved.last >= self._received[id] and moved.move != self._begun.get(id)

    def begin(self, id: str, moved: Moved) -> None:
        """A child came by a move; its messages up to one are with the parent it had before.

        It may have been here earlier: what it sent then must be taken before it goes on.
        """
        child, seq = self.children[id], moved.last
        if self.begins(id, moved):
            if self._heads[id]:
                raise RefusedError(
                    "this node was here before",
                    given=id,
                    hint="it may go on as soon as what it sent then has been passed on",
                )
            if seq > self._received[id]:
                self._log(id).append(seq, {"began": list(moved.at)}, b"")
            child.taken = self._received[id] = seq
            child.frontier, child.sure, child.plan = moved.at
            self._holes[id] = []
        self._begun[id] = moved.move

    def join(self, ids: list[str], frontier: int | None) -> None:
        """Knows these children, if it does not yet."""
        for id in set(ids) - set(self.children):
            since = EARLIEST if frontier is None else frontier
            added = self._charter.places[id].added if id in self._charter.places else 0
            self.children[id] = Child(since, frontier=frontier, sure=since, added=added)
            self._open(id)

    def received(self, id: str) -> int:
        """The last message of a child that is safely here."""
        return self._received[id]

    def unfinished(self) -> list[str]:
        """Children of which a step has not taken all that they will ever send.

        What waits in the log is of no account: it is there too if the steps were lost.
        """
        return [id for id, child in self.children.items() if child.frontier != LATEST]

    def over(self, id: str) -> bool:
        """Whether a child is done for certain: its process may end once it hears that this came."""
        last: Child | Head = next(reversed(self._heads[id].values()), self.children[id])
        return last.frontier == LATEST and last.sure >= LATEST

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
        self,
        plan: int,
        newest: int,
        now: int,
        timeout: int | None,
        at: int,
        told: Collection[int] | None = None,
    ) -> Choice:
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
        return [
            (id, seq)
            for id, last in upto.items()
            for seq in takewhile(last.__ge__, self._heads[id])
        ]

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
            id
            for id, child in self.children.items()
            if child.frontier != LATEST
            and not self._silent(id, now, timeout)
            and not self._reached(id, plan)
        ]

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
        child.taken, child.plan = head.seq, head.plan
        child.frontier, child.sure, child.missing = head.frontier, head.sure, head.missing
        child.landed = head.landed
        if last_end > EARLIEST:
            child.loose.append([head.seq, last_end])
        self._heads[id].setdefault(head.seq, head)
        self._lost = joined([self._lost, self.lacks(id, head.seq)])
        del self._heads[id][head.seq]
        self._holes[id] = [seq for seq in self._holes[id] if seq > head.seq]
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
        waiting = next(reversed(self._heads[id]), 0) > taken
        return not waiting and now - self.heard.get(id, now) > timeout

    # -- letting go -------------------------------------------------------------------------------

    def passed(self, reach: dict[str, int], frontier: int) -> None:
        """Slices that end by the frontier, of messages up to `reach`, are safe further up."""
        for id, child in self.children.items():
            child.loose = [
                [seq, end] for seq, end in child.loose if seq > reach.get(id, 0) or end > frontier
            ]

    def settled(self, id: str) -> int:
        """The last message of a child that this node could lose without loss to anybody."""
        child = self.children[id]
        return child.loose[0][0] - 1 if child.loose else child.taken

    def trim(self, id: str, seq: int) -> None:
        log = self._log(id)
        log.trim(seq)
        self._sizes[id] = log.nbytes
