"""Puts the slices between edges together to windows of one key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from catchment.counting.edges import RankEdges
from catchment.counting.fold import Fold
from catchment.counting.message import SlicePiece


class FullWindow(Struct, frozen=True, array_like=True):
    """A count window that is full."""

    kind: int
    """Its place among the queries."""
    number: int
    partial: bytes
    """Empty where nothing is known of any event."""
    exact: bool
    missing: tuple[int, ...]
    """Nodes that were given up, whose events may lack."""


class Slice(Struct, frozen=True, array_like=True):
    """What all nodes have between two edges."""

    low: int
    high: int
    partial: bytes
    exact: bool
    missing: tuple[int, ...]


class SliceList:
    """Slices that windows still need; every window is a range of them."""

    def __init__(self, edges: RankEdges, fold: Fold) -> None:
        self.edges, self.fold = edges, fold
        self.slices: list[Slice] = []

    def merged(self, parts: Sequence[tuple[SlicePiece, int, int]]) -> bytes:
        """One partial of pieces, each from a position to another."""
        lift = self.fold.lift_part
        return self._merge(
            lift(piece, low - piece.low, high - piece.low) if piece.raw else piece.data
            for piece, low, high in parts
        )

    def _merge(self, partials: Iterable[bytes]) -> bytes:
        found = [partial for partial in partials if partial]
        return self.fold.merge(found) if len(found) > 1 else b"".join(found)

    def add(self, slice: Slice) -> list[FullWindow]:
        """The windows that are full with one more slice."""
        self.slices.append(slice)
        full = []
        for kind, number, low, high in self.edges.full(slice.low, slice.high):
            parts = [part for part in self.slices if part.low >= low and part.high <= high]
            partial = self._merge(part.partial for part in parts)
            missing = tuple(sorted({node for part in parts for node in part.missing}))
            exact = all(part.exact for part in parts)
            full.append(FullWindow(kind, number, partial, exact, missing))
        needed = self.edges.needed(slice.high)
        self.slices = [part for part in self.slices if part.high > needed]
        return full
