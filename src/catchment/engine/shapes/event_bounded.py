"""What shapes have in common whose windows are bounded by events: marks, chains and programs.

Each type has a state with one row for each open window. Settled events are first assigned to
windows, which says where they must be cut; the rows that they were cut to are then merged into the
open windows, and those that ended come out. How events are assigned and merged is each shape's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from catchment.engine.complete import Complete, number_alike, of_type
from catchment.engine.rows import Rows, fit
from catchment.engine.settled import Ordered
from catchment.engine.shapes.base import Change, Followed, ShapeState
from catchment.model.window import Window
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST


class OpenWindows(Protocol):
    """The open windows of one type, as a named tuple."""

    @property
    def window(self) -> Window: ...
    @property
    def open(self) -> Rows: ...
    def _replace(self, *, open: Rows = ..., since: int | None = ...) -> Self: ...


class Assignment(Protocol):
    """Which window each event is in; -1: none."""

    @property
    def member(self) -> Ints: ...


def boundaries(found: Assignment) -> Mask:
    """Where the window that events are in changes: rows must be cut there."""
    new = np.zeros(len(found.member), np.bool_)
    new[1:] = found.member[1:] != found.member[:-1]
    return new


TypeState = TypeVar("TypeState", bound=OpenWindows)
TypeAssignment = TypeVar("TypeAssignment", bound=Assignment)


class EventBoundedState(ShapeState, Generic[TypeState, TypeAssignment]):
    """The open windows of each type."""

    opened: list[TypeState]

    @abstractmethod
    def assign(self, state: TypeState, events: Ordered) -> TypeAssignment:
        """Follows the windows of every key through its events."""

    @abstractmethod
    def step(
        self, state: TypeState, events: Ordered, found: TypeAssignment, rows: Rows, heads: Ints
    ) -> tuple[TypeState, Rows]:
        """Takes in the rows that the events were cut to; gives the windows that ended."""

    def follow(self, events: Ordered) -> Iterable[Followed]:
        return [self._followed(n, events) for n in range(len(self.opened))]

    def _followed(self, n: int, events: Ordered) -> Followed:
        found = self.assign(self.opened[n], events)

        def settle(rows: Rows, heads: Ints, keep: bool) -> list[Complete]:
            after, done = self.step(self.opened[n], events, found, rows, heads)
            if keep:
                self.opened[n] = after
            return [self.given(n, done)]

        return Followed(boundaries(found), settle)

    def given(self, n: int, done: Rows) -> Complete:
        """Windows of a type that ended, as results."""
        ended = of_type(self.places[n], done, done.start, done.end)
        if self.opened[n].window.bounds_repeat:
            # All events of one instant settle together, so that equals are numbered together.
            ended.index = number_alike(done.key, done.start, done.end)
        return ended

    def ended(self, place: int, until: int, frontier: int, waiting: bool) -> bool:
        state = self.opened[self.places.index(place)]
        return not waiting and not (state.open.start <= until).any()

    def begin(self, frontier: int, newest: int) -> None:
        if newest > EARLIEST:
            self.opened = [state._replace(since=newest) for state in self.opened]

    def continue_from(self, old: Self | None, change: Change) -> None:
        was = {} if old is None else {state.window: state for state in old.opened}
        for n, state in enumerate(self.opened):
            known = was.get(state.window)
            self.opened[n] = (
                state._replace(since=change.since)
                if known is None
                else known._replace(open=fit(known.open, self.operators))
            )

    def tables(self) -> list[Rows]:
        return [state.open for state in self.opened]
