"""A local node's part in finding windows by their marks: it keeps events until it is told where to
cut them.

Settled events that mark nothing go in, and the root's rounds; notes with slices come out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from catchment.counting import wire
from catchment.counting.orders import HeardWords
from catchment.engine import codec, settled
from catchment.engine.bound import BoundPlan
from catchment.engine.columns import unpack
from catchment.engine.waiting import SettledEvents, WaitingSet
from catchment.marking.edges import MarkEdges, edge_before
from catchment.marking.message import EdgesWord, GroupSlices, MarkNote
from catchment.marking.rows import GroupRows, empty_set, events_schema, key_schema, packed
from catchment.model.capacity import Capacity
from catchment.operators.ragged import Ints
from catchment.planner.edges import EARLIEST

HELD = 1 << 28
"""Bytes of events that a node keeps; what is more climbs."""
_EDGE = "#edge"


class HeldSetState(Struct, frozen=True, array_like=True):
    """What a `HeldSet` must not lose."""

    events: bytes | None
    done: int
    answered: int


class LeafMarksState(Struct, frozen=True, array_like=True):
    """What a `LeafMarks` must not lose."""

    heard: int
    pending: bool
    words: dict[str, bytes]
    sets: dict[str, HeldSetState]
    dropped: int


class HeldSet:
    """The events of a set of groups that are kept until their edges are known."""

    def __init__(self, bound: BoundPlan, id: int) -> None:
        self.bound, self.id = bound, id
        self.waiting: WaitingSet = empty_set(bound, id)
        self.done = EARLIEST
        """Events before it come too late: the root has closed the rounds that they were in."""
        self.answered = 0
        """The last round."""

    def follow(self, old: HeldSet) -> None:
        """Goes on with what an older plan kept."""
        self.waiting.continue_from(old.waiting)
        self.done, self.answered = old.done, old.answered

    @property
    def count(self) -> int:
        """Events that are kept."""
        return sum(table.num_rows for table in self.waiting.tables)

    def answer(self, word: EdgesWord, number: int, name: str, version: int) -> tuple[MarkNote, int]:
        """What a node has between the edges of a round, and how many events come too late.

        `version` is that of the plan in use.
        """
        early, self.waiting.tables = settled.split(self.waiting.tables, word.until)
        self.done, self.answered = word.until, word.number
        begin = word.begin if number in word.nodes else word.until
        known = [settled.split([table], begin) for table in early]
        late = sum(table.num_rows for some, _ in known for table in some)
        rest = [table for _, some in known for table in some]
        count = sum(table.num_rows for table in rest)
        slices: dict[int, GroupSlices] = {}
        sent: list[bytes] = []
        if count and word.send:
            held, self.waiting.tables = self.waiting.tables, rest
            sent.append(packed(self.waiting.save(0), events_schema(self.bound, self.id)))
            self.waiting.tables = held
        elif count:
            slices = self._slices(word, settled.ordered(self._with_edges(word, rest)))
        if not self.waiting.tables:
            self.waiting = empty_set(self.bound, self.id)  # keys that nobody refers to go
        note = MarkNote([number], name, word.number, version, slices, sent, count, count + late, 0)
        return note, late

    def _with_edges(self, word: EdgesWord, tables: list[pa.Table]) -> list[pa.Table]:
        """Events with the numbers of the edges that they stand behind."""
        edges = MarkEdges(self._codes(word)[word.key], word.time, word.arrival, word.cuts)
        made = []
        for table in tables:
            key, time, arrival = (
                codec.ints(table, column) for column in (settled.KEY, settled.TIME, settled.ARRIVAL)
            )
            made.append(
                table.append_column(_EDGE, pa.array(edge_before(edges, key, time, arrival)))
            )
        return made

    def _codes(self, word: EdgesWord) -> Ints:
        """The codes here of the keys that a word names."""
        schema = key_schema(self.waiting.bound)
        nothing = np.zeros(word.distinct, np.int64)
        if not word.distinct or not len(schema):
            return self.waiting.keys.lookup(nothing, [])
        table = unpack(word.keys, schema)
        return self.waiting.keys.lookup(nothing, [codec.whole(table, n) for n in schema.names])

    def _slices(self, word: EdgesWord, events: settled.Ordered) -> dict[int, GroupSlices]:
        """By group: a row for its events of a key behind each edge."""
        made: dict[int, GroupSlices] = {}
        every = SettledEvents(events, self.waiting.keys, False)
        for id, one in self.waiting.bound.groups.items():
            some = every.of(one.group)
            if not len(some):
                continue
            edge = some.ints(_EDGE)
            cuts = np.zeros(len(some), np.bool_)
            cuts[1:] = edge[1:] != edge[:-1]
            rows, heads = settled.cut_rows(some, cuts, one.group, one.operators)
            rows.start = edge[heads]
            rows.end = rows.start + 1
            made[id] = GroupSlices(GroupRows(one, self.waiting.keys).pack(rows), len(some))
        return made


class LeafMarks(HeardWords):
    """Keeps the events of sets of groups whose windows are found by their marks.

    All it does follows from what it is told: `feed`, `hear`, `switch` and `notes`, in their order.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.held: dict[str, HeldSet] = {}
        self.version = 0
        """The version of the plan in use."""
        self.late = 0
        """Events that came too late, since somebody asked."""
        self.dropped = 0
        """Events of sets that a newer plan does not have, since the last note."""

    def switch(self, bound: BoundPlan, groups: dict[str, int]) -> None:
        """Goes on by another version of the plan; the groups are the first of each set."""
        before, self.held = self.held, {}
        for name, id in groups.items():
            self.held[name] = HeldSet(bound, id)
            if name in before:
                self.held[name].follow(before[name])
        gone = (held for name, held in before.items() if name not in self.held)
        self.dropped += sum(held.count for held in gone)

    def feed(self, events: dict[str, pa.Table], frontier: int, ended: bool) -> None:
        """Takes events that are not sent."""
        for name, table in events.items():
            if name in self.held:
                self.held[name].waiting.absorb(table)

    def notes(self) -> pa.Table | None:
        """What there is to say, as a section of a message."""
        self.pending, said = False, []
        for name, told in self.taken(self.held):
            word = wire.load(EdgesWord, told)
            if word.number > self.held[name].answered:
                note, late = self.held[name].answer(word, self.number, name, self.version)
                self.late += late
                note = replace(note, let_go=note.let_go + self.dropped)
                self.dropped = 0
                said.append(wire.dump(note))
        return pa.table({"note": pa.array(said, pa.binary())}) if said else None

    @property
    def speaks(self) -> bool:
        """Whether there is something to say."""
        return any(name in self.held for name in self.words)

    @property
    def left(self) -> int:
        """Events that are kept, of all sets."""
        return sum(held.count for held in self.held.values())

    @property
    def nbytes(self) -> int:
        return sum(held.waiting.nbytes for held in self.held.values())

    @property
    def room(self) -> int:
        """How many bytes more may be kept."""
        return max(HELD - self.nbytes, 0)

    @property
    def empty(self) -> bool:
        """Whether nothing is kept."""
        return not any(held.waiting.tables for held in self.held.values())

    def capacities(self) -> list[Capacity]:
        then = "events climb as they are"
        return [Capacity("events kept between marks", self.nbytes, HELD, "bytes", then)]

    def to_bytes(self) -> bytes:
        sets = {
            name: HeldSetState(
                codec.to_ipc(held.waiting.save(0)) if held.waiting.tables else None,
                held.done,
                held.answered,
            )
            for name, held in self.held.items()
        }
        return wire.dump(LeafMarksState(self.heard, self.pending, self.words, sets, self.dropped))

    def load(self, data: bytes) -> None:
        """Goes on from saved state."""
        found = wire.load(LeafMarksState, data)
        self.heard, self.pending, self.words = found.heard, found.pending, found.words
        self.dropped = found.dropped
        for name, state in found.sets.items():
            if name in self.held:
                held = self.held[name]
                held.done, held.answered = state.done, state.answered
                if state.events is not None:
                    held.waiting.absorb(codec.from_ipc(state.events))
