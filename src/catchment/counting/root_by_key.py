"""The root's part in count windows, for all keys.

The notes in messages go in. Orders for all nodes come out, and windows that are full, as partials
of their group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from msgspec import Struct

from catchment.counting import wire
from catchment.counting.leaf_by_key import LeafNote
from catchment.counting.message import Up
from catchment.counting.node_view import EARLIEST
from catchment.counting.orders import Key, Lane, Orders, OrdersAfter, room_for_lane
from catchment.counting.root import RootCounter, RootCounterState
from catchment.counting.scheme import OURS, CountOptions
from catchment.counting.slice_between_edges import SliceBetweenEdges, full_of
from catchment.counting.status import CountStatus, status
from catchment.counting.windows import FullWindow
from catchment.engine.bound import BoundPlan
from catchment.engine.partials import Partials
from catchment.engine.shapes.counted import events_not_full
from catchment.planner.group import counts_of


class RootByKeyState(Struct, frozen=True, array_like=True):
    """What a `RootByKey` must not lose."""

    orders: OrdersAfter
    """All of them."""
    ended: set[int]
    nodes: list[int]
    away: set[int]
    late: int
    lanes: list[tuple[Lane, RootCounterState]]


class RootByKey:
    """A root for every key of the groups that are asked about.

    What it asks, and which windows it finds full, follow from the notes that it has taken alone.
    """

    def __init__(
        self,
        scheme: str,
        bound: BoundPlan,
        groups: Mapping[int, str],
        saved: bytes = b"",
        options: CountOptions = OURS,
    ) -> None:
        self.scheme, self.options = scheme, options
        self.groups: dict[str, int] = {}
        """The id of each group in the plan, by the group's name."""
        self._lifts: dict[str, SliceBetweenEdges] = {}
        self.lanes: dict[Lane, RootCounter] = {}
        self.orders = Orders()
        self.ended: set[int] = set()
        self.nodes: list[int] = []
        self._late = 0
        self.away: set[int] = set()
        self.uncounted: list[tuple[int, Key, FullWindow]] = []
        """Windows of the last step that are not exact, or may lack events of nodes that were given
        up: group, key, and the window, which says whose."""
        self.switch(bound, groups)
        if saved:
            self._restore(saved)

    def switch(self, bound: BoundPlan, groups: Mapping[int, str]) -> None:
        """Goes on by another version of the plan."""
        self.groups = {name: id for id, name in groups.items()}
        self._lifts = {
            name: self._lifts.get(name) or SliceBetweenEdges(bound.groups[id])
            for name, id in self.groups.items()
        }
        self.lanes = {at: lane for at, lane in self.lanes.items() if at.group in self.groups}
        self._late = self._all_late
        self.orders.keep(self.groups)

    def follow(self, now: list[int]) -> None:
        """Takes the nodes that read events now: others have left, new ones have joined."""
        for node in set(now) - set(self.nodes):
            for lane in self.lanes.values():
                lane.join(node)
        for node in set(self.nodes) - set(now):
            self.away.discard(node)
            for lane in self.lanes.values():
                lane.leave(node)
        self.nodes = now

    def _lane(self, at: Lane) -> RootCounter:
        if at not in self.lanes:
            room_for_lane(len(self.lanes))
            slices = self._lifts[at.group]
            windows = counts_of(slices.bound.group)
            lane = RootCounter(
                self.nodes, windows, slices, self.scheme, self.options, returns=False
            )
            for node in self.away:
                lane.give_up(node)
            self.lanes[at] = lane
        return self.lanes[at]

    def take(self, notes: pa.Table) -> None:
        """Takes the notes of a message."""
        for body in notes.column("note"):
            note = wire.load(LeafNote, body.as_py())
            if note.node not in self.nodes:
                continue
            self.ended = self.ended | {note.node} if note.ended else self.ended - {note.node}
            for said in note.said:
                if said.lane.group in self.groups:
                    up = wire.load(Up, said.up)
                    self._lane(said.lane).receive(up, nbytes=len(said.up))

    def overdue(self, now: int, timeout: int | None) -> bool:
        """Whether a node has not answered for too long, and is still waited for."""
        return timeout is not None and any(
            lane.overdue(now, timeout) for lane in self.lanes.values()
        )

    @property
    def aside(self) -> dict[int, str]:
        """Nodes that were not right, and why, the last time each."""
        views = (view for lane in self.lanes.values() for view in lane.views.values())
        return {view.node: view.wrong for view in views if view.wrong}

    def step(
        self,
        missing: Iterable[int],
        reach: int = EARLIEST,
        now: int = 0,
        timeout: int | None = None,
    ) -> Partials:
        """Finds edges; gives the windows that are full now. What must be asked goes into the
        orders.

        All nodes that are not missing have passed `reach`, and answer what they are asked of events
        before it within `timeout`.
        """
        away, self.uncounted = set(missing), []
        for lane in self.lanes.values():
            for node in away - self.away:
                lane.give_up(node)
            for node in self.away - away:
                lane.back(node)
        self.away = away
        words, full = [], []
        for at, lane in self.lanes.items():
            if timeout is not None:
                lane.watch(now, reach, timeout)
            down = lane.step()
            if down is not None:
                words.append((at, wire.dump(down)))
            # Where all that had events were given up, there may be nothing to tell of a window.
            if windows := [window for window in lane.take() if window.partial]:
                full.append((self.groups[at.group], self._full(at, windows)))
        here = set(self.nodes) - self.away
        over = here <= self.ended and all(lane.over for lane in self.lanes.values())
        self.orders.say(words, over and bool(here))
        ids = sorted({id for id, _ in full})
        return Partials({id: pa.concat_tables([t for g, t in full if g == id]) for id in ids})

    def _full(self, at: Lane, windows: list[FullWindow]) -> pa.Table:
        id, slices = self.groups[at.group], self._lifts[at.group]
        self.uncounted += [
            (id, at.key, window) for window in windows if window.missing or not window.exact
        ]
        return full_of(slices, at.key, windows)

    def newly_late(self) -> int:
        """Events of all nodes that came too late, since the last call."""
        late = self._all_late
        new, self._late = late - self._late, late
        return new

    @property
    def _all_late(self) -> int:
        return sum(t.late for lane in self.lanes.values() for t in lane.views.values())

    def not_full(self) -> tuple[int, int]:
        """Windows that have begun and are not full, of all lanes, and the events in them."""
        windows = events = 0
        for lane in self.lanes.values():
            for window in lane.edges.windows:
                found = events_not_full(window, np.array([lane.total], np.int64))
                windows, events = windows + found[0], events + found[1]
        return windows, events

    def status(self) -> dict[str, CountStatus]:
        """By lane: the scheme in use, corrections, and whose clocks are wrong."""
        return {
            f"{group} {' '.join(map(str, key.values))}".strip(): status(lane)
            for (group, key), lane in list(self.lanes.items())[:20]
        }

    def to_bytes(self) -> bytes:
        lanes = [(at, lane.state()) for at, lane in self.lanes.items()]
        orders = self.orders.after(0)
        state = RootByKeyState(orders, self.ended, self.nodes, self.away, self._late, lanes)
        return wire.dump(state)

    def _restore(self, saved: bytes) -> None:
        state = wire.load(RootByKeyState, saved)
        self.orders = Orders(state.orders)
        self.orders.keep(self.groups)
        self.ended, self.nodes, self.away = state.ended, state.nodes, state.away
        self._late = state.late
        for at, lane in state.lanes:
            if at.group in self.groups:
                slices = self._lifts[at.group]
                windows = counts_of(slices.bound.group)
                self.lanes[at] = RootCounter.restored(lane, windows, slices, repeat=False)
