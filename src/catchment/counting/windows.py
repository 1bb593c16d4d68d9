"""Puts the slices between edges together to windows of one key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from catchment.counting.edges import RankEdges
from catchment.counting.fold import Fold
from catchment.counting.message import Columns, SlicePiece


@dataclass
class FullWindow:
    """A count window that is full."""

    kind: int
    """Its place among the queries."""
    number: int
    partial: Columns
    exact: bool
    missing: tuple[int, ...]
    """Nodes that were given up, whose events may lack."""


@dataclass
class Slice:
    """What all nodes have between two edges."""

    low: int
    high: int
    partial: Columns
    exact: bool
    missing: tuple[int, ...]

    def to_plain(self) -> list[Any]:
        return [self.low, self.high, self.partial, self.exact, self.missing]


class Shelf:
    """Slices that windows still need; every window is a range of them."""

    def __init__(self, edges: RankEdges, fold: Fold) -> None:
        self.edges, self.fold = edges, fold
        self.slices: list[Slice] = []

    def merged(self, parts: Sequence[tuple[SlicePiece, int, int]]) -> Columns:
        """One partial of pieces, each from a position to another."""
        partials = []
        for piece, low, high in parts:
            if piece.raw:
                events = self.fold.part(piece, low - piece.low, high - piece.low)
                partials.append(self.fold.lift(events))
            else:
                partials.append(piece.data)
        return self.fold.merge(partials) if partials else {}

    def add(self, slice: Slice) -> list[FullWindow]:
        """The windows that are full with one more slice."""
        self.slices.append(slice)
        full = []
        for kind, number, low, high in self.edges.full(slice.low, slice.high):
            parts = [part for part in self.slices if part.low >= low and part.high <= high]
            partial = self.fold.merge([part.partial for part in parts])
            missing = tuple(sorted({node for part in parts for node in part.missing}))
            exact = all(part.exact for part in parts)
            full.append(FullWindow(kind, number, partial, exact, missing))
        needed = self.edges.needed(slice.high)
        self.slices = [part for part in self.slices if part.high > needed]
        return full
