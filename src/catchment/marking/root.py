"""The root's part in finding windows by their marks: it tells nodes where to cut, round by round.

A round is about the time from the end of the one before to the frontier. Marks of that time wait in
the assembler. The root tells all nodes where they are, and once every node has answered, windows
are followed through marks and slices in one order. Until then the windows of these groups are held.

    marks of all nodes   --step-->  a word: edges from `begin` to `until`
    notes of all nodes   --take-->  slices, each behind an edge, into the assembler
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from catchment.counting import wire
from catchment.counting.orders import Key, Lane, Orders, OrdersAfter
from catchment.engine import codec, settled
from catchment.engine.assembler import Assembler
from catchment.engine.bound import BoundPlan
from catchment.engine.columns import unpack
from catchment.engine.group import GroupState
from catchment.engine.interleaved import behind_edges
from catchment.engine.rows import Rows, fit
from catchment.engine.shapes.event_bounded import EventBoundedState
from catchment.engine.waiting import WaitingSet
from catchment.marking.agreement import EventsKept, Speaker
from catchment.marking.choice import cost_more
from catchment.marking.edges import MarkEdges
from catchment.marking.merging import KnownSets, checked_notes
from catchment.marking.message import EdgesWord, MarkNote, notes_in
from catchment.marking.rows import (
    CENSUS,
    GroupRows,
    events_schema,
    key_schema,
    marking,
    packed,
)
from catchment.operators.ragged import Ints
from catchment.planner.edges import EARLIEST, LATEST

MANY = 1 << 18
"""Events that nodes keep between two rounds: with so many, a round begins without marks too."""


class Versions(KnownSets, Protocol):
    """What the root knows of versions of the plan."""

    def group_now(self, version: int, id: int) -> int | None:
        """The group that continues one of an older version; None: it is gone."""
        ...

    def events_now(self, version: int, id: int, events: pa.Table) -> pa.Table | None:
        """Events of a set of an older version, as the plan in use would have kept them."""
        ...


class OpenRound(Struct, frozen=True, array_like=True):
    """A round that some nodes have not answered yet."""

    number: int
    begin: int
    until: int
    since: int
    """When it began, by the clock."""
    waiting: list[int]
    without: list[int]
    """Nodes that were given up when it began."""
    time: Ints
    arrival: Ints
    """The arrival of each edge, by the number of the edge."""


class SetState(Struct, frozen=True, array_like=True):
    """What the root must not lose of a set of groups."""

    done: int
    number: int
    base: int
    last_held: int | None
    round: OpenRound | None


class RootMarksState(Struct, frozen=True, array_like=True):
    """What a `RootMarks` must not lose."""

    orders: OrdersAfter
    held: int
    silent: set[int]
    over: set[int]
    aside: dict[int, str]
    events_kept: EventsKept
    sets: dict[str, SetState]


class UnansweredRound(NamedTuple):
    """Nodes that have not answered a round: of groups, windows that begin before a time lack what
    they keep."""

    groups: list[int]
    until: int
    nodes: list[int]


class SetRounds:
    """The rounds of a set of groups."""

    def __init__(self, id: int, groups: Iterable[int]) -> None:
        self.id, self.groups = id, [*groups]
        self.done = EARLIEST
        """Windows can be given up to this time."""
        self.number = 0
        """The number of the last round."""
        self.base = 0
        """Events that all nodes kept when the last round began."""
        self.last_held: int | None = None
        """Events that all nodes kept when the last round began after all of them had ended."""
        self.round: OpenRound | None = None


class RootMarks:
    """The sets of groups whose windows are found by their marks.

    What it tells follows from what it has taken, and from its steps, alone.
    """

    def __init__(self, bound: BoundPlan, sets: Mapping[int, str], saved: bytes = b"") -> None:
        self.sets: dict[str, SetRounds] = {}
        self.orders = Orders()
        self.events_held = 0
        """Events that all nodes keep, as far as they have said."""
        self.silent: set[int] = set()
        """Nodes that have not answered for too long."""
        self.over: set[int] = set()
        """Nodes that have ended and keep nothing."""
        self.aside: dict[int, str] = {}
        """Nodes that were not right, and why, the last time each."""
        self.events_kept = EventsKept()
        self.late = 0
        """Events in answers that came when their round was over, since somebody asked."""
        self.lacking: list[UnansweredRound] = []
        """What windows of the last step lack."""
        self.switch(bound, sets)
        if saved:
            self._restore(saved)

    def switch(self, bound: BoundPlan, sets: Mapping[int, str]) -> None:
        """Goes on by another version of the plan."""
        before, self.sets = self.sets, {}
        for id, name in sets.items():
            one = self.sets[name] = before.get(name) or SetRounds(id, ())
            one.id, one.groups = id, [*bound.waiting[id].groups]
        self.orders.keep(self.sets)

    @property
    def held(self) -> dict[int, int]:
        """By group: the time up to which its windows can be given."""
        return {id: one.done for one in self.sets.values() for id in one.groups}

    # -- what nodes say ---------------------------------------------------------------------------

    def take(
        self,
        said: pa.Table | None,
        speaker: Speaker,
        assembler: Assembler,
        versions: Versions,
    ) -> None:
        """Takes what a child says, what nodes had goes into the assembler."""
        self.events_held += speaker.held
        notes = [] if said is None else notes_in(said)
        for note in checked_notes(notes, speaker, self.events_kept, versions):
            self.events_held -= note.let_go
            self.silent -= {*note.nodes}
            if not note.round:
                self.over |= {*note.nodes}
                self._answered(note.nodes)
                continue
            one = self.sets.get(note.set)
            if one is None or one.round is None or one.round.number != note.round:
                self.late += note.events
                continue
            why = note.wrong or _behind_no_edge(note, one.round, versions)
            if why:
                self.late += note.events
                self.aside |= dict.fromkeys(note.nodes, why)
                without = sorted({*one.round.without, *note.nodes})
                one.round = replace(_awaiting(one.round, note.nodes), without=without)
                continue
            for id, slices in note.slices.items():
                now = versions.group_now(note.plan, id)
                if now is not None:
                    group = GroupRows(versions.bound(note.plan).groups[id])
                    self._place(group, group.unpack(slices.rows), one.round, assembler.states[now])
            for events in note.sent:
                table = _events(note, events, versions)
                if table is not None:
                    assembler.waiting[one.id].absorb(table)
            one.round = _awaiting(one.round, note.nodes)

    def _answered(self, nodes: list[int]) -> None:
        """Nodes keep nothing of any round."""
        for one in self.sets.values():
            if one.round is not None:
                one.round = _awaiting(one.round, nodes)

    def _place(self, group: GroupRows, rows: Rows, round: OpenRound, state: GroupState) -> None:
        """Puts slices behind their edges."""
        events = np.asarray(rows.fields[CENSUS], np.int64)
        edge, keys = rows.start, group.keys
        fitting = fit(rows, state.operators)
        fitting.key = state.keys.codes_of(keys.selections[rows.key], keys.take(rows.key))
        state.take_between(behind_edges(fitting, round.time[edge], round.arrival[edge], events))

    # -- rounds -----------------------------------------------------------------------------------

    def overdue(self, now: int, timeout: int | None) -> set[int]:
        """Nodes that have not answered for too long, and are still waited for."""
        if timeout is None:
            return set()
        rounds = (one.round for one in self.sets.values() if one.round is not None)
        late = (round for round in rounds if now - round.since > timeout)
        return {node for round in late for node in round.waiting} - self.silent

    def step(
        self,
        assembler: Assembler,
        reach: int,
        frontier: int,
        nodes: Iterable[int],
        away: Iterable[int],
        now: int,
        timeout: int | None,
    ) -> None:
        """Ends rounds that all nodes have answered, and begins others.

        Of the nodes that read events, those in `away` are given up.
        """
        self.silent |= self.overdue(now, timeout)
        there = {*nodes} - {*away} - self.silent - self.over
        gone = {*nodes} - there - self.over
        self.lacking = []
        for name, one in self.sets.items():
            if one.round is not None and not {*one.round.waiting} & there:
                self._end(one, {*nodes})
            if one.round is None and self._due(one, assembler, reach, frontier):
                self._begin(name, one, assembler, min(max(reach, one.done), LATEST - 1), there)
                assert one.round is not None
                one.round = replace(one.round, since=now, without=sorted(gone))
                one.last_held = self.events_held if frontier >= LATEST - 1 else None
                if not there:
                    self._end(one, {*nodes})

    def _due(self, one: SetRounds, assembler: Assembler, reach: int, frontier: int) -> bool:
        """Whether a round begins: there is a mark, or nodes keep many events, or all have ended."""
        if frontier >= LATEST - 1:
            return reach > one.done or self.events_held != one.last_held
        if reach <= one.done:
            return False
        if self.events_held <= 0:
            one.done, one.base = reach, 0
            return False
        many = self.events_held - one.base >= MANY
        return many or len(_marks(assembler.waiting[one.id], one.done, reach).key) > 0

    def _end(self, one: SetRounds, nodes: set[int]) -> None:
        assert one.round is not None
        short = sorted(nodes & {*one.round.waiting, *one.round.without})
        if short:
            self.lacking.append(UnansweredRound(one.groups, one.round.until, short))
        one.done, one.round = one.round.until, None

    def _begin(
        self, name: str, one: SetRounds, assembler: Assembler, until: int, there: set[int]
    ) -> None:
        waiting = assembler.waiting[one.id]
        edges = _marks(waiting, one.done, until)
        send = cost_more(len(edges.key), len(there), self.events_held)
        if send:
            edges = _NO_EDGES
        cuts = _beginnings((assembler.states[id] for id in one.groups), one.done, until)
        edges = edges._replace(cuts=np.array(sorted(cuts), np.int64))
        codes, place = np.unique(edges.key, return_inverse=True)
        schema = key_schema(waiting.bound)
        keys = pa.table(waiting.keys.take(codes), schema.names) if len(codes) and schema else None
        one.number += 1
        word = EdgesWord(
            one.number,
            one.done,
            until,
            np.array(sorted(there), np.int64),
            send,
            place.astype(np.int64),
            b"" if keys is None else packed(keys, schema),
            len(codes),
            edges.time,
            edges.arrival,
            edges.cuts,
        )
        self.orders.say([(Lane(name, Key(0, ())), wire.dump(word))], over=False)
        one.base = self.events_held
        one.round = OpenRound(
            one.number, one.done, until, 0, sorted(there), [], *edges.places(one.done)
        )

    # -- state ------------------------------------------------------------------------------------

    def newly_late(self) -> int:
        """How many events came when their round was over, since the last call."""
        late, self.late = self.late, 0
        return late

    def to_bytes(self) -> bytes:
        sets = {
            name: SetState(one.done, one.number, one.base, one.last_held, one.round)
            for name, one in self.sets.items()
        }
        state = RootMarksState(
            self.orders.after(0),
            self.events_held,
            self.silent,
            self.over,
            self.aside,
            self.events_kept,
            sets,
        )
        return wire.dump(state)

    def _restore(self, saved: bytes) -> None:
        state = wire.load(RootMarksState, saved)
        self.orders = Orders(state.orders)
        self.orders.keep(self.sets)
        self.events_held, self.silent, self.over = state.held, state.silent, state.over
        self.aside, self.events_kept = state.aside, state.events_kept
        for name, found in state.sets.items():
            if name in self.sets:
                one = self.sets[name]
                one.done, one.number, one.base = found.done, found.number, found.base
                one.last_held, one.round = found.last_held, found.round


_NONE = np.empty(0, np.int64)
_NO_EDGES = MarkEdges(_NONE, _NONE, _NONE, _NONE)


def _marks(waiting: WaitingSet, begin: int, until: int) -> MarkEdges:
    """The marks that wait, from a time up to another, in order of key, time and arrival."""
    found = []
    for table in waiting.tables:
        time = codec.ints(table, settled.TIME)
        rows = np.flatnonzero((time >= begin) & (time < until))
        if len(rows):
            some = table.take(rows)
            marks = marking(some, waiting.bound)
            names = (settled.KEY, settled.TIME, settled.ARRIVAL)
            found.append([codec.ints(some, name)[marks] for name in names])
    if not found:
        return _NO_EDGES
    key, time, arrival = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.lexsort((arrival, time, key))
    return MarkEdges(key[order], time[order], arrival[order], _NONE)


def _beginnings(states: Iterable[GroupState], begin: int, until: int) -> set[int]:
    """Times from which on window types that came later see events."""
    opened = (
        one
        for state in states
        for shape in state.shapes
        if isinstance(shape, EventBoundedState)
        for one in shape.opened
    )
    return {one.since + 1 for one in opened if one.since is not None and begin <= one.since < until}


def _awaiting(round: OpenRound, answered: list[int]) -> OpenRound:
    return replace(round, waiting=[node for node in round.waiting if node not in answered])


def _behind_no_edge(note: MarkNote, round: OpenRound, versions: Versions) -> str:
    """What is wrong with slices of a note that stand behind an edge which the round does not
    have."""
    for id, slices in note.slices.items():
        rows = GroupRows(versions.bound(note.plan).groups[id]).unpack(slices.rows)
        if len(rows) and int(rows.start.max()) >= len(round.time):
            return "it has slices behind an edge that nobody told"
    return ""


def _events(note: MarkNote, events: bytes, versions: Versions) -> pa.Table | None:
    """Events that were sent instead of slices, by the plan in use."""
    id = versions.set_in(note.plan, note.set)
    if id is None:
        return None
    schema = events_schema(versions.bound(note.plan), id)
    return versions.events_now(note.plan, id, unpack(events, schema))
