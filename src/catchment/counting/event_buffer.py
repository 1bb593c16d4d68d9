"""The events of a node that count windows need.

Events go in, in any order. Those before the frontier are settled: each of them has a position in
the node's order that never changes.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from catchment.counting.message import no_ints
from catchment.counting.place import Place, before
from catchment.counting.wire import Columns
from catchment.operators.ragged import Ints


class BufferedEvents(Struct, frozen=True, array_like=True):
    """Some events: their times, arrivals and other values."""

    times: Ints
    arrivals: Ints
    data: Columns

    def __len__(self) -> int:
        return len(self.times)

    def take(self, rows: Ints | slice) -> BufferedEvents:
        data = {name: column[rows] for name, column in self.data.items()}
        return BufferedEvents(self.times[rows], self.arrivals[rows], data)

    @property
    def in_order(self) -> bool:
        times, arrivals = self.times, self.arrivals
        later = times[1:] > times[:-1]
        return bool((later | ((times[1:] == times[:-1]) & (arrivals[1:] > arrivals[:-1]))).all())


class EventBuffer(Struct, array_like=True):
    """Settled events in order, from position `base` on, and events that may not have settled."""

    node: int
    base: int = 0
    frontier: int | None = None
    late: int = 0
    parts: list[BufferedEvents] = []
    unsettled: list[BufferedEvents] = []

    @property
    def end(self) -> int:
        """The position after the last settled event."""
        return self.base + self.settled

    @property
    def settled(self) -> int:
        return sum(map(len, self.parts))

    @property
    def waiting(self) -> int:
        return sum(map(len, self.unsettled))

    def push(self, times: Ints, arrivals: Ints, data: Columns) -> None:
        """Takes events in any order; those behind the frontier are late, and counted."""
        events = BufferedEvents(times, arrivals, data)
        if self.frontier is not None and len(times) and times.min() < self.frontier:
            events = events.take(np.flatnonzero(times >= self.frontier))
            self.late += len(times) - len(events)
        if len(events):
            self.unsettled.append(events)

    def advance(self, frontier: int) -> None:
        """No event before the frontier will come: those that did are settled."""
        if self.frontier is not None and frontier <= self.frontier:
            return
        self.frontier = frontier
        if not self.unsettled:
            return
        events = _joined(self.unsettled)
        if not events.in_order:
            events = events.take(np.lexsort((events.arrivals, events.times)))
        cut = int(np.searchsorted(events.times, frontier))
        self.unsettled = [events.take(slice(cut, None))] if cut < len(events) else []
        if cut:
            self.parts.append(events.take(slice(0, cut)))

    def events(self, low: int, high: int) -> BufferedEvents:
        """The events from a position to another."""
        return self._whole().take(slice(low - self.base, high - self.base))

    def before(self, place: Place) -> int:
        """The position of the first event that is not before a place."""
        events = self._whole()
        return self.base + before(events.times, events.arrivals, self.node, place)

    def place(self, position: int) -> Place:
        events, row = self._whole(), position - self.base
        return Place(int(events.times[row]), self.node, int(events.arrivals[row]))

    def drop(self, position: int) -> None:
        """Forgets events before a position."""
        if position > self.base:
            # A copy, so that the memory of the others is free.
            rest = self._whole().take(np.arange(position - self.base, self.settled))
            self.parts = [rest] if len(rest) else []
            self.base = position

    def renumber(self, position: int, place: Place) -> None:
        """Goes on from a position with what is not before a place; the rest is late."""
        kept = self.before(place)
        self.late += max(0, kept - position)
        self.drop(kept)
        self.base = position

    def _whole(self) -> BufferedEvents:
        if not self.parts:
            return BufferedEvents(no_ints(), no_ints(), {})
        if len(self.parts) > 1:
            self.parts = [_joined(self.parts)]
        return self.parts[0]

    def least(self, column: str, default: int) -> int:
        """The least value of a column; the default if there are no events."""
        parts = [part.data[column] for part in self.parts + self.unsettled if len(part)]
        return min((int(part.min()) for part in parts), default=default)


def _joined(parts: list[BufferedEvents]) -> BufferedEvents:
    if len(parts) == 1:
        return parts[0]
    return BufferedEvents(
        np.concatenate([part.times for part in parts]),
        np.concatenate([part.arrivals for part in parts]),
        {name: np.concatenate([part.data[name] for part in parts]) for name in parts[0].data},
    )
