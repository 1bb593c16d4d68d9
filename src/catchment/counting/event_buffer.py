"""The events of a node that count windows need.

Events go in, in any order. Those before the frontier are settled: each of them has a position in
the node's order that never changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from catchment.counting.message import Columns, no_ints
from catchment.counting.place import Place, before
from catchment.operators.ragged import Ints


class EventBuffer:
    """Settled events in order, from position `base` on, and events that may not have settled."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.base = 0
        self.frontier: int | None = None
        self.late = 0
        self._parts: list[tuple[Ints, Ints, Columns]] = []
        self._waiting: list[tuple[Ints, Ints, Columns]] = []

    @property
    def end(self) -> int:
        """The position after the last settled event."""
        return self.base + sum(len(part[0]) for part in self._parts)

    @property
    def settled(self) -> int:
        return self.end - self.base

    @property
    def waiting(self) -> int:
        return sum(len(part[0]) for part in self._waiting)

    def push(self, times: Ints, arrivals: Ints, data: Columns) -> None:
        """Takes events in any order; those behind the frontier are late, and counted."""
        if self.frontier is not None and len(times) and times.min() < self.frontier:
            kept = np.flatnonzero(times >= self.frontier)
            self.late += len(times) - len(kept)
            times, arrivals, data = _take((times, arrivals, data), kept)
        if len(times):
            self._waiting.append((times, arrivals, data))

    def advance(self, frontier: int) -> None:
        """No event before the frontier will come: those that did are settled."""
        if self.frontier is not None and frontier <= self.frontier:
            return
        self.frontier = frontier
        if not self._waiting:
            return
        times, arrivals, data = _joined(self._waiting)
        order = np.lexsort((arrivals, times)) if not _sorted(times, arrivals) else None
        part = (times, arrivals, data) if order is None else _take((times, arrivals, data), order)
        cut = int(np.searchsorted(part[0], frontier))
        early, later = _cut(part, 0, cut), _cut(part, cut, len(part[0]))
        self._waiting = [later] if len(later[0]) else []
        if cut:
            self._parts.append(early)

    def events(self, low: int, high: int) -> tuple[Ints, Ints, Columns]:
        """The events from a position to another."""
        part = self._whole()
        return _cut(part, low - self.base, high - self.base)

    def before(self, place: Place) -> int:
        """The position of the first event that is not before a place."""
        times, arrivals, _ = self._whole()
        return self.base + before(times, arrivals, self.node, place)

    def place(self, position: int) -> Place:
        times, arrivals, _ = self._whole()
        row = position - self.base
        return (int(times[row]), self.node, int(arrivals[row]))

    def drop(self, position: int) -> None:
        """Forgets events before a position."""
        if position > self.base:
            part = self._whole()
            rest = _cut(part, position - self.base, len(part[0]))
            self._parts = [_copied(rest)] if len(rest[0]) else []
            self.base = position

    def renumber(self, position: int, place: Place) -> None:
        """Goes on from a position with what is not before a place; the rest is late."""
        kept = self.before(place)
        self.late += max(0, kept - position)
        self.drop(kept)
        self.base = position

    def _whole(self) -> tuple[Ints, Ints, Columns]:
        if not self._parts:
            return no_ints(), no_ints(), {}
        if len(self._parts) > 1:
            self._parts = [_joined(self._parts)]
        return self._parts[0]

    def least(self, column: str, default: int) -> int:
        """The least value of a column; the default if there are no events."""
        parts = [part[2][column] for part in self._parts + self._waiting if len(part[0])]
        return min((int(part.min()) for part in parts), default=default)

    def to_plain(self) -> list[Any]:
        waiting = list(_joined(self._waiting)) if self._waiting else None
        return [self.node, self.base, self.frontier, self.late, list(self._whole()), waiting]

    @classmethod
    def from_plain(cls, data: list[Any]) -> EventBuffer:
        held = cls(data[0])
        held.base, held.frontier, held.late = data[1:4]
        held._parts = [tuple(data[4])] if len(data[4][0]) else []
        held._waiting = [] if data[5] is None else [tuple(data[5])]
        return held


def _sorted(times: Ints, arrivals: Ints) -> bool:
    later = times[1:] > times[:-1]
    return bool((later | ((times[1:] == times[:-1]) & (arrivals[1:] > arrivals[:-1]))).all())


def _joined(parts: list[tuple[Ints, Ints, Columns]]) -> tuple[Ints, Ints, Columns]:
    if len(parts) == 1:
        return parts[0]
    times = np.concatenate([part[0] for part in parts])
    arrivals = np.concatenate([part[1] for part in parts])
    data = {name: np.concatenate([part[2][name] for part in parts]) for name in parts[0][2]}
    return times, arrivals, data


def _take(part: tuple[Ints, Ints, Columns], rows: Ints) -> tuple[Ints, Ints, Columns]:
    times, arrivals, data = part
    return times[rows], arrivals[rows], {name: column[rows] for name, column in data.items()}


def _cut(part: tuple[Ints, Ints, Columns], low: int, high: int) -> tuple[Ints, Ints, Columns]:
    times, arrivals, data = part
    return times[low:high], arrivals[low:high], {n: c[low:high] for n, c in data.items()}


def _copied(part: tuple[Ints, Ints, Columns]) -> tuple[Ints, Ints, Columns]:
    times, arrivals, data = part
    return times.copy(), arrivals.copy(), {name: column.copy() for name, column in data.items()}
