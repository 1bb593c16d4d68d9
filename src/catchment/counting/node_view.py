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
    answered: set[int] = set()
    """Orders that it has answered."""
    late: int = 0
    heard: int = 0
    gone: bool = False
    left: bool = False
    fresh: bool = False
    """Whether it has to be told that it begins anew."""
    wrong: str = ""
    """What was not right, the last time."""
    refused: bool = False
    """Whether it was given up because something was not right."""
    since: Place = at(EARLIEST)
    """What is before it is over: of places there, the node has no true count any more."""
    lacks: int = 0
    """Its events up to this edge may lack, also where it is waited for again."""
    cuts: dict[int, int] = {}
    """Its position at each edge, from the last complete one on."""
    pieces: dict[tuple[int, int], SlicePiece] = {}
    counts: dict[Place, int] = {}
    samples: list[_Fact] = []

    def take(self, up: Up) -> bool:
        """Takes what the node says; whether it is of this life."""
        if up.life != self.life or self.gone:
            if self.refused:
                self.late = max(self.late, up.late)
            return False
        self.fresh = False
        self.settled, self.frontier = max(self.settled, up.settled), max(self.frontier, up.frontier)
        self.passed, self.late = max(self.passed, up.passed), max(self.late, up.late)
        self.answered |= {*up.answered}
        for place, count in up.counts.items():
            self.learn(place, count)
        self.learn(at(up.frontier), up.settled)
        for samples in () if up.answers is None else up.answers.samples.values():
            if len(samples.times):
                self.samples.append(self._facts(samples))
        for piece in up.pieces:
            known = self.pieces.get((piece.low, piece.high))
            if known is None or (piece.raw and not known.raw):
                self.pieces[piece.low, piece.high] = piece
        return True

    def learn(self, place: Place, count: int) -> None:
        """Takes how many of its events are before a place."""
        if place <= self.since:
            return
        known = self.counts.setdefault(place, count)
        if known != count:
            self.wrong = f"it counts {count} events where it had counted {known}"

    def _facts(self, told: SlicePiece | Samples) -> _Fact:
        nodes, counts = np.full(len(told.times), self.node, np.int64), told.positions
        return told.times, nodes, told.arrivals, counts, counts + 1

    def points(self, edge: int, place: Place) -> Points:
        """How many of its events are before which places, from an edge on."""
        cut = self.cuts[edge]
        single = [(*place, cut, cut)]
        single += [(*where, count, count) for where, count in self.counts.items()]
        if not self.gone:
            single.append((*at(self.frontier), self.settled, self.settled))
        facts = list(self.samples)
        for piece in self.pieces.values():
            if piece.high > cut:
                facts.append(self._facts(piece))
                last = Place(int(piece.times[-1]), self.node, int(piece.arrivals[-1]))
                single.append((*after(last), piece.high, piece.high))
        facts.insert(0, tuple(np.array(single, np.int64).T))
        columns = [np.concatenate(column) for column in zip(*facts, strict=True)]
        later = _later(columns[0], columns[1], columns[2], place)
        later[0] = True
        time, node, arrival, count, beyond = (column[later] for column in columns)
        order = np.lexsort((count, arrival, node, time))
        points = Points(
            time[order], node[order], arrival[order], count[order], beyond[order], self.gone
        )
        if not self.gone and _falls(points):
            self.wrong = "what it counts does not rise from place to place"
        return points

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
        self.since = max(self.since, place)
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
        if self.refused:
            self.settled, self.pieces = cut, {}
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
        self.gone, self.fresh, self.refused = False, True, False
        self.life += 1
        self.frontier, self.since = time, at(time)
        self.answered = set()


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


def _falls(points: Points) -> bool:
    """Whether there are fewer events before a place than before one that is earlier."""
    time, node, arrival, before, after, _ = points
    here = (time[1:] == time[:-1]) & (node[1:] == node[:-1]) & (arrival[1:] == arrival[:-1])
    reached = np.maximum.accumulate(after)[:-1]
    return bool(np.where(here, before[1:] != before[:-1], before[1:] < reached).any())


def _later(time: Ints, node: Ints, arrival: Ints, place: Place) -> Mask:
    same = time == place.time
    behind = (node > place.node) | (node == place.node) & (arrival > place.arrival)
    later: Mask = (time > place.time) | same & behind
    return later
