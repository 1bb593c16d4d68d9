"""A local node's part in count windows, for all keys.

Events and the root's orders go in; notes for the root come out, and with them the partials between
edges that were found.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.counting import wire
from catchment.counting.local import LocalCounter
from catchment.counting.message import Down
from catchment.counting.orders import Key, room_for_lane
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

Lane = tuple[str, Key]


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
        self.over = self.pending = self.ended = self._told_end = False
        self.frontier: int | None = None

    def switch(self, bound: BoundPlan, groups: dict[str, int]) -> None:
        """Goes on by another version of the plan."""
        self.bound, self.groups = bound, groups
        self.lanes = {at: lane for at, lane in self.lanes.items() if at[0] in groups}

    @property
    def crowded(self) -> bool:
        """Whether more is kept than the root can need before it has found the next edge."""
        return any(
            lane.held.settled > _AHEAD * lane.edges.longest + _FEW
            for lane, _ in self.lanes.values()
        )

    def capacity(self) -> Capacity:
        """How many events the fullest lane keeps."""
        found = [
            Capacity(_NAME, lane.held.settled, _AHEAD * lane.edges.longest + _FEW, "rows", _THEN)
            for lane, _ in self.lanes.values()
        ]
        return max(
            found, key=lambda one: one.share, default=Capacity(_NAME, 0, _FEW, "rows", _THEN)
        )

    @property
    def done(self) -> bool:
        """Whether nothing will be asked any more of a node that has ended."""
        return self.over or not self.groups

    def _lane(self, group: str, key: Key) -> tuple[LocalCounter, SliceBetweenEdges]:
        if (group, key) not in self.lanes:
            room_for_lane(len(self.lanes))
            lift = SliceBetweenEdges(self.bound.groups[self.groups[group]])
            lane = LocalCounter(self.number, counts_of(lift.bound.group), lift)
            if self.frontier is not None:
                lane.advance(self.frontier)
            self.lanes[group, key] = (lane, lift)
        return self.lanes[group, key]

    def feed(self, events: dict[str, pa.Table], frontier: int, ended: bool) -> None:
        """Takes events, and moves the frontier on."""
        for name in self.groups:
            for group, key in [lane for lane in self.early if lane[0] == name]:
                self._obey(group, key, self.early.pop((group, key)))
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
        codes = index.codes_of(codec.ints(table, SELECTION), key_columns(table, bound.group))
        names = [settled.TIME, settled.ARRIVAL, *bound.columns]
        for code, rows in segments(codes):
            lane, lift = self._lane(name, key_of(index, code))
            some = table.select(names)
            some = some if len(rows) == len(codes) else some.take(rows)
            first = lift.rows
            lift.tables.append(some)
            numbers = np.arange(first, first + some.num_rows, dtype=np.int64)
            times, arrivals = (codec.ints(some, name) for name in names[:2])
            lane.push(times, arrivals, {"row": numbers})

    def hear(self, data: bytes) -> bool:
        """Takes orders, if they are new; what they ask for is done with the next step."""
        known, number, over, words = wire.load(data)
        if known > self.heard or number <= self.heard:
            return False
        self.heard, self.over, self.pending = number, over, True
        for group, key, _, body in words:
            if group in self.groups:
                self._obey(group, key, body)
            else:
                self.early[group, key] = body
        return True

    def _obey(self, group: str, key: Key, body: bytes) -> None:
        lane, lift = self._lane(group, key)
        lane.hear(Down.from_bytes(body))
        lift.prune(lane.first("row", lift.rows))

    def notes(self) -> pa.Table | None:
        """What there is to say, as a section of a message."""
        self.pending, ended = False, self.ended
        said = [
            (group, key, up.to_bytes())
            for (group, key), (lane, _) in self.lanes.items()
            if (up := lane.step()) is not None
        ]
        if not said and ended == self._told_end:
            return None
        self._told_end = ended
        return pa.table({"note": [wire.dump([self.number, ended, said])]})

    def to_bytes(self) -> bytes:
        lanes = [
            (group, key, lane.to_bytes(), lift.base, to_ipc(lift.tables))
            for (group, key), (lane, lift) in self.lanes.items()
        ]
        early = [(*lane, body) for lane, body in self.early.items()]
        return wire.dump(
            [
                self.heard,
                self.over,
                self._told_end,
                self.frontier,
                self.pending,
                self.ended,
                lanes,
                early,
            ]
        )

    def load(self, data: bytes) -> None:
        """Goes on from saved state."""
        found: list[Any] = wire.load(data)
        self.heard, self.over, self._told_end, self.frontier, self.pending, self.ended = found[:6]
        for group, key, body, base, tables in found[6]:
            if group not in self.groups:
                continue
            lift = SliceBetweenEdges(self.bound.groups[self.groups[group]])
            lift.base, lift.tables = base, [from_ipc(tables)] if tables else []
            lane = LocalCounter.from_bytes(body, counts_of(lift.bound.group), lift)
            self.lanes[group, key] = (lane, lift)
        self.early = {(group, key): body for group, key, body in found[7]}


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
    return int(keys.selections[code]), *values


def to_ipc(tables: list[pa.Table]) -> bytes:
    if not tables:
        return b""
    sink = pa.BufferOutputStream()
    whole = pa.concat_tables(tables)
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    return bytes(sink.getvalue().to_pybytes())


def from_ipc(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
