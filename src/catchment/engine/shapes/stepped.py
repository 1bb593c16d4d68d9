"""Windows of one's own: a program says of each settled event what it does to those of its key.

The state is one row for each open window, and for each key what the program returned for its last
event. The program is called once for each event, in order of key, time and arrival; so such windows
cost a call of Python for each event, where those of other shapes cost none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.engine import codec
from catchment.engine.bound_group import BoundGroup
from catchment.engine.complete import Complete
from catchment.engine.rows import Rows, concat_rows, no_rows
from catchment.engine.settled import Ordered
from catchment.engine.shapes.base import Get, Moment, Put
from catchment.engine.shapes.event_bounded import EventBoundedState, merged_into
from catchment.errors import QueryError, StateError
from catchment.model import records
from catchment.model.window import MOVES, Stepped
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST, LATEST

_STATE_BYTES = 200
"""What the state of a key takes in memory, roughly."""


class OpenStepped(NamedTuple):
    """The windows of one type that are open, and what its program knows of each key."""

    window: Stepped
    open: Rows
    events: Ints
    """How many events each open window holds."""
    states: dict[int, Any]
    """By key; one that is None is not here."""
    since: int | None = None
    """Events up to then were not seen, and are in no window."""


@dataclass
class _Walk:
    """Goes through the events, and notes the windows that it meets."""

    window: Stepped
    key: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    closed: list[bool] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    open: int = -1
    """The number of the window that is open, of the key at hand."""

    def begin(self, key: int, time: int, events: int = 0) -> None:
        self.open = len(self.key)
        self.key.append(key)
        self.start.append(time)
        self.end.append(0)
        self.closed.append(False)
        self.events.append(events)

    def close(self, time: int) -> None:
        self.closed[self.open], self.end[self.open] = True, time
        self.open = -1

    def take(self, key: int, time: int, state: Any, values: tuple[Any, ...]) -> tuple[Any, int]:
        """The state after an event, and the number of the window that it is in; -1: none."""
        if self.open >= 0:
            until = until_of(self.window, state)
            if until <= time:
                self.close(until)
                state = None
        state, move = self._next_state(state, time, values)
        if move == "skip":
            return state, -1
        if move == "begin" and self.open >= 0:
            self.close(time)
        if self.open < 0:
            self.begin(key, time)
        inside = self.open
        self.events[inside] += 1
        if move == "end":
            self.close(time)
        return state, inside

    def _next_state(self, state: Any, time: int, values: tuple[Any, ...]) -> tuple[Any, str]:
        told = self.window.step(state, time, values)
        if not isinstance(told, tuple) or len(told) != 2 or told[1] not in MOVES:
            raise QueryError(
                f"step of the window {self.window.kind} must give a state and a move",
                given=repr(told),
                hint=f"moves are {', '.join(MOVES)}",
            )
        return told


def until_of(window: Stepped, state: Any) -> int:
    """When an open window ends by itself; later than anything where only events end it."""
    until = window.until(state)
    if until is None:
        return LATEST
    if isinstance(until, bool) or not isinstance(until, int):
        raise QueryError(
            f"until of the window {window.kind} must be a time or None",
            given=repr(until),
            hint="give whole microseconds since 1970",
        )
    return max(EARLIEST, min(until, LATEST))


class StepAssignment(NamedTuple):
    """Which window each event is in (-1: none), and what is known of windows and keys then."""

    member: Ints
    key: Ints
    start: Ints
    end: Ints
    closed: Mask
    events: Ints
    carried: Ints
    """For each open window of before whose key has events, its number here."""
    states: dict[int, Any]


def assign(state: OpenStepped, events: Ordered) -> StepAssignment:
    """Follows the windows of every key through its events."""
    window, walk = state.window, _Walk(state.window)
    states = dict(state.states)
    open_at = {key: row for row, key in enumerate(state.open.key.tolist())}
    starts, held = state.open.start.tolist(), state.events.tolist()
    member = [-1] * len(events)
    numbers: dict[int, int] = {}
    times, keys = events.time.tolist(), events.key.tolist()
    columns = [events.column(text).to_pylist() for text in window.reads]
    bounds = [*events.heads.tolist(), len(events)]
    for low, high in pairwise(bounds):
        key = keys[low]
        walk.open = -1
        if key in open_at:
            row = open_at[key]
            walk.begin(key, starts[row], held[row])
            numbers[row] = walk.open
        known = states.pop(key, None)
        for event in range(low, high):
            if state.since is not None and times[event] <= state.since:
                continue
            values = tuple(column[event] for column in columns)
            known, member[event] = walk.take(key, times[event], known, values)
        if known is not None:
            states[key] = known
    carried = [numbers[row] for row in sorted(numbers)]
    columns_of = (walk.key, walk.start, walk.end, walk.events, carried, member)
    made = [np.array(values, np.int64) for values in columns_of]
    closed = np.array(walk.closed, np.bool_)
    return StepAssignment(made[5], made[0], made[1], made[2], closed, made[3], made[4], states)


class SteppedState(EventBoundedState[OpenStepped, StepAssignment]):
    """The open windows of each type, and what its program knows of each key."""

    name = "steps"

    def __init__(self, bound: BoundGroup, windows: Mapping[int, Stepped]) -> None:
        super().__init__(bound, windows)
        none = np.empty(0, np.int64)
        self.opened = [
            OpenStepped(window, no_rows(self.operators), none, {}) for window in windows.values()
        ]

    def assign(self, state: OpenStepped, events: Ordered) -> StepAssignment:
        return assign(state, events)

    def step(
        self, state: OpenStepped, events: Ordered, found: StepAssignment, rows: Rows, heads: Ints
    ) -> tuple[OpenStepped, Rows]:
        touched = np.isin(state.open.key, events.key[events.heads])
        merged, present = merged_into(state.open.where(touched), found, rows, heads, self.operators)
        closed = found.closed[present]
        merged.end = np.where(closed, found.end[present], merged.end)
        still = concat_rows([state.open.where(~touched), merged.where(~closed)], self.operators)
        held = np.concatenate([state.events[~touched], found.events[present][~closed]])
        after = state._replace(open=still, events=held, states=found.states)
        return after, merged.where(closed)

    def complete(self, moment: Moment) -> list[Complete]:
        """The windows whose time is over."""
        out = []
        for n, state in enumerate(self.opened):
            keys = state.open.key.tolist()
            until = np.array(
                [until_of(state.window, state.states.get(key)) for key in keys], np.int64
            )
            over = (until <= moment.frontier) & (until < LATEST)
            if not over.any():
                continue
            done = state.open.where(over)
            done.end = until[over]
            out.append(self.given(n, done))
            gone = set(done.key.tolist())
            self.opened[n] = state._replace(
                open=state.open.where(~over),
                events=state.events[~over],
                states={key: known for key, known in state.states.items() if key not in gone},
            )
        return out

    def needed_keys(self) -> list[Ints]:
        return [np.array(list(state.states), np.int64) for state in self.opened]

    def recode(self, place: Ints) -> None:
        self.opened = [
            state._replace(states={int(place[key]): known for key, known in state.states.items()})
            for state in self.opened
        ]

    @property
    def nbytes(self) -> int:
        return sum(_STATE_BYTES * len(state.states) for state in self.opened)

    def save_more(self, put: Put, name: str, state: OpenStepped) -> None:
        put.ints(f"{name} open", events=state.events)
        known = [_written(state.window, one) for one in state.states.values()]
        keys = pa.array(list(state.states), pa.int64())
        put.table(f"{name} states", pa.table({"key": keys, "state": pa.array(known, pa.binary())}))

    def load_more(self, get: Get, name: str, state: OpenStepped) -> OpenStepped:
        table = get.table(f"{name} states")
        pairs = zip(codec.ints(table, "key").tolist(), table.column("state"), strict=True)
        told = f"the states of the window {state.window.kind}"
        states = {key: records.unpack(Any, one.as_py(), told) for key, one in pairs}
        return state._replace(events=get.ints(f"{name} open", "events"), states=states)


def _written(window: Stepped, state: Any) -> bytes:
    """The state of a program as bytes, which give an equal one back."""
    try:
        written = records.pack(state)
        same = records.unpack(Any, written, "a state") == state
    except (TypeError, ValueError, OverflowError):
        same = False
    if not same:
        raise StateError(
            f"a state of the window {window.kind} cannot be written down",
            given=repr(state),
            hint="use None, numbers, texts, and lists and maps of these; a list, not a tuple",
        )
    return written
