"""How the events between two cuts become a partial: a protocol, and sums as its simplest form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from catchment.counting.message import Columns, SlicePiece


class Fold(ABC):
    """Events to a partial, partials to one."""

    @abstractmethod
    def lift(self, events: Columns) -> Columns: ...

    @abstractmethod
    def merge(self, partials: Sequence[Columns]) -> Columns: ...

    def raw(self, events: Columns) -> Columns:
        """Events as they travel."""
        return events

    def part(self, piece: SlicePiece, low: int, high: int) -> Columns:
        """Events of a piece that travelled, from one of its rows to another."""
        return {name: column[low:high] for name, column in piece.data.items()}


class Sums(Fold):
    """The sum of a column. (How many events there are, positions tell.)

    >>> Sums("v").lift({"v": np.array([1.5, 2.0])})
    {'total': array([3.5])}
    """

    def __init__(self, column: str) -> None:
        self.column = column

    def lift(self, events: Columns) -> Columns:
        return {"total": np.array([events[self.column].sum()])}

    def merge(self, partials: Sequence[Columns]) -> Columns:
        return {"total": np.array([sum(float(p["total"][0]) for p in partials)])}
