"""What a node below the root does with partials: hold them until slices are whole, pass them up."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from catchment.counting.leaf_log import LeafLog
from catchment.durable.disk import Disk
from catchment.engine.merger import Merger
from catchment.engine.parcels import pack_partials, unpack_partials
from catchment.engine.partials import Partials
from catchment.flush.compressing import Compressing
from catchment.flush.link import Link
from catchment.planner.cost import periods_of
from catchment.planner.edges import EARLIEST, LATEST, Series
from catchment.tree.charter import Charter
from catchment.tree.early_flush import EarlyFlush, holds_back
from catchment.tree.inbox import View
from catchment.tree.message import COUNTS, Head, encode, weight_of
from catchment.tree.outbox import Outbox
from catchment.tree.stale_plan import Behind, joined

NOWHERE = [EARLIEST, EARLIEST, -1]
"""Frontier, what is sure of it, and plan of a node that has said nothing yet."""


class Word(NamedTuple):
    """What a message says besides its rows: as in its head."""

    frontier: int | None
    sure: int
    missing: tuple[str, ...]
    newest: int
    counts: dict[str, int]
    landed: tuple[int, ...]
    ended: dict[str, int]
    behind: Behind


class Outflow:
    """Merges partials by slice, and writes down messages for the parent.

    All of it goes on after a crash from the outbox's last record.
    """

    def __init__(self, id: str, disk: Disk, charter: Charter) -> None:
        self.id, self.charter, self._disk = id, charter, disk
        self.outbox = Outbox(disk)
        last = self.outbox.last
        self.note: dict[str, Any] = {} if last is None else last.note
        self.frontier: int = self.note.get("frontier", EARLIEST)
        self.sure: int = self.note.get("sure", EARLIEST)
        # Somebody who comes here by a move may bring what was cut by an older version.
        first = min(charter.plans) if charter.moves else charter.plan
        self.plan: int = self.note.get("plan", first)
        self._told: tuple[Any, ...] = tuple(self.note.get("told", ()))
        self.merger = self._restored(b"" if last is None else last.carry)
        self.counts: dict[str, int] = dict(self.note.get("counts", {}))
        """What happened since the last message."""
        self.ended: dict[str, int] = dict(self.note.get("ends", {}))
        """The nodes below whose streams have ended, and the time of the last event of each."""
        self.behind: Behind = dict(self.note.get("behind", {}))
        """What was cut by an older plan than this node was by, since the last message."""
        learnt = self.note.get("flush", {})
        self.link = Link(charter.flush, learnt)
        self.early = EarlyFlush(charter.flush, self.link, learnt)
        self.compressing = Compressing(charter.flush.compress)
        self.notes: list[pa.Table] = []
        """What is to be said of events that are counted."""
        self.counting: LeafLog | None = None

    def count_windows(self, number: int) -> None:
        """At a node that reads events: keeps those whose count windows are found by asking."""
        if self.charter.asks:
            self.counting = LeafLog(
                self.charter.asked(self.plan),
                number,
                self.merger,
                self._disk,
                self.outbox.number,
                self.note.get("kept"),
            )

    def _restored(self, carry: bytes) -> Merger:
        merger = self.charter.bound(self.plan).merger(stream=self.id)
        merger.absorb(unpack_partials(carry)[0] if carry else {}, self.note.get("newest", EARLIEST))
        return merger

    def follow(self, charter: Charter) -> None:
        """Takes a newer charter; the plan stays until `switch`."""
        self.charter = charter

    def switch(self, plan: int) -> None:
        """Goes over to a newer version of the plan."""
        while self.plan < plan:
            self.plan += 1
            planned = self.charter.plans[self.plan]
            self.merger.follow(self.charter.bound(self.plan), planned.lineage)
            self.early.forget()
            if self.counting is not None:
                self.counting.switch(self.charter.asked(self.plan))

    def count(self, counts: dict[str, int]) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def lags(self, behind: Behind) -> None:
        """Notes what was cut by an older plan than this node is by."""
        self.behind = joined([self.behind, behind])

    def step(self, view: View, place: dict[str, Any], now: int) -> None:
        """Ends a step: passes up what is whole now, and notes how far the node has come."""
        before = self._word()
        low = self.frontier
        self._reach(view)
        if self.counting is not None:
            said = self.counting.notes()
            self.notes += [] if said is None else [said]
        # Nobody waits for an idle node: what it holds back would come too late.
        upto = LATEST if view.frontier is None else self.frontier
        partials = self.merger.release(upto, settles=self.frontier)
        partials = self._with_early(partials, now)
        if self.notes:
            partials[COUNTS], self.notes = pa.concat_tables(self.notes), []
        newest = self.merger.newest
        told = (
            view.frontier is None,
            self.plan,
            list(view.missing),
            self.sure == self.frontier,
            list(view.landed),
            sorted(self.ended),
        )
        messages: list[bytes] = []
        stood = {"last": self.note.get("last", NOWHERE)}
        if rows_in(partials) or told != self._told or self._edge_between(low, self.frontier):
            frontier = None if view.frontier is None else self.frontier
            word = Word(
                frontier,
                self.sure,
                view.missing,
                newest,
                self.counts,
                view.landed,
                dict(self.ended),
                self.behind,
            )
            messages = self._messages(partials, word, before._replace(behind=self.behind))
            self.counts, self.behind, self._told = {}, {}, told
            stood = {
                "before": self.note.get("last", NOWHERE),
                "last": [frontier, self.sure, self.plan],
            }
        self.note = place | {
            "frontier": self.frontier,
            "sure": self.sure,
            "plan": self.plan,
            "newest": newest,
            "told": list(self._told),
            "counts": dict(self.counts),
            "ends": dict(self.ended),
            "behind": self.behind,
            "flush": self.early.to_dict(),
            **stood,
        }
        self._append(messages)

    def send_early(self, now: int) -> bool:
        """Between steps: passes up early what the link has room for; whether there was any."""
        if not self.note or self.note["told"][0] or not self.early.sender.active:
            return False
        partials = self._with_early({}, now)
        if not rows_in(partials):
            return False
        messages = self._messages(partials, self._word(), self._word())
        self.note |= {"before": self.note.get("last", NOWHERE)}  # it says nothing new
        self._append(messages)
        return True

    def _with_early(self, partials: Partials, now: int) -> Partials:
        """Partials that leave, and those that leave early beside them."""
        size = rows_in(partials) * self.early.sender.each
        plan = self.charter.plans[self.plan].plan
        seq = self.outbox.sent + 1
        chosen = self.early.choose(self.merger, plan, self.frontier, now / 1e6, size, seq)
        for id, rows in chosen.items():
            if len(rows):
                early = self.merger.part(id, rows)
                whole = partials.get(id)
                partials[id] = early if whole is None else pa.concat_tables([whole, early])
        return partials

    def _word(self) -> Word:
        """How far the node has said to be."""
        if not self.note:
            return Word(EARLIEST, EARLIEST, (), EARLIEST, {}, (), {}, {})
        frontier, sure, _ = self.note.get("last", NOWHERE)
        _, _, missing, _, landed, ended = self.note["told"]
        ends = {id: self.note["ends"][id] for id in ended}
        newest = self.note["newest"]
        return Word(frontier, sure, tuple(missing), newest, {}, tuple(landed), ends, {})

    def _messages(self, partials: Partials, word: Word, before: Word) -> list[bytes]:
        """One message; or several, if one would take too long: only the last has news but rows."""
        whole = self._encoded(partials, word, 1)
        self.early.sender.wrote(rows_in(partials), len(whole))
        count = -(-len(whole) // self.link.largest)
        if count == 1:
            return [whole]
        plan = self.charter.plans[self.plan].plan
        groups = {group.id for group in plan.groups if holds_back(group)}
        shares = [share_of(partials, groups, part, count) for part in range(count)]
        words = [before] * (count - 1) + [word]
        return [
            self._encoded(share, said, place)
            for place, (share, said) in enumerate(zip(shares, words, strict=True), start=1)
        ]

    def _append(self, messages: list[bytes]) -> None:
        step = 1 + self.outbox.number
        if self.counting is not None:
            self.counting.write(step)
            self.note["kept"] = self.counting.written
        self.outbox.append(self.note, messages, pack_partials(self.merger.held()))
        if self.counting is not None:
            self.counting.compact(step)
        for place, message in enumerate(messages, start=1 - len(messages)):
            self.link.wrote(self.outbox.sent + place, len(message))

    def _encoded(self, partials: Partials, word: Word, place: int) -> bytes:
        head = Head(self.id, self.outbox.sent + place, self.plan, *word)
        tries = rows_in(partials) > 0 and self.compressing.wanted()
        message = encode(head, partials, self.charter, tries)
        if tries:
            self.compressing.tried(*weight_of(message))
        return message

    def _reach(self, view: View) -> None:
        """Moves the frontier on; only for a node that came from elsewhere does it go back."""
        back = EARLIEST if view.landed else self.frontier
        if view.frontier is not None:
            self.frontier = max(back, view.frontier)
        sure = min(view.sure, self.frontier)
        self.sure = sure if view.landed else max(self.sure, sure)

    def stood(self, seq: int) -> tuple[int | None, int, int]:
        """Frontier, what was sure of it, and plan, as of a message that the parent has."""
        following = self.outbox.note_of(seq + 1)
        if following is not None:
            return stand(following["before"])
        return stand(self.note.get("last", NOWHERE))

    def _edge_between(self, low: int, high: int) -> bool:
        """Whether a frontier that moved from one time to another can complete any window."""
        if low == high:
            return False
        if high >= LATEST or low <= EARLIEST:
            return True
        about = self.charter.asked(self.plan)
        for group in self.charter.plans[self.plan].plan.groups:
            if group.id in about:
                continue  # the root asks how far this node is
            if not all(window.periods for window in group.windows):
                return True  # sessions, marks and counts end where the data says
            series = Series(periods_of(group.windows))
            if (series.ending_after(low) < series.ending_after(high)).any():
                return True
        return False

    def acknowledged(self, settled: int) -> None:
        """The parent has messages, and does not need them from here again."""
        self.outbox.settle(settled)

    def arrived(self, seq: int, now: int) -> None:
        """The parent has messages up to this one."""
        self.link.acknowledged(seq, now / 1e6)
        self.early.sender.acknowledged(seq, now / 1e6)


def stand(noted: list[Any]) -> tuple[int | None, int, int]:
    """Frontier, what was sure of it, and plan, as a note has them."""
    frontier, sure, plan = noted
    return frontier, sure, plan


def rows_in(partials: Partials) -> int:
    return sum(table.num_rows for table in partials.values())


def share_of(partials: Partials, groups: set[int], part: int, count: int) -> Partials:
    """One of so many equal shares of the rows of some groups; the last has all of the others."""
    made: Partials = {}
    for id, table in partials.items():
        if id in groups:
            low, high = table.num_rows * part // count, table.num_rows * (part + 1) // count
            made[id] = table.slice(low, high - low)
        elif part == count - 1:
            made[id] = table
    return made
