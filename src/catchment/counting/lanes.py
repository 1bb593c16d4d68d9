"""Count windows by key: one lane per key, and one message for all lanes that have something to say.

A lane is the same two machines as without keys: its ranks are among the events of its key.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from catchment.counting import wire
from catchment.counting.fold import Fold
from catchment.counting.local import LocalCounter
from catchment.counting.message import Columns, Down, Up
from catchment.counting.root import RootCounter
from catchment.counting.saving import restore, save
from catchment.counting.windows import Window
from catchment.model.window import Counted
from catchment.operators.ragged import Ints

Key = Any
"""A number, a text, or a tuple of such."""


class LocalLanes:
    """A node's events by key."""

    def __init__(self, node: int, windows: Sequence[Counted], fold: Fold) -> None:
        self.node, self.windows, self.fold = node, windows, fold
        self.lanes: dict[Key, LocalCounter] = {}
        self.frontier: int | None = None

    def lane(self, key: Hashable) -> LocalCounter:
        if key not in self.lanes:
            made = self.lanes[key] = LocalCounter(self.node, self.windows, self.fold)
            if self.frontier is not None:
                made.advance(self.frontier)
        return self.lanes[key]

    def push(
        self, keys: Sequence[Key], codes: Ints, times: Ints, arrivals: Ints, data: Columns
    ) -> None:
        """Takes events; `codes` say which of `keys` each has."""
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(keys) + 1))
        for place, key in enumerate(keys):
            rows = order[bounds[place] : bounds[place + 1]]
            if len(rows):
                columns = {name: column[rows] for name, column in data.items()}
                self.lane(key).push(times[rows], arrivals[rows], columns)

    def advance(self, frontier: int) -> None:
        self.frontier = frontier
        for lane in self.lanes.values():
            lane.advance(frontier)

    def hear(self, body: bytes) -> None:
        for key, said in wire.load(body):
            self.lane(key).hear(Down.from_bytes(said))

    def step(self) -> bytes | None:
        said = [(key, up.to_bytes()) for key, lane in self.lanes.items() if (up := lane.step())]
        return wire.dump(said) if said else None

    @property
    def events(self) -> int:
        return sum(lane.events for lane in self.lanes.values())

    def to_bytes(self) -> bytes:
        lanes = [(key, lane.to_bytes()) for key, lane in self.lanes.items()]
        return wire.dump([self.node, self.frontier, lanes])

    @classmethod
    def from_bytes(cls, data: bytes, windows: Sequence[Counted], fold: Fold) -> LocalLanes:
        node, frontier, lanes = wire.load(data)
        made = cls(node, windows, fold)
        made.frontier = frontier
        made.lanes = {k: LocalCounter.from_bytes(lane, windows, fold) for k, lane in lanes}
        return made


class RootLanes:
    """The root of count windows by key; a lane begins when its key is first heard of."""

    def __init__(
        self,
        nodes: Iterable[int],
        windows: Sequence[Counted],
        fold: Fold,
        scheme: str = "auto",
        **options: Any,
    ) -> None:
        self.nodes = list(nodes)
        self.gone: set[int] = set()
        self.windows, self.fold, self.scheme, self.options = windows, fold, scheme, options
        self.lanes: dict[Key, RootCounter] = {}

    def _lane(self, key: Key) -> RootCounter:
        if key not in self.lanes:
            lane = RootCounter(self.nodes, self.windows, self.fold, self.scheme, **self.options)
            for node in self.gone:
                lane.leave(node)
            self.lanes[key] = lane
        return self.lanes[key]

    def receive(self, body: bytes, now: int = 0) -> None:
        for key, said in wire.load(body):
            self._lane(key).receive(Up.from_bytes(said), now, len(said))

    def step(self, now: int = 0) -> bytes | None:
        """What is to be said to all nodes, of all lanes."""
        said = [(k, down.to_bytes()) for k, lane in self.lanes.items() if (down := lane.step(now))]
        return wire.dump(said) if said else None

    def join(self, node: int, now: int = 0) -> None:
        self.nodes.append(node)
        for lane in self.lanes.values():
            lane.join(node, now)

    def leave(self, node: int) -> None:
        self.gone.add(node)
        for lane in self.lanes.values():
            lane.leave(node)

    def take(self) -> Iterator[tuple[Key, Window]]:
        """The windows that have become full since the last call, and their keys."""
        for key, lane in self.lanes.items():
            yield from ((key, window) for window in lane.take())

    def to_bytes(self) -> bytes:
        lanes = [(key, save(lane)) for key, lane in self.lanes.items()]
        return wire.dump([self.nodes, sorted(self.gone), lanes])

    def load(self, data: bytes) -> None:
        """Goes on from saved state."""
        self.nodes, gone, lanes = wire.load(data)
        self.gone = set(gone)
        self.lanes = {key: restore(lane, self.windows, self.fold) for key, lane in lanes}
