"""Cutting a stream at its own marks, on the node that reads it: slices that know their windows.

A late mark would split a slice, so only events that have settled are cut. What climbs is slices,
and with each the windows of its stream that it is in; the events stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.engine import codec, settled
from catchment.engine.bound_group import BoundGroup
from catchment.engine.lanes import OPEN, LaneWindow
from catchment.engine.rows import Operators, Rows, concat_rows, identity_fields, merge_rows
from catchment.engine.shapes import marked
from catchment.engine.shapes.event_bounded import boundaries
from catchment.model.plan import Group
from catchment.model.window import STREAM, Marked
from catchment.operators import Grouping
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST, LATEST

_KEY_BITS = 40
_KEYS = (1 << _KEY_BITS) - 1
NOBODY = ""
"""The stream of slices that are in no window: those of all streams may be merged."""


def lane(stream: int | Ints, key: Ints) -> Ints:
    """A stream's events of one key: in a lane, marks are followed in order."""
    lanes: Ints = (stream << _KEY_BITS) | key
    return lanes


def parts_of(lanes: Ints) -> tuple[Ints, Ints]:
    """The streams and the keys."""
    return lanes >> _KEY_BITS, lanes & _KEYS


def own_windows(group: Group) -> list[int]:
    """The places of the window types of which each stream has windows of its own."""
    return [n for n, window in enumerate(group.windows) if window.stream_reading is not None]


@dataclass(slots=True)
class Owned:
    """Slices, and the windows of its stream that each is in.

    `tags` has a column for the stream, and three for each type in `own_windows`: the window's
    number among those of its stream and key (-1: none), its start, its end. A slice with an end
    says that the window has ended. It is in nothing else: it holds no events, or those of a window
    that climbs whole.
    """

    rows: Rows
    tags: Ints

    def where(self, keep: Mask) -> Owned:
        return Owned(self.rows.where(keep), self.tags[keep])

    @property
    def ends(self) -> Mask:
        """Which only say that a window has ended."""
        closed: Mask = (self.tags[:, 3::3] != OPEN).any(axis=1)
        return closed


def concat_owned(parts: Sequence[Owned], kinds: int, operators: Operators) -> Owned:
    rows = concat_rows([part.rows for part in parts], operators)
    tags = [part.tags for part in parts if len(part.rows)]
    return Owned(rows, np.concatenate([np.empty((0, 1 + 3 * kinds), np.int64), *tags]))


def compact_owned(owned: Owned, bound: BoundGroup) -> Owned:
    """One row per slice, key and windows. Where no edges are known ahead, all of a key that is in
    the same windows is one slice, however often it was cut."""
    rows, tags = owned.rows, owned.tags
    if len(rows) < 2:
        return owned
    sliced = bool(settled.slice_edges(bound.group).series())
    columns = [rows.start, rows.key, *tags.T] if sliced else [rows.key, *tags.T, rows.start]
    order = np.lexsort(columns[::-1])
    rows, tags = rows.take(order), tags[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (rows.key[1:] != rows.key[:-1]) | (tags[1:] != tags[:-1]).any(axis=1)
    if sliced:
        new[1:] |= rows.start[1:] != rows.start[:-1]
    heads = np.flatnonzero(new)
    groups = Grouping(None, len(heads), starts=heads, rows=len(order))
    return Owned(merge_rows(rows, groups, bound.operators), tags[heads])


class Streams:
    """Names of streams, by small numbers; 0 is nobody's."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = [NOBODY]
        self._codes = {NOBODY: 0}
        for name in names:
            self.code(name)

    def code(self, name: str) -> int:
        if name not in self._codes:
            self._codes[name] = len(self.names)
            self.names.append(name)
        return self._codes[name]

    def codes(self, column: pa.Array[Any]) -> Ints:
        encoded = column.dictionary_encode()
        places = np.array([self.code(str(n)) for n in encoded.dictionary.to_pylist()], np.int64)
        found: Ints = places[encoded.indices.to_numpy()]
        return found

    def column(self, codes: Ints) -> pa.Array[Any]:
        named: pa.Array[Any] = pa.array(self.names, pa.string()).take(codes)
        return named


class Course(NamedTuple):
    """How far the windows of one type have come in every lane; `kind` is its place in
    `own_windows`.

    `begun` counts the windows of a lane; `start` is the open one's, or OPEN where none is. Of
    lanes that were there before the query, `unknown` says what is not known (see `marked`).
    """

    window: Marked
    kind: int
    lane: Ints
    begun: Ints
    start: Ints
    unknown: Ints
    since: int | None = None


def course(window: Marked, kind: int) -> Course:
    none = np.empty(0, np.int64)
    return Course(window, kind, none, none, none, none)


class StreamWindows(NamedTuple):
    """Windows of one type in some events: which each event is in, and each one's number."""

    assigned: marked.MarkAssignment
    number: Ints
    start: Ints


def follow(state: Course, events: settled.Ordered) -> tuple[Course, StreamWindows]:
    """Follows a type's windows through events; numbers those that begin."""
    is_open = state.start != OPEN
    start, lanes = state.start[is_open], state.lane[is_open]
    held = marked.OpenMarked(
        state.window,
        Rows(start, start, lanes, start, start),
        state.unknown[is_open],
        state.since,
        state.lane,
    )
    assigned = marked.assign(held, events)
    # A window that began unseen is no result; but what overlaps it is none either.
    counts = (assigned.unknown == 0) | (state.window.reading == "gaps")
    fresh = counts.copy()
    fresh[assigned.carried] = False
    touched = events.key[events.heads]
    grown = _with_lanes(state, touched)
    place = np.searchsorted(grown.lane, assigned.key)
    before = np.concatenate([[0], np.cumsum(fresh)])
    rank = before[:-1] - before[np.searchsorted(assigned.key, assigned.key)]
    number = np.where(fresh, grown.begun[place] + rank, grown.begun[place] - 1)
    number = np.where(counts, number, -1)
    seen_from = (
        assigned.start
        if state.since is None
        else np.where(assigned.unknown > 0, state.since, assigned.start)
    )
    begun = grown.begun.copy()
    np.add.at(begun, place[fresh], 1)
    after, unknown = grown.start.copy(), grown.unknown.copy()
    after[np.searchsorted(grown.lane, touched)] = OPEN
    stays = ~assigned.closed
    after[place[stays]], unknown[place[stays]] = assigned.start[stays], assigned.unknown[stays]
    return grown._replace(begun=begun, start=after, unknown=unknown), StreamWindows(
        assigned, number, seen_from
    )


def _with_lanes(state: Course, lanes: Ints) -> Course:
    """The same with a place for these lanes too."""
    every = np.union1d(state.lane, lanes)
    at = np.searchsorted(every, state.lane)

    def put(values: Ints, fill: int) -> Ints:
        made = np.full(len(every), fill, np.int64)
        made[at] = values
        return made

    return state._replace(
        lane=every,
        begun=put(state.begun, 0),
        start=put(state.start, OPEN),
        unknown=put(state.unknown, 0),
    )


def cut(
    courses: Sequence[Course], events: settled.Ordered, group: Group, operators: Operators
) -> tuple[list[Course], Owned]:
    """Cuts settled events at edges and at their stream's own marks."""
    kinds = len(own_windows(group))
    if not courses:
        return [], concat_owned([], kinds, operators)
    cuts = np.zeros(len(events), np.bool_)
    after: list[Course] = []
    found: list[StreamWindows] = []
    for state in courses:
        moved, followed = follow(state, events)
        after.append(moved)
        found.append(followed)
        cuts |= boundaries(followed.assigned)
    rows, heads = settled.cut_rows(events, cuts, group, operators)
    rows.start = np.where(rows.start <= EARLIEST, rows.first, rows.start)
    rows.end = np.where(rows.end >= LATEST, rows.last + 1, rows.end)
    tags = untagged(len(rows), kinds)
    parts = []
    for state, followed in zip(courses, found, strict=True):
        kind = state.kind
        member = followed.assigned.member[heads]  # -1, in none, is the place of the one appended
        number = tags[:, 1 + 3 * kind] = np.append(followed.number, -1)[member]
        start = np.append(followed.start, 0)[member]
        tags[:, 2 + 3 * kind] = np.where(number >= 0, start, 0)
        parts.append(_ended(followed, kind, kinds, events, group, operators))
    owned = concat_owned([Owned(rows, tags), *parts], kinds, operators)
    stream, owned.rows.key = parts_of(owned.rows.key)
    owned.tags[:, 0] = np.where((owned.tags[:, 1::3] >= 0).any(axis=1), stream, 0)
    return after, owned


def _ended(
    followed: StreamWindows,
    kind: int,
    kinds: int,
    events: settled.Ordered,
    group: Group,
    operators: Operators,
) -> Owned:
    """A row for each window that ended, which says so; it lies in the slice of the window's end."""
    done = np.flatnonzero(followed.assigned.closed & (followed.number >= 0))
    at = followed.assigned.end[done]
    edges = settled.slice_edges(group).around(
        events.time, int(events.time.min()), int(events.time.max())
    )
    place = np.searchsorted(edges, at, side="right") - 1
    low, high = edges[place], edges[place + 1]
    rows = Rows(
        np.where(low <= EARLIEST, at, low),
        np.where(high >= LATEST, at + 1, high),
        followed.assigned.key[done],
        at,
        at,
        identity_fields(operators, len(done)),
    )
    tags = untagged(len(done), kinds)
    tags[:, 1 + 3 * kind], tags[:, 2 + 3 * kind] = followed.number[done], followed.start[done]
    tags[:, 3 + 3 * kind] = at
    return Owned(rows, tags)


def untagged(rows: int, kinds: int) -> Ints:
    """Tags of slices that are in no window, of no stream."""
    tags = np.full((rows, 1 + 3 * kinds), OPEN, np.int64)
    tags[:, 1::3], tags[:, 2::3] = -1, 0
    return tags


def whole(windows: LaneWindow, kind: int, kinds: int) -> Owned:
    """Windows as slices that are nothing else: each says where it began, and where it has ended if
    it has."""
    stream, key = parts_of(windows.lane)
    tags = untagged(len(key), kinds)
    tags[:, 0], tags[:, 1 + 3 * kind] = stream, windows.number
    tags[:, 2 + 3 * kind], tags[:, 3 + 3 * kind] = windows.start, windows.end
    first = windows.start
    # What is open at the end of the input does not come too late, wherever it began.
    start = np.where(windows.end == OPEN, LATEST - 2, first)
    return Owned(Rows(start, start + 1, key, first, first, dict(windows.fields)), tags)


# -- as tables ---------------------------------------------------------------------------------


def tag_names(kinds: int) -> list[str]:
    return [f"#{what} {kind}" for kind in range(kinds) for what in ("window", "opened", "closed")]


def tags_to_columns(owned: Owned, streams: Streams) -> dict[str, pa.Array[Any]]:
    names = tag_names(owned.tags.shape[1] // 3)
    columns = {name: pa.array(column) for name, column in zip(names, owned.tags.T[1:], strict=True)}
    return {STREAM: streams.column(owned.tags[:, 0]), **columns}


def tags_of(table: pa.Table, kinds: int, streams: Streams) -> Ints:
    columns = [codec.ints(table, name) for name in tag_names(kinds)]
    first = streams.codes(codec.whole(table, STREAM))
    return np.stack([first, *columns], axis=1) if kinds else first.reshape(-1, 1)


def tells_ends(table: pa.Table) -> Mask:
    """Which partials only say that a window has ended: whoever knows of it must hear that."""
    found = np.zeros(table.num_rows, np.bool_)
    for name in table.schema.names:
        if name.startswith("#closed "):
            found |= codec.ints(table, name) != OPEN
    return found
