"""Windows of a key one after the other, each as long as it may take in the next event.

The state is one row for each open window. Where the windows of settled events begin is found in two
passes over the events in order. The first asks for every event where a window would end that began
with it: an array operation for each limit that there is. The second follows these from window to
window:

    events of a key    a b c   d e     f g h i
    next               d d d   f f     h i . .      at most two events of f, g, h, i in a window
    windows           [a-----][d--]   [f-][h-->

A window that is open already stands before the events of its key as an event of its own, of as
many events as it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from catchment.engine.bound_group import BoundGroup
from catchment.engine.complete import Complete
from catchment.engine.rows import Operators, Rows, concat_rows, no_rows
from catchment.engine.settled import Ordered
from catchment.engine.shapes.base import Get, Moment, Put
from catchment.engine.shapes.event_bounded import EventBoundedState, merged_into
from catchment.model.window import Chained
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.edges import LATEST

_SECOND = 1e6
_LONGEST = 1 << 60
"""Microseconds of a gap: longer ones are no gaps, and no event that is in a window has one."""


class OpenChained(NamedTuple):
    """The windows of one type that are open: one row for each key that has one."""

    window: Chained
    open: Rows
    until: Ints
    """The last time by which the gap after one of its events lets the next one in."""
    events: Ints
    """How many events each holds."""
    since: int | None = None
    """Events up to then were not seen, and are in no window."""


def nothing_open(window: Chained, operators: Operators) -> OpenChained:
    none = np.empty(0, np.int64)
    return OpenChained(window, no_rows(operators), none, none)


class ChainAssignment(NamedTuple):
    """Which window each event is in (-1: none), and of each window its key, bounds and state."""

    member: Ints
    key: Ints
    start: Ints
    end: Ints
    """Where it ends if no event comes any more."""
    until: Ints
    events: Ints
    closed: Mask
    carried: Ints
    """For each open window of before whose key has events, its number here."""


def assign(state: OpenChained, events: Ordered) -> ChainAssignment:
    """Follows the windows of every key through its events."""
    window = state.window
    rows = np.arange(len(events))
    if state.since is not None:
        rows = np.flatnonzero(events.time > state.since)
    before = np.flatnonzero(np.isin(state.open.key, events.key[rows]))
    at = np.searchsorted(events.key[rows], state.open.key[before])
    order = np.argsort(at, kind="stable")
    at, before = at[order], before[order]
    open_ = state.open

    def put(values: Ints, held: Ints) -> Ints:
        """With what is known of open windows before the events of their keys."""
        made: Ints = np.insert(values, at, held[before])
        return made

    time = put(events.time[rows], open_.start)
    key = put(events.key[rows], open_.key)
    last = put(events.time[rows], open_.last)
    until = put(_until(window, events, rows), state.until)
    weight = put(np.ones(len(rows), np.int64), state.events)
    heads = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else rows[:0]
    segment = np.repeat(np.arange(len(heads)), np.diff(heads, append=len(key)))
    ends = np.append(heads, len(key))[1:][segment]
    starts = _chain(_next(window, time, segment, ends, until, weight))
    number = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(key)))
    held = _reduced(np.add, weight, starts)
    reached = _reduced(np.maximum, until, starts)
    start, tail = time[starts], np.append(starts, len(key))[1:] - 1
    full = np.zeros(len(starts), np.bool_)
    if window.max_events is not None:
        full = held >= window.max_events
    end = np.where(full, last[tail], _end(window, start, reached))
    real = np.ones(len(key), np.bool_)
    carried = at + np.arange(len(at))
    real[carried] = False
    member = np.full(len(events), -1, np.int64)
    member[rows] = number[real]
    closed = full | (tail + 1 < ends[starts])
    numbers = number[carried][np.argsort(before)]
    return ChainAssignment(member, key[starts], start, end, reached, held, closed, numbers)


def _until(window: Chained, events: Ordered, rows: Ints) -> Ints:
    """The last time by which each event lets the next one in."""
    time = events.time[rows]
    if window.gap is not None:
        return time + window.gap
    if window.gap_from is None:
        return np.full(len(rows), LATEST, np.int64)
    seconds = events.column(window.gap_from).cast(pa.float64()).to_numpy(zero_copy_only=False)[rows]
    with np.errstate(invalid="ignore"):  # a null is NaN
        micros = np.rint(np.clip(np.nan_to_num(seconds * _SECOND), 0, _LONGEST)).astype(np.int64)
    return time + micros


def _next(
    window: Chained, time: Ints, segment: Ints, ends: Ints, until: Ints, weight: Ints
) -> Ints:
    """For each event, the first that is not in the window that begins with it."""
    found = ends
    if window.max_length is not None:
        moments = np.unique(time)
        width = len(moments) + 1
        places = segment * width + np.searchsorted(moments, time)
        over = segment * width + np.searchsorted(moments, time + window.max_length)
        found = np.minimum(found, np.searchsorted(places, over))
    if window.max_events is not None:
        held = np.cumsum(weight)
        full = np.searchsorted(held, held - weight + window.max_events) + 1
        found = np.minimum(found, full)
    if window.gap is not None:
        found = np.minimum(found, _next_break(time, ends, until))
    elif window.gap_from is not None:
        found = np.minimum(found, _next_out_of_reach(time, ends, until))
    return found


def _next_break(time: Ints, ends: Ints, until: Ints) -> Ints:
    """Of one gap for all: the first event that comes too late after the one before it."""
    events = np.arange(len(time))
    late = np.zeros(len(time), np.bool_)
    late[1:] = time[1:] > until[:-1]
    place = np.where(late, events, len(time))
    following = np.minimum.accumulate(np.append(place, len(time))[::-1])[::-1][1:]
    return np.minimum(following, ends)


def _next_out_of_reach(time: Ints, ends: Ints, until: Ints) -> Ints:
    """Where each event has a gap of its own: the first event that no one since reaches.

    From the last event back: what the next event's window takes in, an event takes in too that
    reaches the next; and what comes then, if it reaches that itself.
    """
    times, stops, reaches = time.tolist(), ends.tolist(), until.tolist()
    found = [0] * len(times)
    for event in range(len(times) - 1, -1, -1):
        next_, stop, reach = event + 1, stops[event], reaches[event]
        while next_ < stop and times[next_] <= reach:
            next_ = found[next_]
        found[event] = next_
    return np.array(found, np.int64)


def _chain(following: Ints) -> Ints:
    """The events with which windows begin."""
    steps = following.tolist()
    starts = []
    event = 0
    while event < len(steps):
        starts.append(event)
        event = steps[event]
    return np.array(starts, np.int64)


def _reduced(by: np.ufunc, values: Ints, starts: Ints) -> Ints:
    made: Ints = by.reduceat(values, starts) if len(starts) else values[:0]
    return made


def _end(window: Chained, start: Ints, until: Ints) -> Ints:
    """Where windows end that are not full."""
    if window.max_length is None:
        return until
    made: Ints = np.minimum(start + window.max_length, until)
    return made


class ChainedState(EventBoundedState[OpenChained, ChainAssignment]):
    """The open windows of each type."""

    name = "chains"

    def __init__(self, bound: BoundGroup, windows: Mapping[int, Chained]) -> None:
        super().__init__(bound, windows)
        self.opened = [nothing_open(window, self.operators) for window in windows.values()]

    def assign(self, state: OpenChained, events: Ordered) -> ChainAssignment:
        return assign(state, events)

    def step(
        self, state: OpenChained, events: Ordered, found: ChainAssignment, rows: Rows, heads: Ints
    ) -> tuple[OpenChained, Rows]:
        touched = np.isin(state.open.key, events.key[found.member >= 0])
        merged, present = merged_into(state.open.where(touched), found, rows, heads, self.operators)
        merged.end = found.end[present]
        closed = found.closed[present]
        enough = found.events[present] >= state.window.min_events
        still = concat_rows([state.open.where(~touched), merged.where(~closed)], self.operators)
        until = np.concatenate([state.until[~touched], found.until[present][~closed]])
        held = np.concatenate([state.events[~touched], found.events[present][~closed]])
        return state._replace(open=still, until=until, events=held), merged.where(closed & enough)

    def complete(self, moment: Moment) -> list[Complete]:
        """The windows that no event can be in any more: not one just as late as a gap allows."""
        out = []
        for n, state in enumerate(self.opened):
            over = state.until < moment.frontier
            if state.window.max_length is not None:
                over |= state.open.start + state.window.max_length <= moment.frontier
            if not over.any():
                continue
            given = over & (state.events >= state.window.min_events)
            done = state.open.where(given)
            done.end = _end(state.window, done.start, state.until[given])
            out.append(self.given(n, done))
            self.opened[n] = state._replace(
                open=state.open.where(~over), until=state.until[~over], events=state.events[~over]
            )
        return out

    def unended(self, newest: int) -> Iterator[tuple[Complete, int]]:
        """None: at the end of the input all have ended, by their gap or by their length."""
        yield from ()

    def save_more(self, put: Put, name: str, state: OpenChained) -> None:
        put.ints(f"{name} open", until=state.until, events=state.events)

    def load_more(self, get: Get, name: str, state: OpenChained) -> OpenChained:
        return state._replace(
            until=get.ints(f"{name} open", "until"), events=get.ints(f"{name} open", "events")
        )
