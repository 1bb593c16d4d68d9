"""How the events between two cuts become a partial."""

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

    def count(self, partial: bytes) -> int | None:
        """How many events a partial says that it holds; None: it does not say."""
        return None

    def raw(self, events: Columns) -> bytes:
        """Events as they travel."""
        return dump(events)

    def lift_part(self, piece: SlicePiece, low: int, high: int) -> bytes:
        """Lifts events of a piece that travelled, from one of its rows to another."""
        events = load(Columns, piece.data)
        return self.lift({name: column[low:high] for name, column in events.items()})
