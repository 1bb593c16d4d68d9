"""A local node's part in count windows, for all keys.

Events and the root's orders go in; notes for the root come out, and with them the partials between
edges that were found.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
from msgspec import Struct

from catchment.counting import wire
from catchment.counting.local import LocalCounter, LocalState
from catchment.counting.message import Down
from catchment.counting.orders import Key, Lane, lanes_capacity, newer, room_for_lane
from catchment.counting.slice_between_edges import SliceBetweenEdges
from catchment.engine import codec, settled
from catchment.engine.bound import BoundPlan
from catchment.engine.keys import KeyIndex
from catchment.engine.partials import SELECTION, key_columns
from catchment.model.capacity import Capacity
from catchment.operators.ragged import Ints
from catchment.planner.group import counts_of

_AHEAD = 4
"""Events of a lane that are kept before no more are read, in strides between edges."""
_FEW = 10_000
"""Events of a lane that are always kept, however short its strides are."""

_NAME = "events kept for count windows, of one key"
_THEN = "no more is read until the root has found the next edge"


class LaneNote(Struct, frozen=True, array_like=True):
    """What a node says of a lane, as bytes of an `Up`."""

    lane: Lane
    up: bytes


class LeafNote(Struct, frozen=True, array_like=True):
    """What a node says of all its lanes."""

    node: int
    ended: bool
    """Whether no more events will come."""
    said: list[LaneNote]


class LaneState(Struct, frozen=True, array_like=True):
    """What is kept of a lane: the counter, and its events from row `base` on."""

    lane: Lane
    counter: LocalState
    base: int
    events: bytes


class LeafByKeyState(Struct, frozen=True, array_like=True):
    """What a `LeafByKey` must not lose."""

    heard: int
    over: bool
    end_sent: bool
    frontier: int | None
    pending: bool
    ended: bool
    lanes: list[LaneState]
    early: dict[Lane, bytes]


class LeafByKey:
    """A lane for every key of the groups that are asked about.

    All it does follows from what it is told: `feed`, `hear`, `switch` and `notes`, in their order.
    """

    def __init__(self, number: int, bound: BoundPlan) -> None:
        self.number, self.bound = number, bound
        self.groups: dict[str, int] = {}
        """The id of each group in the plan, by the group's name."""
        self.lanes: dict[Lane, tuple[LocalCounter, SliceBetweenEdges]] = {}
        self.early: dict[Lane, bytes] = {}
        """Orders for groups of a newer plan, kept until this node goes over to it."""
        self.heard = 0
        self.over = self.pending = self.ended = self._end_sent = False
        self.frontier: int | None = None

    def switch(self, bound: BoundPlan, groups: dict[str, int]) -> None:
        """Goes on by another version of the plan."""
        if groups.keys() - self.groups.keys():
            self._end_sent = False  # a root that counted nothing has not heard of it
        self.bound, self.groups = bound, groups
        self.lanes = {at: lane for at, lane in self.lanes.items() if at.group in groups}

    @property
    def crowded(self) -> bool:
        """Whether more is kept than the root can need before it has found the next edge."""
        return any(
            lane.buffer.settled > _AHEAD * lane.edges.longest + _FEW
            for lane, _ in self.lanes.values()
        )

    @property
    def blocked(self) -> bool:
        """Whether all that the root has asked was answered, in a scheme whose nodes wait then."""
        return bool(self.lanes) and all(lane.blocked for lane, _ in self.lanes.values())

    def capacities(self) -> list[Capacity]:
        """How many events the fullest lane keeps, and how many lanes there are."""
        found = [
            Capacity(_NAME, lane.buffer.settled, _AHEAD * lane.edges.longest + _FEW, "rows", _THEN)
            for lane, _ in self.lanes.values()
        ]
        nothing = Capacity(_NAME, 0, _FEW, "rows", _THEN)
        fullest = max(found, key=lambda one: one.share, default=nothing)
        return [fullest, lanes_capacity(len(self.lanes))]

    @property
    def done(self) -> bool:
        """Whether nothing will be asked any more of a node that has ended."""
        return self.over or not self.groups

    def _lane(self, at: Lane) -> tuple[LocalCounter, SliceBetweenEdges]:
        if at not in self.lanes:
            room_for_lane(len(self.lanes))
            slices = SliceBetweenEdges(self.bound.groups[self.groups[at.group]])
            lane = LocalCounter(self.number, counts_of(slices.bound.group), slices)
            if self.frontier is not None:
                lane.advance(self.frontier)
            self.lanes[at] = (lane, slices)
        return self.lanes[at]

    def feed(self, events: dict[str, pa.Table], frontier: int, ended: bool) -> None:
        """Takes events, and moves the frontier on."""
        for name in self.groups:
            for at in [lane for lane in self.early if lane.group == name]:
                self._obey(at, self.early.pop(at))
        self.ended = ended
        for name, table in events.items():
            if name in self.groups:
                self._push(name, table)
        self.frontier = frontier
        for lane, _ in self.lanes.values():
            lane.advance(frontier)

    def _push(self, name: str, table: pa.Table) -> None:
        bound = self.bound.groups[self.groups[name]]
        index = KeyIndex()
        codes = index.codes_of(codec.ints(table, SELECTION), key_columns(table, bound.group.by))
        names = [settled.TIME, settled.ARRIVAL, *bound.columns]
        for code, rows in segments(codes):
            lane, slices = self._lane(Lane(name, key_of(index, code)))
            some = table.select(names)
            some = some if len(rows) == len(codes) else some.take(rows)
            first = slices.rows
            slices.tables.append(some)
            numbers = np.arange(first, first + some.num_rows, dtype=np.int64)
            times, arrivals = (codec.ints(some, name) for name in names[:2])
            lane.push(times, arrivals, {"row": numbers})

    def hear(self, data: bytes) -> bool:
        """Takes orders, if they are new; what they ask for is done with the next step."""
        new = newer(data, self.heard)
        if new is None:
            return False
        self.heard, self.over, self.pending = new.number, new.over, True
        for order in new.orders:
            if order.lane.group in self.groups:
                self._obey(order.lane, order.down)
            else:
                self.early[order.lane] = order.down
        return True

    def _obey(self, at: Lane, down: bytes) -> None:
        lane, slices = self._lane(at)
        lane.hear(wire.load(Down, down))
        slices.prune(lane.first("row", slices.rows))

    def notes(self) -> pa.Table | None:
        """What there is to say, as a section of a message."""
        self.pending, ended = False, self.ended
        said = [
            LaneNote(at, wire.dump(up))
            for at, (lane, _) in self.lanes.items()
            if (up := lane.step()) is not None
        ]
        if not said and ended == self._end_sent:
            return None
        self._end_sent = ended
        return pa.table({"note": [wire.dump(LeafNote(self.number, ended, said))]})

    def to_bytes(self) -> bytes:
        lanes = [
            LaneState(at, lane.state(), slices.base, slices.to_bytes())
            for at, (lane, slices) in self.lanes.items()
        ]
        return wire.dump(
            LeafByKeyState(
                self.heard,
                self.over,
                self._end_sent,
                self.frontier,
                self.pending,
                self.ended,
                lanes,
                self.early,
            )
        )

    def load(self, data: bytes) -> None:
        """Goes on from saved state."""
        found = wire.load(LeafByKeyState, data)
        self.heard, self.over, self._end_sent = found.heard, found.over, found.end_sent
        self.frontier, self.pending, self.ended = found.frontier, found.pending, found.ended
        self.early = found.early
        for saved in found.lanes:
            if saved.lane.group not in self.groups:
                continue
            slices = SliceBetweenEdges(self.bound.groups[self.groups[saved.lane.group]])
            slices.load(saved.base, saved.events)
            lane = LocalCounter.restored(saved.counter, counts_of(slices.bound.group), slices)
            self.lanes[saved.lane] = (lane, slices)


def segments(codes: Ints) -> Iterator[tuple[int, Ints]]:
    """Each code that there is, and the rows that have it, in order.

    >>> [(code, rows.tolist()) for code, rows in segments(np.array([1, 0, 1]))]
    [(0, [1]), (1, [0, 2])]
    >>> list(segments(np.array([], np.int64)))
    []
    """
    order = np.argsort(codes, kind="stable")
    heads = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for low, high in pairwise([*heads.tolist(), len(codes)]):
        yield int(codes[order[low]]), order[low:high]


def key_of(keys: KeyIndex, code: int) -> Key:
    """Selection and values of a key, by its code."""
    values = [column[0].as_py() for column in keys.take(np.array([code]))]
    return Key(int(keys.selections[code]), tuple(values))
