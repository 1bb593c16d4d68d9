"""User-defined windows: opened and closed by a key's own events, in order.

The state is one row for each open window. Marks are followed by a vectorized state machine over
settled events, which says where these must be cut, and then takes the rows that they were cut to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.engine.bound_group import BoundGroup
from catchment.engine.rows import Operators, Rows, concat_rows, identity_fields, no_rows
from catchment.engine.settled import Ordered
from catchment.engine.shapes.base import Get, Put
from catchment.engine.shapes.event_bounded import EventBoundedState, merged_into
from catchment.model.window import STREAM, Marked
from catchment.operators.grouping import segment_codes
from catchment.operators.ragged import Array, Ints, lengths_of
from catchment.operators.values import Mask

UNSEEN, UNSURE = 1, 2
"""Of an open window: its beginning was not seen; or not even whether one is open is known."""


class Begun(NamedTuple):
    """Keys, and streams of theirs."""

    key: Ints = np.empty(0, np.int64)
    stream: Array = np.empty(0, object)

    def where(self, keep: Mask) -> Begun:
        return Begun(self.key[keep], self.stream[keep])

    def table(self) -> pa.Table:
        return pa.table({"key": pa.array(self.key), "stream": pa.array(self.stream, pa.string())})


class OpenMarked(NamedTuple):
    """The windows of one type that are open: one row per key that has one, `start` its opening.

    `unknown` marks windows that may have begun before the query did: they are followed, so that
    their end is known, but are not results. While nobody is sure whether one is open, an event
    that both opens and closes tells nothing.
    """

    window: Marked
    open: Rows
    unknown: Ints
    since: int | None = None
    seen: Ints = np.empty(0, np.int64)
    """Keys met so far by a window type that started late, whose state was unknown before."""
    events: Ints = np.empty(0, np.int64)
    """How many events each open window holds."""
    begun: Begun = Begun()
    """Read as `any`: the streams that have begun the open windows themselves."""


def marks(window: Marked, operators: Operators, since: int | None) -> OpenMarked:
    return OpenMarked(window, no_rows(operators), np.empty(0, np.int64), since)


class MarkAssignment(NamedTuple):
    """Which window each event is in (-1: none), and of each window its key, bounds and state."""

    member: Ints
    key: Ints
    start: Ints
    end: Ints
    closed: Mask
    unknown: Ints
    carried: Ints
    """For each open window of before, its number here."""
    begun: Begun = Begun()
    """Read as `any`: the streams that have begun windows which are open now."""


def assign(state: OpenMarked, events: Ordered) -> MarkAssignment:
    """Follows the windows of every key through its events.

    Only events that open or close a window, and the first of each key, are looked at one by one:
    every other event is in the window, if any, that the one before it left open.
    """
    opens = events.condition(state.window.opens)
    closes = None if state.window.closes is None else events.condition(state.window.closes)
    after = None if state.since is None else events.time > state.since
    marking = opens if closes is None else opens | closes
    marking = marking.copy() if after is None else marking & after
    marking[events.heads] = True
    looked_at = np.flatnonzero(marking)
    keys = events.key[events.heads]
    heads = np.searchsorted(looked_at, events.heads)
    counts = np.ones(len(looked_at), np.bool_) if after is None else after[looked_at]
    # An open window, and a state nobody saw, go before the key's events as an event of their own.
    known = np.isin(state.open.key, keys)
    before = state.open.key[known]
    strange = np.empty(0, np.int64)
    if state.since is not None:
        strange = np.setdiff1d(np.setdiff1d(keys, state.seen), state.open.key)
    virtual = np.concatenate([before, strange])
    at = heads[np.searchsorted(keys, virtual)]
    order = np.argsort(at, kind="stable")
    virtual, at = virtual[order], at[order]
    carried_at = np.argsort(order, kind="stable")[: len(before)]

    def put(values: Array, fill: Array | bool) -> Array:
        return np.insert(values, at, fill)

    starts_before = np.concatenate([state.open.start[known], np.zeros(len(strange), np.int64)])[
        order
    ]
    time = put(events.time[looked_at], starts_before)
    segment = put(segment_codes(heads, len(looked_at)), np.searchsorted(keys, virtual))
    real = put(np.ones(len(looked_at), np.bool_), False).astype(np.bool_)
    opening = put(opens[looked_at] & counts, True).astype(np.bool_)
    closing = None if closes is None else put(closes[looked_at] & counts, False).astype(np.bool_)
    first = np.ones(len(time), np.bool_)
    first[1:] = segment[1:] != segment[:-1]
    counted = put(counts, True).astype(np.bool_)
    flags = np.concatenate([state.unknown[known], np.full(len(strange), UNSURE)])[order]
    if closing is None:
        begins = (first | opening) & counted
        ends = begins & ~first
        inside = stays_open = np.ones(len(time), np.bool_)
    else:
        unsure = np.isin(segment, segment[~real][flags == UNSURE])
        sure = (opening ^ closing) & real
        so_far: Ints = np.cumsum(sure) - sure
        blank = unsure & opening & closing & (so_far == so_far[first][segment])
        opening, closing = opening & ~blank, closing & ~blank
        settled = np.isin(segment[~real], segment[sure])
        flags = np.where((flags == UNSURE) & settled, UNSEEN, flags)
        before_open = _open_before(opening, closing, first)
        begins = opening & ~before_open
        ends = closing & before_open
        inside = before_open | begins
        stays_open = inside & ~ends
    number = np.cumsum(begins) - 1
    starts = np.flatnonzero(begins)
    closed, end = _ends(number, ends, time, closing is None, len(starts))
    unknown = np.zeros(len(starts), np.int64)
    virtual_numbers = number[~real]
    unknown[virtual_numbers] = flags
    member = np.repeat(np.where(stays_open, number, -1)[real], lengths_of(looked_at, len(events)))
    member[looked_at] = np.where(inside & counted, number, -1)[real]
    if after is not None:
        member[~after] = -1
    found = MarkAssignment(
        member,
        keys[segment[starts]],
        time[starts],
        end,
        closed,
        unknown,
        virtual_numbers[carried_at],
    )
    return _begun_only(state, events, found, before) if state.window.reading == "any" else found


def _begun_only(
    state: OpenMarked, events: Ordered, found: MarkAssignment, before: Ints
) -> MarkAssignment:
    """Leaves out events of streams that have not begun the window themselves, but for the event
    that ends it. `before` are the keys of the open windows of before."""
    inside = np.flatnonzero(found.member >= 0)
    window = found.member[inside]
    # Of events before the query nobody noted the stream; they are in no window.
    rows: Any = pa.array(inside)
    encoded = events.column(STREAM).take(rows).dictionary_encode()
    known = [*dict.fromkeys([*encoded.dictionary.to_pylist(), *state.begun.stream.tolist()])]
    code = encoded.indices.to_numpy().astype(np.int64)
    goes_on = np.isin(state.begun.key, before)
    held = state.begun.where(goes_on)
    place = np.argsort(before)
    carried = found.carried[place[np.searchsorted(before, held.key, sorter=place)]]
    carried_code = np.array([known.index(name) for name in held.stream], np.int64)
    pair = np.concatenate([carried, window]) * len(known)
    pair += np.concatenate([carried_code, code])
    present, place = np.unique(pair, return_inverse=True)
    opening = np.flatnonzero(events.condition(state.window.opens)[inside])
    never = len(events)
    since = np.full(len(present), never)
    since[place[: len(held.key)]] = -1
    of_events = place[len(held.key) :]
    np.minimum.at(since, of_events[opening], inside[opening])
    last = np.full(len(found.key), -1)
    np.maximum.at(last, window, inside)
    kept = (inside >= since[of_events]) | (found.closed[window] & (inside == last[window]))
    member = found.member.copy()
    member[inside[~kept]] = -1
    open_now = (since < never) & ~found.closed[present // max(len(known), 1)]
    owner, name = np.divmod(present[open_now], max(len(known), 1))
    streams = np.array(known, object)[name]
    others = state.begun.where(~goes_on)
    begun = Begun(
        np.concatenate([others.key, found.key[owner]]), np.concatenate([others.stream, streams])
    )
    return found._replace(member=member, begun=begun)


def _open_before(opening: Mask, closing: Mask, first: Mask) -> Mask:
    """Whether a window is open just before each event.

    An event that only opens leaves one open, one that only closes leaves none, one that does both
    turns the state: so the state is the last certain one, turned as often as since then.
    """
    both = opening & closing
    certain = (opening ^ closing) | first
    # A key starts without a window: its first event acts on that.
    after = np.where(first, opening, opening & ~closing)
    turns = np.cumsum(both & ~first)
    place = np.maximum.accumulate(np.where(certain, np.arange(len(first)), -1))
    state = after[place] ^ (((turns - turns[place]) & 1) == 1)
    before = np.zeros(len(first), np.bool_)
    before[1:] = state[:-1]
    before[first] = False
    return before


def _ends(number: Ints, ends: Mask, time: Ints, by_next: bool, windows: int) -> tuple[Mask, Ints]:
    closed = np.zeros(windows, np.bool_)
    end = np.zeros(windows, np.int64)
    at = np.flatnonzero(ends)
    which = number[at] - 1 if by_next else number[at]
    closed[which] = True
    end[which] = time[at]
    return closed, end


def _bare(followed: MarkAssignment, bare: Ints, operators: Operators) -> Rows:
    if not len(bare):
        return no_rows(operators)
    start = followed.start[bare]
    return Rows(
        start, start, followed.key[bare], start, start, identity_fields(operators, len(bare))
    )


class MarkedState(EventBoundedState[OpenMarked, MarkAssignment]):
    """The open windows of each type whose marks all events are searched for."""

    name = "marks"

    def __init__(self, bound: BoundGroup, windows: Mapping[int, Marked]) -> None:
        super().__init__(bound, windows)
        self.opened = [marks(window, self.operators, None) for window in windows.values()]

    def assign(self, state: OpenMarked, events: Ordered) -> MarkAssignment:
        return assign(state, events)

    def step(
        self, state: OpenMarked, events: Ordered, found: MarkAssignment, rows: Rows, heads: Ints
    ) -> tuple[OpenMarked, Rows]:
        touched = np.isin(state.open.key, events.key[events.heads])
        merged, present = merged_into(state.open.where(touched), found, rows, heads, self.operators)
        closed, unknown = found.closed[present], found.unknown[present]
        merged.end = np.where(closed, found.end[present], merged.end)
        result = merged.where(closed & (unknown == 0))
        # A window whose beginning nobody saw may hold no event yet, but is open all the same.
        bare = np.setdiff1d(np.flatnonzero(~found.closed), present)
        still = concat_rows(
            [state.open.where(~touched), merged.where(~closed), _bare(found, bare, self.operators)],
            self.operators,
        )
        flags = np.concatenate([state.unknown[~touched], unknown[~closed], found.unknown[bare]])
        member = found.member[heads]
        inside = np.flatnonzero(member >= 0)
        counts = events.sizes(heads)[inside]
        held = np.bincount(member[inside], counts, len(found.key)).astype(np.int64)
        held[found.carried] += state.events[touched]
        sizes = np.concatenate([state.events[~touched], held[present][~closed], held[bare]])
        seen = state.seen if state.since is None else np.union1d(state.seen, events.key)
        after = state._replace(
            open=still, unknown=flags, seen=seen, events=sizes, begun=found.begun
        )
        return after, result

    def certain(self, state: OpenMarked) -> tuple[Rows, Ints]:
        seen = state.unknown == 0
        return state.open.where(seen), state.events[seen]

    def needed_keys(self) -> list[Ints]:
        return [keys for state in self.opened for keys in (state.seen, state.begun.key)]

    def recode(self, place: Ints) -> None:
        self.opened = [
            state._replace(
                seen=np.sort(place[state.seen]),
                begun=state.begun._replace(key=place[state.begun.key]),
            )
            for state in self.opened
        ]

    def save_more(self, put: Put, name: str, state: OpenMarked) -> None:
        put.ints(f"{name} open", unknown=state.unknown, events=state.events)
        put.ints(f"{name} seen", key=state.seen)
        if state.window.reading == "any":
            put.table(f"{name} begun", state.begun.table())

    def load_more(self, get: Get, name: str, state: OpenMarked) -> OpenMarked:
        return state._replace(
            unknown=get.ints(f"{name} open", "unknown"),
            seen=get.ints(f"{name} seen", "key"),
            events=get.ints(f"{name} open", "events"),
            begun=_begun_in(get, name) if state.window.reading == "any" else state.begun,
        )


def _begun_in(get: Get, name: str) -> Begun:
    streams = get.table(f"{name} begun").column("stream").to_pylist()
    return Begun(get.ints(f"{name} begun", "key"), np.array(streams, object))
