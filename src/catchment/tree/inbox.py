"""The inbox of a parent: what each child has sent, how far it was taken, and who is missing.

A message is understood whole before it is written down. What cannot be read later, or cannot be
taken in, is set aside with the reason, and the rest goes on: results that may lack it say so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, takewhile

from msgspec.structs import replace

from catchment.durable import records
from catchment.durable.disk import Disk
from catchment.durable.records import RecordLog
from catchment.errors import DataError, RefusedError, StateError
from catchment.model.node_id import node_id
from catchment.planner.edges import EARLIEST, LATEST
from catchment.tree.charter import Charter
from catchment.tree.decode import last_end
from catchment.tree.hearsay import credible
from catchment.tree.message import Head, checked, head_of
from catchment.tree.records import (
    Behind,
    Child,
    InboxEntry,
    Lag,
    Lost,
    MovedHere,
    Received,
    RefusedMessage,
    View,
)
from catchment.tree.stale_plan import joined
from catchment.tree.take_over import NOTE
from catchment.tree.words import Moved, NodeProgress, TakeOver

_AT_ONCE = 256
"""Messages of a child that one step takes."""
_ASIDE = 1000
"""Messages that are kept aside; the oldest go first."""
AHEAD_BYTES = 8 << 20
"""Bytes of messages of one child that are kept because some of their slices have not ended."""


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
    """Turns an error while a message is taken in into an `UntakenError` that names the message."""
    try:
        yield
    except (StateError, MemoryError):
        raise  # it is the disk or the machine, not the message
    except Exception as error:
        raise UntakenError(id, seq, error) from error


def log_of(disk: Disk, id: str) -> RecordLog[InboxEntry]:
    """The log of what a child sends."""
    return RecordLog(disk, f"inbox-{node_id(id)}", InboxEntry)


def aside_log(disk: Disk) -> RecordLog[RefusedMessage]:
    """The log of messages that could not be taken."""
    return RecordLog(disk, "aside", RefusedMessage)


def set_aside(disk: Disk, charter: Charter, id: str, seq: int, why: str) -> None:
    """Puts a message that cannot be taken where nobody takes it; it stays on disk."""
    log, place, entry = aside_log(disk), charter.places.get(id), log_of(disk, id).read(seq)
    added = 0 if place is None else place.added
    assert isinstance(entry, Received)
    log.append(log.last + 1, RefusedMessage(id, seq, why[:1000], added, entry.body))
    log.trim(log.last - _ASIDE)


class Inbox:
    """The children of a node, and a log of messages for each."""

    def __init__(self, disk: Disk, children: dict[str, Child], charter: Charter) -> None:
        self.disk = disk
        self.children = children
        self._charter = charter
        self.aside: dict[str, dict[int, str]] = {}
        """Messages that were set aside, by child and number, and why."""
        for _, entry in aside_log(disk).entries():
            place = charter.places.get(entry.node)
            if place is not None and place.added == entry.added:
                self.aside.setdefault(entry.node, {})[entry.seq] = entry.why
        self._holes: dict[str, list[int]] = {}
        """Numbers of messages that should be here and cannot be taken, in order."""
        self._lost: Behind = {}
        self._heads: dict[str, dict[int, Head]] = {}
        self._received: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._dips: dict[str, list[int]] = {}
        """The numbers of messages whose frontier is before that of the previous message of the
        child."""
        self._moves: dict[int, str] = {}
        self._replaced: dict[str, str] = {}
        """Children that are gone for good and of which messages are not taken yet: who follows."""
        self._begun: dict[str, int] = {}
        """Children that came by a move and are here: which move."""
        self.heard: dict[str, int] = {}
        """When each child was last heard of, by the wall clock."""
        for id in children:
            self._open(id)

    def _log(self, id: str) -> RecordLog[InboxEntry]:
        return log_of(self.disk, id)

    def _open(self, id: str) -> None:
        log = self._log(id)
        self._heads[id], self._dips[id], self._sizes[id] = {}, [], log.nbytes
        for seq, entry in log.entries():
            if seq <= self.children[id].taken:
                continue
            match entry:
                case MovedHere():
                    self._took_up(id, seq, entry.at)
                case Received() if seq not in self.aside.get(id, ()):
                    self._reopen(id, seq, entry.body)
        taken = self.children[id].taken
        self._received[id] = max(log.last, taken)
        there = range(taken + 1, self._received[id] + 1)
        self._holes[id] = [seq for seq in there if seq not in self._heads[id]]
        for seq in self._holes[id]:
            self.aside.setdefault(id, {}).setdefault(seq, "it is not on the disk any more")

    def _took_up(self, id: str, seq: int, at: NodeProgress) -> None:
        """A child begins here after a message that its former parent has."""
        self.children[id] = replace(
            self.children[id],
            taken=seq,
            plan=at.plan,
            frontier=at.frontier,
            complete_until=at.complete_until,
        )

    def _reopen(self, id: str, seq: int, body: bytes) -> None:
        try:
            head = checked(body, self._charter).head
            if head.node != id or head.seq != seq:
                raise DataError("a message is not in its place", given=f"{head.node} {head.seq}")
        except DataError as error:
            self.aside.setdefault(id, {})[seq] = str(error)
            set_aside(self.disk, self._charter, id, seq, str(error))
        else:
            self._note(id, seq, head)

    def lacks(self, id: str, seq: int) -> Behind:
        """What results lack once this message is taken: messages before it that could not be read.

        Their events are no newer than the newest event that this message knows of.
        """
        if not any(hole < seq for hole in self._holes[id]):
            return {}
        return {id: Lag(lost=self._heads[id][seq].newest)}

    def take_lost(self) -> Behind:
        """What results lack of messages that could not be taken, since the last call."""
        lost, self._lost = self._lost, {}
        return lost

    def gone_in(self, upto: Mapping[str, int], newest: int) -> Behind:
        """What results lack when a step is carried out again and messages that it took are gone.

        `lacks` needs a later message of the child, and there may be none. So the newest event that
        the step knew of stands for the newest event of the lost messages.
        """
        return {
            id: Lag(lost=newest)
            for id, last in upto.items()
            if any(hole <= last for hole in self._holes.get(id, ()))
        }

    def skip(self, id: str, last: int) -> None:
        """Gives up waiting for the messages up to `last`: they will never come."""
        if last > self._received[id]:
            log = self._log(id)
            log.append(last, Lost())
            self._holes[id] += range(self._received[id] + 1, last + 1)
            self._received[id], self._sizes[id] = last, log.nbytes

    def _note(self, id: str, seq: int, head: Head) -> None:
        head = credible(head, self._charter)
        before = next(reversed(self._heads[id].values()), self.children[id]).frontier
        if head.frontier is not None and (before is None or head.frontier < before):
            self._dips[id].append(seq)
        self._heads[id][seq] = head

    def expect(self, charter: Charter, id: str, now: int, frontier: int) -> None:
        """Takes from a new charter who the children of this node are. New ones are waited for from
        the frontier on."""
        self._charter, self._moves = charter, charter.moves
        self._here = [*charter.children(id), *charter.leaving(id)]
        self._known = charter.places.keys()
        self._replaced = {
            old: child
            for child in charter.children(id)
            for old in charter.places[child].replaces
            if old in self.children and child not in self.children
        }
        self.succeed(now)
        self._here = [child for child in self._here if child not in self._replaced.values()]
        for child, held in [*self.children.items()]:
            # Removed and added again: it begins anew.
            if child in self._here and held.added != charter.places[child].added:
                self._here.remove(child)
        coming = [mover for mover in self._moves.values() if charter.places[mover].parent == id]
        self.join(coming, None)  # its former parent waits for it until it is here
        self.join(self._here, frontier)
        for child in self._here:
            self.heard.setdefault(child, now)

    def succeed(self, now: int) -> None:
        """Puts nodes in the place of children that are gone for good, once everything is taken that
        those have sent."""
        for old, new in [*self._replaced.items()]:
            if self._heads[old]:
                continue
            held, added = self.children[old], self._charter.places[new].added
            name = f"{NOTE}-{new}"
            # One that has sent nothing may have been about to take over itself.
            told = self._handed_over(old, held) if held.taken else self.take_over(old)
            if told is not None and self.disk.get(name) is None:
                records.put(self.disk, name, told)
            since = held.complete_until
            self.children[new] = Child(since, 0, held.plan, since, since, added=added)
            self._open(new)
            self._here.append(new)
            self.heard[new] = now
            del self._replaced[old]

    def _handed_over(self, old: str, held: Child) -> TakeOver:
        """What a node that takes over from a child must know: how far its messages here go."""
        at = NodeProgress(held.complete_until, held.complete_until, held.plan)
        log, unsure = self._log(old), held.unsure
        kept: list[bytes] = []
        # It may have taken over itself: what the one before it had sent ahead is here too.
        before = self.take_over(old)
        if before is not None:
            unsure = max(unsure, before.unsure)
            for body in before.messages:
                end = last_end(body, self._charter)
                if end > held.complete_until and head_of(body).plan == held.plan:
                    kept.append(body)
                elif end > held.complete_until:
                    unsure = max(unsure, end)
        there = {seq: entry for seq, entry in log.entries() if seq <= held.taken}
        for seq, end in held.ahead:
            entry = there.get(seq)
            # Slices by an older plan may have other bounds; what is damaged says nothing.
            if isinstance(entry, Received) and head_of(entry.body).plan == held.plan:
                kept.append(entry.body)
            else:
                unsure = max(unsure, end)
        return TakeOver(old, at, held.newest, held.read, tuple(kept), unsure)

    def take_over(self, id: str) -> TakeOver | None:
        """What is told to a child that takes over from another; None: it takes over nothing."""
        return records.get(self.disk, f"{NOTE}-{id}", TakeOver)

    def gone(self) -> list[str]:
        """Former children that nothing is expected of any more: they were removed, or have landed
        under another parent and everything they sent here is taken."""
        return [
            id
            for id, child in self.children.items()
            if id not in self._here
            and id not in self._replaced
            and (
                id not in self._known
                or child.added != self._charter.places[id].added
                or not self._heads[id]
            )
        ]

    def forget(self, ids: list[str]) -> None:
        """Forgets former children, and deletes their logs."""
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
        """Whether a child that came by a move is new here, so that its numbering starts with what
        its former parent has."""
        return moved.last >= self._received[id] and moved.move != self._begun.get(id)

    def begin(self, id: str, moved: Moved) -> None:
        """A child came by a move; its messages up to one are with the parent it had before.

        It may have been here earlier: what it sent then must be taken before it goes on.
        """
        seq = moved.last
        if self.begins(id, moved):
            if self._heads[id]:
                raise RefusedError(
                    "this node was here before",
                    given=id,
                    hint="it may go on as soon as what it sent then has been passed on",
                )
            if seq > self._received[id]:
                self._log(id).append(seq, MovedHere(moved.at))
            self._took_up(id, seq, moved.at)
            self._received[id], self._holes[id] = seq, []
        self._begun[id] = moved.move

    def join(self, ids: list[str], frontier: int | None) -> None:
        """Opens the logs of children that are not known here yet."""
        for id in set(ids) - set(self.children):
            since = EARLIEST if frontier is None else frontier
            added = self._charter.places[id].added if id in self._charter.places else 0
            self.children[id] = Child(since, frontier=frontier, complete_until=since, added=added)
            self._open(id)

    def received(self, id: str) -> int:
        """The last message of a child that is safely here."""
        return self._received[id]

    def unfinished(self) -> list[str]:
        """Children that have not ended, as far as the steps know that have been carried out.

        Messages that wait in the log do not count, because they are there too if steps were lost.
        """
        return [id for id, child in self.children.items() if child.frontier != LATEST]

    def over(self, id: str) -> bool:
        """Whether the last message of a child says that it has ended and nothing is missing: its
        process may then end once the message is acknowledged."""
        last: Child | Head = next(reversed(self._heads[id].values()), self.children[id])
        return last.frontier == LATEST and last.complete_until >= LATEST

    @property
    def nbytes(self) -> int:
        """Bytes of all logs of the inbox."""
        return sum(self._sizes.values())

    def receive(self, head: Head, body: bytes, now: int) -> int:
        """Writes a message to the log if it is the next of its child; gives the number of the last
        message here."""
        self.heard[head.node] = now
        if head.seq == self._received[head.node] + 1:
            log = self._log(head.node)
            log.append(head.seq, Received(body))
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

    def newest_before(self, plan: int) -> int:
        """The newest event that children may have read by plans older than one to which they have
        all gone over: their first messages after that know of it. A child that went over to several
        versions at once sends none by those in between."""
        nearest = (next(iter(heads.values()), None) for heads in self._heads.values())
        found = (head.newest for head in nearest if head is not None and head.plan >= plan)
        return max(found, default=EARLIEST)

    def chosen(self, upto: Mapping[str, int]) -> list[tuple[str, int]]:
        """The messages that a step takes: of each child in `upto`, those not taken yet up to that
        number."""
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
        """Children that have not gone over to a version of the plan, that have not ended, and that
        are not silent."""
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
        entry = self._log(id).read(seq)
        assert isinstance(entry, Received)
        return entry.body

    def take(self, id: str, head: Head, last_end: int, passes_on: bool = True) -> None:
        """Notes that a message was taken in, and what it says of its child; `last_end` is the end
        of its last slice, which is yet to be passed on, unless this is the root."""
        child = self.children[id]
        loose = ((head.seq, last_end),) if passes_on and last_end > EARLIEST else ()
        ahead = [(n, end) for n, end in child.ahead if end > head.complete_until]
        if head.read is not None and last_end > head.complete_until:
            ahead.append((head.seq, last_end))
        self.children[id] = replace(
            child,
            taken=head.seq,
            plan=head.plan,
            frontier=head.frontier,
            complete_until=head.complete_until,
            missing=head.missing,
            loose=child.loose + loose,
            landed=head.landed,
            newest=head.newest,
            read=head.read,
            ahead=tuple(ahead),
        )
        self._lost = joined([self._lost, self.lacks(id, head.seq)])
        del self._heads[id][head.seq]
        self._holes[id] = [seq for seq in self._holes[id] if seq > head.seq]
        self._dips[id] = [seq for seq in self._dips[id] if seq > head.seq]

    def _view(self, upto: Mapping[str, int], now: int, timeout: int | None, frontier: int) -> View:
        """How far the children are together once messages are taken, and who is missing."""
        waited, complete, back = [], [], []
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
            complete.append(min(s.complete_until for s in states if s.frontier is not None))
            if not self._silent(id, now, timeout, upto):
                waited.append(lows[id])
            back += [lows[id]] if came else []
        idle = not lows  # and so is who has no children left
        at = min([max([frontier, min(waited)]) if waited else frontier, *back])
        missing |= {id for id, low in lows.items() if low < at}
        return View(
            None if idle else at,
            min([at, *complete]),
            tuple(sorted(missing)),
            tuple(sorted(landed)),
        )

    def _states(self, id: str, last: int | None) -> Iterator[Child | Head]:
        """The records that say how far a child is: the last message that is taken, and later
        messages whose frontier goes back."""
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
        """The record that says how far a child is: the last message that is taken, or what is kept
        of it."""
        return self.children[id] if last is None else self._heads[id][last]

    def silent(self, id: str, now: int) -> bool:
        """Whether a child has not been heard of for too long, and has not ended."""
        timeout = self._charter.settings.timeout
        return id in self.children and self._silent(id, now, timeout)

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
        """Notes that the slices that end by the frontier, of messages up to `reach`, are safe with
        this node's parent."""
        for id, child in self.children.items():
            loose = [(n, end) for n, end in child.loose if n > reach.get(id, 0) or end > frontier]
            self.children[id] = replace(child, loose=tuple(loose))

    def settled(self, id: str) -> int:
        """The last message of a child, such that its slices and those of all before it are safe
        further up: the child may delete these."""
        child = self.children[id]
        return child.loose[0][0] - 1 if child.loose else child.taken

    def trim(self, id: str, seq: int) -> None:
        """Deletes messages up to one that were taken, but for those that a node which takes over
        would have to know."""
        log, child = self._log(id), self.children[id]
        if child.ahead:
            log.trim(min(seq, child.ahead[0][0] - 1))
        if child.ahead and log.nbytes > AHEAD_BYTES:
            unsure = max(child.unsure, *(end for _, end in child.ahead))
            self.children[id] = child = replace(child, ahead=(), unsure=unsure)
        if not child.ahead:
            log.trim(seq)
        self._sizes[id] = log.nbytes
