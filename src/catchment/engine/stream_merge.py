"""Puts the windows of many streams together at the root, as their reading says.

Rows of windows of single streams go in. Results come out: one for each window (`local`), for
windows of equal bounds (`aligned`), of equal number (`ordered`), or that overlap (`gaps`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from catchment.engine.complete import Complete, number_alike
from catchment.engine.lanes import OPEN
from catchment.engine.rows import Operators, Rows, concat_rows, merge_rows, no_rows
from catchment.engine.shapes.session import latest
from catchment.engine.streams import Owned, lane
from catchment.model.window import Window
from catchment.operators import Grouping
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST, LATEST


class Gathered(NamedTuple):
    """The windows of one type that are not results yet: one row per window of a stream.

    In a row, `start` and `end` are the window's bounds (OPEN: it has not ended), `first` is its
    stream, `last` its number among those of its stream and key. Windows that begin by `since` may
    have begun unseen on some node. `key` and `given` say how many windows of a key went out
    already, where they do by number.
    """

    window: Window
    rows: Rows
    since: int | None
    key: Ints
    given: Ints
    missed: int = 0
    """Slices that came too late for their window."""
    heard: Ints = np.empty(0, np.int64)
    """Lanes heard of since then: in others a window may be open that nobody saw begin."""
    whole: bool = False
    """Whether a window is told of once it has ended, and not before."""


def gathered(window: Window, operators: Operators, whole: bool) -> Gathered:
    none = np.empty(0, np.int64)
    return Gathered(window, no_rows(operators), None, none, none, whole=whole)


def gather(
    state: Gathered, owned: Owned, kind: int, frontier: int, operators: Operators
) -> Gathered:
    """Takes in slices; those of windows that are past already only count."""
    number, start, end = owned.tags[:, 1 + 3 * kind : 4 + 3 * kind].T
    inside = np.flatnonzero(number >= 0)
    if not len(inside):
        return state
    rows = owned.rows.take(inside)
    rows = Rows(
        start[inside], end[inside], rows.key, owned.tags[inside, 0], number[inside], rows.fields
    )
    if state.since is not None and state.window.reading == "gaps":
        state = state._replace(heard=np.union1d(state.heard, lane(rows.first, rows.key)))
    late = _late(state, rows, frontier)
    rows = concat_rows([state.rows, rows.where(~late)], operators)
    rows = _merged(rows, (rows.key, rows.first, rows.last), operators)
    return state._replace(rows=rows, missed=state.missed + int(late.sum()))


def _merged(rows: Rows, by: tuple[Ints, ...], operators: Operators) -> Rows:
    """One row for all that are equal in these columns, sorted by them."""
    order = np.lexsort(by[::-1])
    new = np.zeros(len(order), np.bool_)
    new[:1] = True
    for column in by:
        new[1:] |= column[order][1:] != column[order][:-1]
    return _joined(rows.take(order), new, operators)


def _joined(rows: Rows, new: Mask, operators: Operators) -> Rows:
    """Merges each run of rows to one; a run starts where the mask says."""
    if new.all():
        return rows
    heads = np.flatnonzero(new)
    return merge_rows(rows, Grouping(None, len(heads), starts=heads, rows=len(rows)), operators)


def _late(state: Gathered, rows: Rows, frontier: int) -> Mask:
    """Slices of windows that others may have gone out without.

    A node that is waited for tells of a window before the frontier passes its start, or of one that
    climbs whole, its end; one that was given up may come with windows that began before.
    """
    if state.window.reading == "ordered":
        return went_out(state, rows)
    if state.whole:
        over: Mask = (rows.end != OPEN) & (rows.end < frontier)
        return over
    late: Mask = rows.start < frontier
    if state.since is not None:  # windows that began unseen are told of when they are noticed
        late &= rows.start > state.since
    if late.any():
        late &= ~np.isin(_identity(rows), _identity(state.rows))
    return late


def _identity(rows: Rows) -> Ints:
    columns = np.ascontiguousarray(np.stack([rows.key, rows.first, rows.last], axis=1))
    view: Ints = columns.view([("", np.int64)] * 3).ravel()
    return view


def went_out(state: Gathered, rows: Rows) -> Mask:
    """Whether a window with this number has been given, where numbers identify windows."""
    gone: Mask = rows.last < _given(state, rows.key)
    return gone


def _given(state: Gathered, keys: Ints) -> Ints:
    """How many windows of each key went out."""
    if not len(state.key):
        return np.zeros(len(keys), np.int64)
    place = np.minimum(np.searchsorted(state.key, keys), len(state.key) - 1)
    given: Ints = np.where(state.key[place] == keys, state.given[place], 0)
    return given


class Awaited(NamedTuple):
    """The streams that may still bring windows, by number; and whether one was never heard of."""

    streams: Ints
    strangers: bool = False


def complete(
    state: Gathered, frontier: int, awaited: Awaited, operators: Operators
) -> tuple[Gathered, Rows]:
    """The windows that nothing can change any more, put together; `last` is their number."""
    if frontier >= LATEST:  # what has not ended by the end is no window
        awaited = Awaited(np.empty(0, np.int64))
    return _READINGS[state.window.reading](state, frontier, awaited, operators)


ReadingMerge = Callable[[Gathered, int, Awaited, Operators], tuple[Gathered, Rows]]


def _past(state: Gathered, frontier: int) -> Mask:
    """Windows that have ended before the frontier; some of those that climb whole, just at it."""
    rows, at_end = state.rows, _at_end(state)
    past: Mask = (rows.end != OPEN) & (rows.end <= frontier if at_end else rows.end < frontier)
    return past


def ends_after(state: Gathered, frontier: int) -> Ints:
    """The times that a frontier must pass until windows that have ended are past."""
    rows = state.rows
    waiting = (rows.end != OPEN) & ~_past(state, frontier)
    ends: Ints = rows.end[waiting]
    return ends - 1 if _at_end(state) else ends


def _at_end(state: Gathered) -> bool:
    """Whether windows are past when the frontier is just at their end."""
    return state.whole and state.window.reading != "aligned"


def _local(state: Gathered, frontier: int, *_: object) -> tuple[Gathered, Rows]:
    done = _past(state, frontier)
    return state._replace(rows=state.rows.where(~done)), state.rows.where(done)


def _aligned(
    state: Gathered, frontier: int, _: Awaited, operators: Operators
) -> tuple[Gathered, Rows]:
    """Equal bounds, one window. Of those alike in one stream, the first goes with the first."""
    state, done = _local(state, frontier)
    order = np.lexsort((done.last, done.first, done.end, done.start, done.key))
    done = done.take(order)
    copy = number_alike(done.key, done.start, done.end, done.first)
    same = (done.key, done.start, done.end, copy)
    return state, _since(state, _merged(done, same, operators))


def _ordered(
    state: Gathered, frontier: int, awaited: Awaited, operators: Operators
) -> tuple[Gathered, Rows]:
    """The i-th windows of all streams, once each that goes on has had its own."""
    rows = state.rows
    past = _past(state, frontier)
    keys, place = np.unique(rows.key, return_inverse=True)
    given = _given(state, keys)
    reach = np.full(len(keys), LATEST)
    if awaited.strangers:
        reach = given
    elif len(awaited.streams):
        ended = np.repeat(given[:, None], len(awaited.streams), axis=1)
        column = np.searchsorted(awaited.streams, rows.first)
        column = np.minimum(column, len(awaited.streams) - 1)
        counted = past & (awaited.streams[column] == rows.first)
        at = (place[counted], column[counted])
        np.maximum.at(ended, at, rows.last[counted] + 1)
        reach = ended.min(axis=1)
    ahead = (rows.end != OPEN) & ~past
    np.minimum.at(reach, place[ahead], rows.last[ahead])
    done = past & (rows.last < reach[place])
    out = rows.where(done)
    out = _merged(out, (out.key, out.last), operators)
    now = given.copy()
    np.maximum.at(now, np.searchsorted(keys, out.key), out.last + 1)
    told = np.union1d(state.key, keys)
    counts = _given(state, told)
    counts[np.searchsorted(told, keys)] = now
    kept = ~done & (rows.last >= now[place])
    return state._replace(rows=rows.where(kept), key=told, given=counts), out


def _gaps(
    state: Gathered, frontier: int, awaited: Awaited, operators: Operators
) -> tuple[Gathered, Rows]:
    """Windows that overlap or touch, through any number of others, once no open one reaches in."""
    rows = state.rows
    is_open = rows.end == OPEN
    there = ~is_open | np.isin(rows.first, awaited.streams)
    gone, rows = rows.where(~there), rows.where(there)
    end = np.where(rows.end == OPEN, LATEST, rows.end)
    order = np.lexsort((rows.start, rows.key))
    rows, end = rows.take(order), end[order]
    other = rows.key[1:] != rows.key[:-1]
    new = np.ones(len(rows), np.bool_)
    if len(rows) > 1:
        new[1:] = other | (rows.start[1:] > latest(end, other)[:-1])
    piece = np.cumsum(new) - 1
    reach = np.full(int(new.sum()), EARLIEST)
    np.maximum.at(reach, piece, end)
    past = (reach[piece] < frontier) & _known(state, rows.key, awaited)
    left = concat_rows([gone, rows.where(~past)], operators)
    return state._replace(rows=left), _since(state, _joined(rows.where(past), new[past], operators))


def _known(state: Gathered, keys: Ints, awaited: Awaited) -> Mask:
    """Whether it is known of every stream which windows of a key are open."""
    known = np.full(len(keys), not awaited.strangers or state.since is None)
    if state.since is not None:
        for stream in awaited.streams.tolist():
            known &= np.isin(lane(stream, keys), state.heard)
    return known


def _since(state: Gathered, rows: Rows) -> Rows:
    """Without windows that may have begun unseen, where streams meet."""
    return rows if state.since is None else rows.where(rows.start > state.since)


_READINGS: dict[str, ReadingMerge] = {
    "local": _local,
    "aligned": _aligned,
    "ordered": _ordered,
    "gaps": _gaps,
}


def as_complete(place: int, window: Window, rows: Rows, names: list[str]) -> Complete:
    """Windows put together, on their way to becoming results."""
    made = Complete(
        np.full(len(rows), place, np.int64), rows.key, rows.start, rows.end, rows.fields
    )
    # All that a stream has to tell of one instant comes in one message, as it lies in one slice.
    local = window.reading == "local"
    if window.numbered == "key":
        made.index = rows.last
    elif window.numbered == "bounds":
        stream = [rows.first] if local else []
        made.index = number_alike(rows.key, *stream, rows.start, rows.end)
    if local:
        made.node = np.array(names, object)[rows.first]
    return made
