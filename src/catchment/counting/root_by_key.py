"""The root's part in count windows, for all keys.

The notes in messages go in. Orders for all nodes come out, and windows that are full, as partials
of their group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from catchment.counting import wire
from catchment.counting.message import Up
from catchment.counting.orders import Key, Orders, room_for_lane
from catchment.counting.root import RootCounter
from catchment.counting.slice_between_edges import SliceBetweenEdges, full_of
from catchment.counting.status import CountStatus, status
from catchment.counting.windows import FullWindow
from catchment.engine.bound import BoundPlan
from catchment.engine.partials import Partials
from catchment.engine.shapes.counted import events_not_full
from catchment.planner.group import counts_of


class RootByKey:
    """A root for every key of the groups that are asked about.

    What it asks, and which windows it finds full, follow from the notes that it has taken alone.
    """

    def __init__(
        self, scheme: str, bound: BoundPlan, groups: Mapping[int, str], saved: bytes = b""
    ) -> None:
        self.scheme = scheme
        self.groups: dict[str, int] = {}
        """The id of each group in the plan, by the group's name."""
        self._lifts: dict[str, SliceBetweenEdges] = {}
        self.lanes: dict[tuple[str, Key], RootCounter] = {}
        self.orders = Orders()
        self.ended: set[int] = set()
        self.nodes: list[int] = []
        self._late = 0
        self.away: set[int] = set()
        self.uncounted: list[tuple[int, Key, FullWindow]] = []
        """Windows of the last step that may lack events of nodes that were given up: group, key,
        and the window, which says whose."""
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
        self.lanes = {at: lane for at, lane in self.lanes.items() if at[0] in self.groups}
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

    def _lane(self, group: str, key: Key) -> RootCounter:
        if (group, key) not in self.lanes:
            room_for_lane(len(self.lanes))
            lift = self._lifts[group]
            lane = RootCounter(
                self.nodes, counts_of(lift.bound.group), lift, self.scheme, returns=False
            )
            for node in self.away:
                lane.give_up(node)
            self.lanes[group, key] = lane
        return self.lanes[group, key]

    def take(self, notes: pa.Table) -> None:
        """Takes the notes of a message."""
        for note in notes.column("note"):
            node, ended, said = wire.load(note.as_py())
            if node not in self.nodes:
                continue
            self.ended = self.ended | {node} if ended else self.ended - {node}
            for group, key, body in said:
                if group in self.groups:
                    self._lane(group, key).receive(Up.from_bytes(body), nbytes=len(body))

    def step(self, missing: Iterable[int]) -> Partials:
        """Finds edges; gives the windows that are full now. What must be asked goes into the
        orders."""
        away, self.uncounted = set(missing), []
        for lane in self.lanes.values():
            for node in away - self.away:
                lane.give_up(node)
            for node in self.away - away:
                lane.back(node)
        self.away = away
        words, full = [], []
        for (group, key), lane in self.lanes.items():
            down = lane.step()
            if down is not None:
                words.append((group, key, down.to_bytes()))
            # Where all that had events were given up, there may be nothing to tell of a window.
            if windows := [window for window in lane.take() if window.partial]:
                full.append((self.groups[group], self._full(group, key, windows)))
        here = set(self.nodes) - self.away
        over = here <= self.ended and all(lane.over for lane in self.lanes.values())
        self.orders.say(words, over and bool(here))
        ids = sorted({id for id, _ in full})
        return Partials({id: pa.concat_tables([t for g, t in full if g == id]) for id in ids})

    def _full(self, group: str, key: Key, windows: list[FullWindow]) -> pa.Table:
        id, lift = self.groups[group], self._lifts[group]
        self.uncounted += [(id, key, window) for window in windows if window.missing]
        return full_of(lift, key, windows)

    def newly_late(self) -> int:
        """Events of all nodes that came too late, since the last call."""
        late = self._all_late
        new, self._late = late - self._late, late
        return new

    @property
    def _all_late(self) -> int:
        return sum(t.late for lane in self.lanes.values() for t in lane.tracks.values())

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
            f"{group} {' '.join(map(str, key[1:]))}".strip(): status(lane)
            for (group, key), lane in list(self.lanes.items())[:20]
        }

    def to_bytes(self) -> bytes:
        lanes = [(group, key, lane.to_bytes()) for (group, key), lane in self.lanes.items()]
        plain = [
            self.orders.to_plain(),
            sorted(self.ended),
            self.nodes,
            sorted(self.away),
            self._late,
            lanes,
        ]
        return wire.dump(plain)

    def _restore(self, saved: bytes) -> None:
        orders, ended, self.nodes, away, self._late, lanes = wire.load(saved)
        self.orders = Orders.from_plain(orders)
        self.orders.keep(self.groups)
        self.ended, self.away = set(ended), set(away)
        for group, key, body in lanes:
            if group not in self.groups:
                continue
            lift = self._lifts[group]
            self.lanes[group, key] = RootCounter.from_bytes(
                body, counts_of(lift.bound.group), lift, repeat=False
            )
