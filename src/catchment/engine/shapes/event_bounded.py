"""What shapes have in common whose windows are bounded by events: marks, chains and programs.

Each type has a state with one row for each open window. Settled events are first assigned to
windows, which says where they must be cut; the rows that they were cut to are then merged into the
open windows, and those that ended come out. How events are assigned and merged is each shape's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from catchment.engine.complete import Complete, number_alike, of_type
from catchment.engine.rows import Operators, Rows, concat_rows, fit, merge_rows
from catchment.engine.settled import Ordered
from catchment.engine.shapes.base import Change, Followed, Get, Put, ShapeState
from catchment.model.window import Window
from catchment.operators import grouped
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST


class OpenWindows(Protocol):
    """The open windows of one type, as a named tuple."""

    @property
    def window(self) -> Window: ...
    @property
    def open(self) -> Rows: ...
    @property
    def events(self) -> Ints:
        """How many events each open window holds."""
        ...

    @property
    def since(self) -> int | None:
        """Events up to then were not seen, and are in no window."""
        ...

    def _replace(self, *, open: Rows = ..., since: int | None = ...) -> Self: ...


class Assignment(Protocol):
    """Which window each event is in, and what is known of each window."""

    @property
    def member(self) -> Ints:
        """The number of each event's window; -1: none."""
        ...

    @property
    def key(self) -> Ints: ...
    @property
    def start(self) -> Ints: ...
    @property
    def carried(self) -> Ints:
        """For each open window of before whose key has events, its number here."""
        ...


def boundaries(found: Assignment) -> Mask:
    """Where the window that events are in changes: rows must be cut there."""
    new = np.zeros(len(found.member), np.bool_)
    new[1:] = found.member[1:] != found.member[:-1]
    return new


def merged_into(
    opened: Rows, found: Assignment, rows: Rows, heads: Ints, operators: Operators
) -> tuple[Rows, Ints]:
    """The windows that hold something: a row for each, and its number.

    `opened` are the open windows of before that were carried on; `rows` are what the events were
    cut to, and `heads` the first event of each.
    """
    member = found.member[heads]
    inside = np.flatnonzero(member >= 0)
    pieces = concat_rows([opened, rows.take(inside)], operators)
    owner = np.concatenate([found.carried, member[inside]])
    groups, present = grouped(owner, len(found.key))
    merged = merge_rows(pieces, groups, operators)
    merged.start, merged.key = found.start[present], found.key[present]
    return merged, present


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

    @abstractmethod
    def save_more(self, put: Put, name: str, state: TypeState) -> None:
        """Puts what there is of a type besides the rows of its open windows; `name` is its own."""

    @abstractmethod
    def load_more(self, get: Get, name: str, state: TypeState) -> TypeState:
        """The inverse of `save_more`: the state with that."""

    def certain(self, state: TypeState) -> tuple[Rows, Ints]:
        """The windows that are known to be open, and how many events each holds."""
        return state.open, state.events

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

    def unended(self, newest: int) -> Iterator[tuple[Complete, int]]:
        for place, state in zip(self.places, self.opened, strict=True):
            rows, events = self.certain(state)
            # A key has one open window, and its end is just after its last event: so no other
            # window has its bounds, not even one of no length.
            windows = of_type(place, rows, rows.start, rows.last + 1)
            windows.index = np.zeros(len(rows), np.int64)
            yield windows, int(events.sum())

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

    def save(self, put: Put) -> None:
        for place, state in zip(self.places, self.opened, strict=True):
            put.rows(f"{place}", state.open)
            self.save_more(put, f"{place}", state)
        put.record([state.since for state in self.opened])

    def load(self, get: Get) -> None:
        since_when = get.record(list[int | None])
        self.opened = [
            self.load_more(get, f"{place}", state._replace(open=get.rows(f"{place}"), since=since))
            for place, state, since in zip(self.places, self.opened, since_when, strict=True)
        ]
