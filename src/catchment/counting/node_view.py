"""What the root knows of one node, for one key.

What the node says goes in. Two things come out: how many of its events are before which places, and
the pieces that cover its events between two positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from catchment.counting.message import SlicePiece, Up
from catchment.counting.place import Place, at
from catchment.counting.rank_bounds import Points
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask

EARLIEST = -(2**62)
_Fact = tuple[Ints, Ints, Ints, Ints, Ints]
"""Times, nodes and arrivals of places; events before each, and just after it."""


class NodeView:
    """A node as the root sees it. Facts stay true as long as the node's life lasts."""

    def __init__(self, node: int, life: int = 0, position: int = 0, frontier: int = EARLIEST):
        self.node, self.life = node, life
        self.frontier, self.settled = frontier, position
        self.passed = self.asked = self.zoned = self.late = 0
        self.heard = 0
        self.gone = self.left = False
        self.fresh = life > 0
        """Whether it has to be told that it begins anew."""
        self.cuts: dict[int, int] = {}
        """Its position at each edge, from the last complete one on."""
        self.pieces: dict[tuple[int, int], SlicePiece] = {}
        self.counts: dict[Place, int] = {}
        self.samples: list[_Fact] = []

    def take(self, up: Up) -> bool:
        """Takes what the node says; whether it is of this life."""
        if up.life != self.life or self.gone:
            return False
        self.fresh = False
        self.settled, self.frontier = max(self.settled, up.settled), max(self.frontier, up.frontier)
        self.passed, self.late = max(self.passed, up.passed), max(self.late, up.late)
        self.asked, self.zoned = max(self.asked, up.ask), max(self.zoned, up.zone)
        self.counts.update(up.counts)
        self.counts[at(up.frontier)] = up.settled
        if len(up.samples.position):
            self.samples.append(
                self._facts(up.samples.time, up.samples.arrival, up.samples.position)
            )
        for piece in up.pieces:
            known = self.pieces.get((piece.low, piece.high))
            if known is None or (piece.raw and not known.raw):
                self.pieces[piece.low, piece.high] = piece
        return True

    def _facts(self, time: Ints, arrival: Ints, count: Ints) -> _Fact:
        return time, np.full(len(time), self.node, np.int64), arrival, count, count + 1

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
        time, node, arrival, count, after = (column[later] for column in columns)
        order = np.lexsort((count, arrival, node, time))
        return Points(
            time[order], node[order], arrival[order], count[order], after[order], self.gone
        )

    def _of(self, piece: SlicePiece) -> list[_Fact]:
        if piece.raw:
            counts = np.arange(piece.low, piece.high, dtype=np.int64)
        else:
            counts = np.array([piece.low, piece.high - 1], np.int64)
        end = (int(piece.times[-1]), self.node, int(piece.arrivals[-1]) + 1)
        return [self._facts(piece.times, piece.arrivals, counts), _single(end, piece.high)]

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
        self.asked = self.zoned = 0

    def to_plain(self) -> list[Any]:
        return [
            self.node,
            self.life,
            self.frontier,
            self.settled,
            self.passed,
            self.asked,
            self.zoned,
            self.late,
            self.heard,
            self.gone,
            self.left,
            self.fresh,
            self.cuts,
            [piece.to_plain() for piece in self.pieces.values()],
            self.counts,
            [list(fact) for fact in self.samples],
        ]

    @classmethod
    def from_plain(cls, data: list[Any]) -> NodeView:
        track = cls(data[0], data[1], data[3], data[2])
        (
            track.passed,
            track.asked,
            track.zoned,
            track.late,
            track.heard,
            track.gone,
            track.left,
            track.fresh,
            track.cuts,
        ) = data[4:13]
        pieces = [SlicePiece(*piece) for piece in data[13]]
        track.pieces = {(piece.low, piece.high): piece for piece in pieces}
        track.counts, track.samples = data[14], [tuple(fact) for fact in data[15]]
        return track


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
    same = time == place[0]
    behind = (node > place[1]) | (node == place[1]) & (arrival > place[2])
    later: Mask = (time > place[0]) | same & behind
    return later
