"""How the events between two cuts become a partial: a protocol, and sums as its simplest form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from catchment.counting.message import SlicePiece
from catchment.counting.wire import Columns, dump, load


class Fold(ABC):
    """Events to a partial, partials to one. Partials are bytes, as are events that travel."""

    @abstractmethod
    def lift(self, events: Columns) -> bytes: ...

    @abstractmethod
    def merge(self, partials: Sequence[bytes]) -> bytes: ...

    def raw(self, events: Columns) -> bytes:
        """Events as they travel."""
        return dump(events)

    def lift_part(self, piece: SlicePiece, low: int, high: int) -> bytes:
        """Lifts events of a piece that travelled, from one of its rows to another."""
        events = load(Columns, piece.data)
        return self.lift({name: column[low:high] for name, column in events.items()})


class Sums(Fold):
    """The sum of a column. (How many events there are, positions tell.)

    >>> import numpy as np
    >>> Sums.total(Sums("v").lift({"v": np.array([1.5, 2.0])}))
    3.5
    """

    def __init__(self, column: str) -> None:
        self.column = column

    def lift(self, events: Columns) -> bytes:
        return dump(float(events[self.column].sum()))

    def merge(self, partials: Sequence[bytes]) -> bytes:
        return dump(sum(map(self.total, partials)))

    @staticmethod
    def total(partial: bytes) -> float:
        return load(float, partial)
