"""What all nodes below the root do: hold slices in a merger, and write messages for the parent.

Partials come into the merger. `step` takes out those whose slices have ended, and those that an
early flush sends, and appends messages and what stays to the outbox as one record.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import pyarrow as pa
from msgspec.structs import replace

from catchment.counting.leaf_log import LeafLog
from catchment.durable.disk import Disk
from catchment.engine.partials import Partials, joined_partials
from catchment.flush.compressing import Compressing
from catchment.flush.learnt import NOTHING
from catchment.flush.link import LinkEstimate
from catchment.marking.leaf_log import MarkLog
from catchment.marking.merging import merged_notes
from catchment.model.capacity import Capacity
from catchment.planner.edges import EARLIEST, LATEST
from catchment.ranking.leaf_log import RankLog
from catchment.tree.charter import Charter
from catchment.tree.early_flush import EarlyFlush, holds_back
from catchment.tree.edges_told import passes_edge
from catchment.tree.message import MOST_EVENTS, Head, encode, weight_of
from catchment.tree.outbox import Outbox
from catchment.tree.records import (
    NOWHERE,
    Behind,
    FlowNote,
    LastSent,
    LocalPlace,
    RelayPlace,
    View,
)
from catchment.tree.role_progress import RoleProgress
from catchment.tree.stale_plan import joined
from catchment.tree.words import NodeProgress, PartitionsRead

READ_BYTES = 1000
"""Bytes of a message that may say how far partitions were read."""
_PLACE = 20
"""Bytes of one such place, besides the name of the partition."""


class Word(NamedTuple):
    """What a message says besides its rows: as in its head."""

    frontier: int | None
    complete_until: int
    missing: tuple[str, ...]
    newest: int
    counts: dict[str, int]
    landed: tuple[int, ...]
    ended: dict[str, int]
    behind: Behind
    read: PartitionsRead | None


class Said(NamedTuple):
    """What a message says to the root's questions."""

    notes: pa.Table | None
    """On events that are counted."""
    ranks: pa.Table | None
    """On values that are kept back."""
    marks: pa.Table | None = None
    """On events between marks."""


class Outflow:
    """Merges partials by slice, and writes down messages for the parent.

    All of it goes on after a crash from the outbox's last record.
    """

    def __init__(self, id: str, disk: Disk, charter: Charter, begins: int | None = None) -> None:
        """`begins` is the version of the plan that it begins with, if it takes over from a node."""
        self.id, self.charter, self._disk = id, charter, disk
        self.outbox = Outbox(disk)
        last = self.outbox.last
        note = self.note = None if last is None else last.note
        """How far the node has come, as of its last step; None: it has taken none."""
        self.frontier = EARLIEST if note is None else note.frontier
        self.complete_until = EARLIEST if note is None else note.complete_until
        # Somebody who comes here by a move may bring what was cut by an older version.
        first = min(charter.plans) if charter.moves else charter.plan
        first = first if begins is None else begins
        self.plan = first if note is None else note.plan
        self.last_sent = None if note is None else note.last_sent
        carry = None if last is None else last.carry
        self.merger = charter.bound(self.plan).merger(stream=charter.stream(id), state=carry)
        self.counts: dict[str, int] = {} if note is None else dict(note.counts)
        """What happened since the last message."""
        self.ended: dict[str, int] = {} if note is None else dict(note.ends)
        """The nodes below whose streams have ended, and the time of the last event of each."""
        self.behind: Behind = {} if note is None else note.behind
        """What was cut by an older plan than this node was by, since the last message."""
        learnt = NOTHING if note is None else note.flush
        self.link = LinkEstimate(charter.settings.flush, learnt)
        self.early = EarlyFlush(charter.settings.flush, self.link, learnt)
        self.compressing = Compressing(charter.settings.flush.compress)
        self.notes: list[pa.Table] = []
        """What is to be said of events that are counted."""
        self.ranks: list[pa.Table] = []
        """What is to be said of values that are kept back."""
        self.marks: list[pa.Table] = []
        """What is to be said of events between marks."""
        self.told_ranks = False
        """Whether such were sent after the root's last questions."""
        self.counting: LeafLog | None = None
        self.ranking: RankLog | None = None
        self.marking: MarkLog | None = None
        self.due: int | None = None
        """The time that the root has asked about: the end of a session. Once this node has passed
        it, it tells its frontier at once."""

    def link_figures(self) -> dict[str, float | int | None] | None:
        """What is known of the link to the parent, and what left early; None: nothing yet."""
        if math.isinf(self.link.rate) and not self.early.sender.early:
            return None
        return self.link.shown() | self.early.shown()

    def count_windows(self, number: int) -> None:
        """At a node that reads events: keeps those whose count windows are found by asking."""
        if self.charter.settings.distributes_counts:
            self.counting = LeafLog(
                self.charter.distributed_groups(self.plan),
                number,
                self.merger,
                self._disk,
                None if self.note is None else self.note.counted,
            )

    def keep_values(self, number: int) -> None:
        """At a node that reads events: keeps values back that may be asked for."""
        settings = self.charter.settings
        if settings.asks_values:
            self.ranking = RankLog(
                self.charter.ranked_groups(self.plan),
                number,
                self.merger,
                self._disk,
                None if self.note is None else self.note.ranked,
                always=settings.quantiles == "ask",
            )

    def keep_between_marks(self, number: int) -> None:
        """At a node that reads events: keeps those between marks until it is told where to cut."""
        if self.charter.settings.asks_marks:
            self.marking = MarkLog(
                self.charter.cut_sets(self.plan),
                number,
                self.merger,
                self._disk,
                None if self.note is None else self.note.marked,
            )

    @property
    def expects_questions(self) -> bool:
        """Whether the root is about to ask something about values, or to let go of them."""
        if self.frontier == LATEST - 1 and self.charter.marked_sets(self.plan):
            return True  # all has been read, and waits for the root's word
        if self.ranking is None:
            return self.told_ranks
        return any(held.over(self.frontier) for held in self.ranking.leaf.held.values())

    @property
    def pending(self) -> bool:
        """Whether the root has asked what is not answered yet."""
        counting = self.counting is not None and self.counting.leaf.pending
        marking = self.marking is not None and self.marking.leaf.pending
        ranking = self.ranking is not None and self.ranking.leaf.pending
        return self.owes or counting or ranking or marking

    def follow(self, charter: Charter) -> None:
        """Takes a newer charter; the plan stays until `switch`."""
        self.charter = charter

    def switch(self, plan: int) -> None:
        """Has the merger work by a newer version of the plan, one version after the other."""
        while self.plan < plan:
            self.plan += 1
            planned = self.charter.plans[self.plan]
            self.merger.follow(self.charter.bound(self.plan), planned.lineage)
            self.early.forget()
            if self.counting is not None:
                self.counting.switch(self.charter.distributed_groups(self.plan))
            if self.ranking is not None:
                self.ranking.switch(self.charter.ranked_groups(self.plan))
            if self.marking is not None:
                self.marking.switch(self.charter.cut_sets(self.plan))

    @property
    def owes(self) -> bool:
        """Whether the root has asked when this node passes a time, and the node has passed it."""
        told = self._last.frontier
        return self.due is not None and told is not None and told <= self.due < self.frontier

    @property
    def crowded(self) -> bool:
        """Whether no more is read until the root has found edges of count windows."""
        if self.counting is None:
            return False
        leaf, waits = self.counting.leaf, self.charter.settings.count_options.wait
        return leaf.crowded or (waits and leaf.blocked)

    def count(self, counts: dict[str, int]) -> None:
        for name, count in counts.items():
            # What a child counts need not be true: the parent of this node takes no more.
            self.counts[name] = min(self.counts.get(name, 0) + count, MOST_EVENTS)

    def lags(self, behind: Behind) -> None:
        """Notes what was cut by an older plan than this node is by."""
        self.behind = joined([self.behind, behind])

    def step(self, view: View, place: LocalPlace | RelayPlace, now: int) -> None:
        """Ends a step: passes up slices that have ended, and writes down how far the node is."""
        before = self._word()
        low = self.frontier
        self._reach(view)
        if self.counting is not None:
            said = self.counting.notes()
            self.notes += [] if said is None else [said]
        # Nobody waits for an idle node: what it holds back would come too late.
        upto = LATEST if view.frontier is None else self.frontier
        marked = self.charter.marked_sets(self.plan)
        streams = self.merger.by_stream
        partials = self.merger.release(upto, settles=self.frontier, without={*marked, *streams})
        ended = self.merger.follow_streams(streams, upto, self.frontier)
        at_once = bool(streams) and self.early.sender.holds_nothing
        partials = self._held_back(self._with_early(partials, now))
        notes, self.notes = pa.concat_tables(self.notes) if self.notes else None, []
        ranks, self.ranks = pa.concat_tables(self.ranks) if self.ranks else None, []
        self._answer_marks()
        newest = self.merger.newest
        saying = LastSent(
            idle=view.frontier is None,
            plan=self.plan,
            missing=view.missing,
            complete=self.complete_until == self.frontier,
            landed=view.landed,
            ended=tuple(sorted(self.ended)),
        )
        messages: list[bytes] = []
        last, stood = self._last, None
        if (
            partials.rows
            or notes is not None
            or ranks is not None
            or self.marks
            or saying != self.last_sent
            or ended
            or at_once
            or self.owes
            or self._edge_between(low, self.frontier)
        ):
            events = self._marks_of(self.merger.release_events(marked, upto))
            own = self.merger.release_streams(streams, upto)
            sessions = self.merger.release_sessions(upto)
            partials = joined_partials([partials, own, sessions, events])
            frontier = None if view.frontier is None else self.frontier
            word = Word(
                frontier,
                self.complete_until,
                view.missing,
                newest,
                self.counts,
                view.landed,
                dict(self.ended),
                self.behind,
                _read_by(place),
            )
            answers = Said(notes, ranks, self._marks_to_say())
            messages = self._messages(partials, answers, word, before._replace(behind=self.behind))
            self.counts, self.behind, self.last_sent = {}, {}, saying
            last, stood = NodeProgress(frontier, self.complete_until, self.plan), last
        note = FlowNote(
            place=place,
            frontier=self.frontier,
            complete_until=self.complete_until,
            plan=self.plan,
            newest=newest,
            last_sent=self.last_sent,
            counts=dict(self.counts),
            ends=dict(self.ended),
            behind=self.behind,
            flush=self.early.learnt(),
            last=last,
            before=stood,
        )
        self._append(note, messages)

    @property
    def _last(self) -> NodeProgress:
        """How far the node has said to be."""
        return NOWHERE if self.note is None else self.note.last

    def send_early(self, now: int) -> bool:
        """Between steps: passes up early what the link has room for; whether there was any."""
        note, said = self.note, self.last_sent
        if note is None or said is None or said.idle or not self.early.sender.active:
            return False
        partials = self._with_early(Partials(), now)
        if not partials.rows:
            return False
        # Where all of it stays here, what is said of it leaves.
        partials = self._held_back(partials)
        ranks, self.ranks = pa.concat_tables(self.ranks) if self.ranks else None, []
        word = self._word()._replace(counts=self.counts)
        messages = self._messages(partials, Said(None, ranks), word, word)
        self.counts = {}
        self._append(replace(note, before=note.last, counts={}), messages)
        return True

    def _with_early(self, partials: Partials, now: int) -> Partials:
        """Partials that leave, and those that leave early beside them."""
        size = partials.rows * self.early.sender.each
        plan = self.charter.plans[self.plan].plan
        seq = self.outbox.sent + 1
        chosen = self.early.choose(self.merger, plan, self.frontier, now / 1e6, size, seq)
        early = {id: self.merger.part(id, rows) for id, rows in chosen.items() if len(rows)}
        return joined_partials([partials, Partials(early)])

    def _held_back(self, partials: Partials) -> Partials:
        """Partials without the values that stay here until they are asked for."""
        if self.ranking is None:
            return partials
        partials = self.ranking.hold(partials, self.frontier, bool(self.ended))
        said = self.ranking.notes()
        self.ranks += [] if said is None else [said]
        return partials

    def _answer_marks(self) -> None:
        """Cuts events that were kept back where the root told."""
        if self.marking is None:
            return
        self.marking.leaf.version = self.plan
        said = self.marking.notes()
        self.marks += [] if said is None else [said]
        if self.frontier >= LATEST:
            self.marks.append(self.marking.over())
        self._count_late(self.marking.newly_late())

    def _marks_to_say(self) -> pa.Table | None:
        """What is said of events between marks, with how many of them are kept from now on."""
        said, self.marks = self.marks, []
        if self.marking is not None:
            said = self.marking.with_left(said)
        return merged_notes(said, self.charter.bound)

    def _marks_of(self, partials: Partials) -> Partials:
        """Events without those that stay here until the root tells where to cut them."""
        if self.marking is None:
            return partials
        nodes = sum(place.source for place in self.charter.places.values())
        kept = self.marking.hold(partials, nodes, self.frontier, bool(self.ended))
        self.count({"held": kept.held} if kept.held else {})
        self._count_late(kept.late)
        return kept.partials

    def _count_late(self, late: int) -> None:
        self.count({"late": late} if late else {})

    def _word(self) -> Word:
        """What the last message said."""
        note, said, last = self.note, self.last_sent, self._last
        if note is None or said is None:
            return Word(EARLIEST, EARLIEST, (), EARLIEST, {}, (), {}, {}, None)
        ends = {id: note.ends[id] for id in said.ended}
        return Word(
            last.frontier,
            last.complete_until,
            said.missing,
            note.newest,
            {},
            said.landed,
            ends,
            {},
            _read_by(note.place),
        )

    def _messages(self, partials: Partials, said: Said, word: Word, before: Word) -> list[bytes]:
        """One message; or several, if one would take too long.

        Only the last says how far the node is. The first says already what was read: the rows of
        all of them are of these events.
        """
        whole = self._encoded(partials, said, word, 1)
        self.early.sender.wrote(_rows(partials, said), len(whole))
        count = -(-len(whole) // self.link.largest)
        if count == 1:
            return [whole]
        plan = self.charter.plans[self.plan].plan
        groups = {group.id for group in plan.groups if holds_back(group)}
        shares = [share_of(partials, groups, part, count) for part in range(count)]
        before = before._replace(newest=word.newest, read=word.read)
        first = before._replace(counts=word.counts)
        others = [
            self._encoded(share, Said(None, None), first if place == 1 else before, place)
            for place, share in enumerate(shares[:-1], start=1)
        ]
        return [*others, self._encoded(shares[-1], said, word._replace(counts={}), count)]

    def _append(self, note: FlowNote, messages: list[bytes]) -> None:
        if self.counting is not None:
            self.counting.write()
            note = replace(note, counted=self.counting.written)
        if self.ranking is not None:
            self.ranking.write()
            note = replace(note, ranked=self.ranking.written)
        if self.marking is not None:
            self.marking.write()
            note = replace(note, marked=self.marking.written)
        self.outbox.append(note, messages, self.merger.save())
        self.note = note
        if self.counting is not None:
            self.counting.compact()
        if self.ranking is not None:
            self.ranking.compact()
        if self.marking is not None:
            self.marking.compact()
        for place, message in enumerate(messages, start=1 - len(messages)):
            self.link.wrote(self.outbox.sent + place, len(message))

    def _encoded(self, partials: Partials, said: Said, word: Word, place: int) -> bytes:
        head = Head(self.id, self.outbox.sent + place, self.plan, *word)
        tries = _rows(partials, said) > 0 and self.compressing.wanted()
        message = encode(head, partials, self.charter, tries, *said)
        self.told_ranks |= said.ranks is not None
        if tries:
            self.compressing.tried(*weight_of(message))
        return message

    def _reach(self, view: View) -> None:
        """Moves the frontier. It goes back only where a move has ended below this node."""
        back = EARLIEST if view.landed else self.frontier
        if view.frontier is not None:
            self.frontier = max(back, view.frontier)
        complete = min(view.complete_until, self.frontier)
        self.complete_until = complete if view.landed else max(self.complete_until, complete)

    def stood(self, seq: int) -> NodeProgress:
        """How far the node had said to be, as of a message that the parent has."""
        following = self.outbox.note_of(seq + 1)
        if following is not None and following.before is not None:
            return following.before
        return self._last

    def _edge_between(self, low: int, high: int) -> bool:
        """Whether a frontier that moved from one time to another can complete any window."""
        asked = self.charter.distributed_groups(self.plan)  # the root asks how far this node is
        marked = self.charter.marked_groups(self.plan)
        return passes_edge(self.charter.plans[self.plan].plan, asked, marked, low, high)

    def progress(self) -> RoleProgress:
        """How far the node has come, and which nodes below it are missing."""
        missing = () if self.last_sent is None else self.last_sent.missing
        return RoleProgress(self.frontier, self.complete_until, missing, self.plan)

    def capacities(self) -> list[Capacity]:
        """What grows in the memory of a node that passes partials up."""
        kept = [] if self.counting is None else self.counting.leaf.capacities()
        held = [] if self.ranking is None else self.ranking.leaf.capacities()
        between = [] if self.marking is None else self.marking.leaf.capacities()
        return [*self.merger.capacities(), *kept, *held, *between]

    def acknowledged(self, settled: int) -> None:
        """The parent has messages, and does not need them from here again."""
        self.outbox.settle(settled)

    def arrived(self, seq: int, now: int) -> None:
        """The parent has messages up to this one."""
        self.link.acknowledged(seq, now / 1e6)
        self.early.sender.acknowledged(seq, now / 1e6)


def _read_by(place: LocalPlace | RelayPlace) -> PartitionsRead | None:
    """How much of its source a node had read, if it reads one and that can be said in few bytes."""
    read = place.read if isinstance(place, LocalPlace) else None
    size = sum(len(name) + _PLACE for name in read or ())
    return None if size > READ_BYTES else read


def _rows(partials: Partials, said: Said) -> int:
    return partials.rows + sum(0 if notes is None else notes.num_rows for notes in said)


def share_of(partials: Partials, groups: set[int], part: int, count: int) -> Partials:
    """One of so many equal shares of the rows of some groups; the last has all of the others."""
    made: dict[int, pa.Table] = {}
    for id, table in partials.groups.items():
        if id in groups:
            low, high = table.num_rows * part // count, table.num_rows * (part + 1) // count
            made[id] = table.slice(low, high - low)
        elif part == count - 1:
            made[id] = table
    return Partials(made, partials.events if part == count - 1 else None)
