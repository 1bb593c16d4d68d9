"""What the root knows of one node, for one key.

What the node says goes in. Two things come out: how many of its events are before which places, and
the pieces that cover its events between two positions.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from catchment.counting.message import Samples, SlicePiece, Up
from catchment.counting.place import Place, after, at
from catchment.counting.rank_bounds import Points
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask

EARLIEST = -(2**62)
_Fact = tuple[Ints, Ints, Ints, Ints, Ints]
"""Times, nodes and arrivals of places; events before each, and just after it."""


class NodeView(Struct, array_like=True):
    """A node as the root sees it. Facts stay true as long as the node's life lasts."""

    node: int
    life: int = 0
    frontier: int = EARLIEST
    settled: int = 0
    passed: int = 0
    answered_ask: int = 0
    answered_zone: int = 0
    late: int = 0
    heard: int = 0
    gone: bool = False
    left: bool = False
    fresh: bool = False
    """Whether it has to be told that it begins anew."""
    cuts: dict[int, int] = {}
    """Its position at each edge, from the last complete one on."""
    pieces: dict[tuple[int, int], SlicePiece] = {}
    counts: dict[Place, int] = {}
    samples: list[_Fact] = []

    def take(self, up: Up) -> bool:
        """Takes what the node says; whether it is of this life."""
        if up.life != self.life or self.gone:
            return False
        self.fresh = False
        self.settled, self.frontier = max(self.settled, up.settled), max(self.frontier, up.frontier)
        self.passed, self.late = max(self.passed, up.passed), max(self.late, up.late)
        self.answered_ask, self.answered_zone = (
            max(self.answered_ask, up.ask),
            max(self.answered_zone, up.zone),
        )
        self.counts.update(up.counts)
        self.counts[at(up.frontier)] = up.settled
        if up.samples is not None and len(up.samples.times):
            self.samples.append(self._facts(up.samples))
        for piece in up.pieces:
            known = self.pieces.get((piece.low, piece.high))
            if known is None or (piece.raw and not known.raw):
                self.pieces[piece.low, piece.high] = piece
        return True

    def _facts(self, told: SlicePiece | Samples) -> _Fact:
        nodes, counts = np.full(len(told.times), self.node, np.int64), told.positions
        return told.times, nodes, told.arrivals, counts, counts + 1

    def points(self, edge: int, place: Place) -> Points:
        """How many of its events are before which places, from an edge on."""
        cut = self.cuts[edge]
        facts: list[_Fact] = [_single(place, cut)]
        for piece in self.pieces.values():
            if piece.high > cut:
                facts += self._of(piece)
        facts += self.samples
        if self.counts:
            rows = np.array([(*p, count) for p, count in self.counts.items()], np.int64).T
            facts.append((rows[0], rows[1], rows[2], rows[3], rows[3]))
        if not self.gone:
            facts.append(_single(at(self.frontier), self.settled))
        columns = [np.concatenate(column) for column in zip(*facts, strict=True)]
        later = _later(columns[0], columns[1], columns[2], place)
        later[0] = True
        time, node, arrival, count, beyond = (column[later] for column in columns)
        order = np.lexsort((count, arrival, node, time))
        return Points(
            time[order], node[order], arrival[order], count[order], beyond[order], self.gone
        )

    def _of(self, piece: SlicePiece) -> list[_Fact]:
        last = Place(int(piece.times[-1]), self.node, int(piece.arrivals[-1]))
        return [self._facts(piece), _single(after(last), piece.high)]

    def tiling(self, low: int, high: int) -> list[tuple[SlicePiece, int, int]] | None:
        """Pieces that cover all from a position to another, each event once; None if some lack."""
        ways = self._ways(low, high)
        return None if high not in ways else _back(ways, low, high)

    def most(self, low: int, high: int) -> list[tuple[SlicePiece, int, int]]:
        """The pieces from a position on, as far as there is no gap."""
        ways = self._ways(low, high)
        return _back(ways, low, max(ways))

    def _ways(self, low: int, high: int) -> dict[int, tuple[SlicePiece, int, int] | None]:
        """Positions that pieces lead to without a gap, and the last piece on the way."""
        ways: dict[int, tuple[SlicePiece, int, int] | None] = {low: None}
        for piece in sorted(self.pieces.values(), key=lambda piece: (piece.low, not piece.raw)):
            for start in [p for p in ways if piece.low <= p < min(piece.high, high)]:
                end = min(piece.high, high)
                if not piece.raw and (start != piece.low or end != piece.high):
                    continue
                ways.setdefault(end, (piece, start, end))
        return ways

    def drop(self, edge: int, place: Place, done: int) -> None:
        """Forgets what is before the last complete edge (`done`), and facts before an edge."""
        cut = self.cuts[done]
        self.pieces = {where: piece for where, piece in self.pieces.items() if piece.high > cut}
        self.cuts = {number: cut for number, cut in self.cuts.items() if number >= done}
        self.counts = {where: count for where, count in self.counts.items() if where > place}
        position = self.cuts[edge]
        self.samples = [fact for fact in self.samples if fact[3][-1] >= position]

    def give_up(self, edge: int) -> None:
        """Gives the node up: of what comes after an edge, only events that have come already
        count."""
        end = self.cuts[edge]
        raw = sorted((p for p in self.pieces.values() if p.raw), key=lambda piece: piece.low)
        for piece in raw:
            if piece.low <= end < piece.high:
                end = piece.high
        self.gone, self.settled = True, end
        self.counts, self.samples = {}, []
        cut = self.cuts[edge]
        self.pieces = {
            where: piece
            for where, piece in self.pieces.items()
            if piece.high <= cut or (piece.raw and piece.high <= end)
        }

    @property
    def newest(self) -> int:
        """The time of its last event that is here."""
        return max((int(piece.times[-1]) for piece in self.pieces.values()), default=EARLIEST)

    def begin(self, time: int) -> None:
        """Is waited for again, from a time on."""
        self.gone, self.fresh = False, True
        self.life += 1
        self.frontier = time
        self.answered_ask = self.answered_zone = 0


def _back(
    ways: dict[int, tuple[SlicePiece, int, int] | None], low: int, high: int
) -> list[tuple[SlicePiece, int, int]]:
    found = []
    while high != low:
        step = ways[high]
        assert step is not None
        found.append(step)
        high = step[1]
    return found


def _single(place: Place, count: int) -> _Fact:
    time, node, arrival = place
    return tuple(np.array([value]) for value in (time, node, arrival, count, count))  # type: ignore[return-value]


def _later(time: Ints, node: Ints, arrival: Ints, place: Place) -> Mask:
    same = time == place.time
    behind = (node > place.node) | (node == place.node) & (arrival > place.arrival)
    later: Mask = (time > place.time) | same & behind
    return later
