"""Windows that each stream has for itself: followed on its node, put together at the root.

The state has two halves. Where a stream is read, it knows how far its windows have come, and cuts
settled events into slices that know their windows; windows that no marks bound become one slice
each, once they have ended. Where streams meet, it has a row for each window of a stream, until all
that make one result are there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa

from catchment.engine import codec, settled, stream_merge, streams
from catchment.engine.bound_group import BoundGroup
from catchment.engine.complete import Complete
from catchment.engine.lanes import OPEN, LaneWindow, LaneWindows
from catchment.engine.rows import Rows, fit, no_rows
from catchment.engine.shapes.base import Change, Get, Moment, Put, ShapeState
from catchment.engine.stream_merge import Awaited, Gathered
from catchment.engine.streams import Course, Owned, Streams
from catchment.model.window import Marked, Window
from catchment.operators.ragged import Ints, plain
from catchment.planner.edges import EARLIEST, LATEST

_COURSE = ("lane", "begun", "start", "unknown")
_SINCE = -1
"""In a table of courses, said of a row that tells when its type began, not of a lane."""


_EVENTS = "count(*).count"
"""The field that says how many events a row holds."""


class StreamsRecord(msgspec.Struct, frozen=True):
    """What a snapshot holds of windows by stream besides tables."""

    streams: list[str]
    """The names of the streams, but for the first, which has none."""
    gathered: list[tuple[int | None, int]]
    """For each window type: since when it is known, and how many slices came too late."""


class StreamsState(ShapeState):
    """Both halves: `courses` and `lanes` where a stream is read, `gathered` where streams meet."""

    name = "streams"
    keeps_keys = True  # how many windows a key has had is kept for good

    def __init__(
        self,
        bound: BoundGroup,
        windows: Mapping[int, Window],
        marked: Mapping[int, Marked],
        others: Sequence[ShapeState],
    ) -> None:
        """`windows` are all that each stream has for itself. Those that are `marked` are followed
        here, the others each by the state of its shape."""
        super().__init__(bound, windows)
        self.group = bound.group
        self.streams = Streams()
        self.courses = [streams.course(w, self.places.index(n)) for n, w in marked.items()]
        self.lanes = LaneWindows(bound, windows, others)
        self.gathered = [
            stream_merge.gathered(window, self.operators, whole=place in self.lanes.windows)
            for place, window in windows.items()
        ]
        self._elsewhere = False
        """Whether windows are followed on other nodes."""
        self.open = [no_rows(self.operators) for _ in windows]
        """At the end of the input: the windows of each type that had not ended."""
        self._fresh: list[Owned] = []
        self._frontier = EARLIEST

    def cut(self, events: settled.Ordered | None, time: int) -> Owned:
        """Cuts the events before a time, and remembers which windows are open."""
        kinds = len(self.places)
        parts: list[Owned] = []
        ended: list[LaneWindow] = []
        if events is not None and len(events):
            self.courses, owned = streams.cut(self.courses, events, self.group, self.operators)
            parts.append(owned)
            ended += self.lanes.follow(events)
        ended += self.lanes.pass_time(time)
        parts += [streams.whole(some, self.places.index(some.place), kinds) for some in ended]
        return streams.concat_owned(parts, kinds, self.operators)

    def take_in(self, owned: Owned, frontier: int) -> None:
        """Takes in slices that come while the frontier is there."""
        self._fresh.append(owned)
        self._frontier = frontier

    def gather(self) -> None:
        """Merges what has come into the windows that it is in."""
        fresh, self._fresh = self._fresh, []
        if fresh:
            owned = streams.concat_owned(fresh, len(self.places), self.operators)
            self.gathered = [
                stream_merge.gather(state, owned, kind, self._frontier, self.operators)
                for kind, state in enumerate(self.gathered)
            ]

    def complete(self, moment: Moment) -> list[Complete]:
        self.gather()
        self._elsewhere = moment.live is not None
        awaited, time = self._awaited(moment.live), moment.frontier
        if time >= LATEST:
            self.open = [state.rows.where(state.rows.end == OPEN) for state in self.gathered]
        out = []
        for kind, place in enumerate(self.places):
            state, done = stream_merge.complete(self.gathered[kind], time, awaited, self.operators)
            self.gathered[kind] = state
            out.append(stream_merge.as_complete(place, state.window, done, self.streams.names))
        return out

    def _awaited(self, live: Collection[str] | None) -> Awaited:
        names = self.streams.names
        if live is None:
            return Awaited(np.arange(1, len(names)))
        known = [code for code, name in enumerate(names) if name in live]
        return Awaited(np.array(known, np.int64), len(known) < len(live))

    def next_end(self, frontier: int) -> int | None:
        """When the first window has ended that a stream has told of and the frontier has not
        passed."""
        ends = [stream_merge.ends_after(state, frontier) for state in self.gathered]
        return min((int(some.min()) for some in ends if len(some)), default=None)

    @property
    def missed(self) -> int:
        """Slices that came too late for their window."""
        return sum(state.missed for state in self.gathered)

    def ended(self, place: int, until: int, frontier: int, waiting: bool) -> bool:
        """Of windows that climb whole nobody knows at the root whether any is open."""
        self.gather()
        kind = self.places.index(place)
        if waiting or (self.gathered[kind].rows.start <= until).any():
            return False
        if place in self.lanes.windows:
            return not self._elsewhere and self.lanes.ended(place, until, waiting)
        start = next(course.start for course in self.courses if course.kind == kind)
        return not ((start != OPEN) & (start <= until)).any()

    def unended(self, newest: int) -> Iterator[tuple[Complete, int]]:
        """Windows that are open on one node or another, put together by their reading.

        The end of such a window so far is just after the newest event of the group.
        """
        for place, gathered, rows in zip(self.places, self.gathered, self.open, strict=True):
            if gathered.since is not None:
                rows = rows.where(rows.start > gathered.since)
            events = _events_in(rows)
            if gathered.window.reading == "ordered":
                # Of these, another stream's window has gone out under the same number.
                rows = rows.where(~stream_merge.went_out(gathered, rows))
            # A copy: the windows stay open, whatever is closed once more.
            rows = replace(rows, end=np.full(len(rows), newest + 1, np.int64))
            nobody = stream_merge.Awaited(np.empty(0, np.int64))
            alone = gathered._replace(rows=rows)
            _, done = stream_merge.complete(alone, LATEST, nobody, self.operators)
            yield stream_merge.as_complete(place, gathered.window, done, self.streams.names), events

    def begin(self, frontier: int, newest: int) -> None:
        if newest > EARLIEST:
            self.courses = [state._replace(since=newest) for state in self.courses]
            self.lanes.begin(newest)
            self.gathered = [state._replace(since=newest) for state in self.gathered]

    def continue_from(self, old: StreamsState | None, change: Change) -> None:
        if old is not None:
            self.go_on_from(old, change.since)

    def go_on_from(self, old: StreamsState, since: int | None) -> None:
        """Goes on from the state of a group that this one continues."""
        old.gather()
        self.streams = old.streams
        self.lanes.continue_from(old.lanes, since)
        courses = {state.window: state for state in old.courses}
        for n, state in enumerate(self.courses):
            before = courses.get(state.window)
            self.courses[n] = (
                state._replace(since=since) if before is None else before._replace(kind=state.kind)
            )
        held = {state.window: state for state in old.gathered}
        for kind, one in enumerate(self.gathered):
            known = held.get(one.window)
            self.gathered[kind] = (
                one._replace(since=since)
                if known is None
                else known._replace(rows=fit(known.rows, self.operators))
            )

    def retagged(self, owned: Owned, old: StreamsState, rows: Rows) -> Owned:
        """Slices that the old one tagged, with these rows, as this one would have tagged them."""
        tags = streams.untagged(len(rows), len(self.places))
        tags[:, 0] = owned.tags[:, 0]
        was = {state.window: kind for kind, state in enumerate(old.gathered)}
        for kind, state in enumerate(self.gathered):
            if state.window in was:
                known = 1 + 3 * was[state.window]
                tags[:, 1 + 3 * kind : 4 + 3 * kind] = owned.tags[:, known : known + 3]
        # What only told of the end of a window that nobody asks for any more says nothing.
        said = Owned(rows, tags)
        return said.where(~owned.ends | said.ends)

    def tables(self) -> list[Rows]:
        self.gather()
        return [state.rows for state in self.gathered]

    @property
    def nbytes(self) -> int:
        return 32 * sum(len(state.lane) for state in self.courses) + self.lanes.nbytes

    # -- as tables --------------------------------------------------------------------------------

    def courses_table(self) -> pa.Table:
        """How far every type has come in every lane, and since when it is followed."""
        columns: dict[str, list[Ints]] = {name: [] for name in ("kind", *_COURSE)}
        for state in self.courses:
            kind = state.kind
            for name in _COURSE:
                columns[name].append(getattr(state, name))
            columns["kind"].append(np.full(len(state.lane), kind, np.int64))
            if state.since is not None:
                for name, value in zip(
                    ("kind", *_COURSE), (kind, 0, 0, state.since, _SINCE), strict=True
                ):
                    columns[name].append(np.array([value], np.int64))
        none = np.empty(0, np.int64)
        return pa.table({n: pa.array(np.concatenate([none, *c])) for n, c in columns.items()})

    def load_courses(self, table: pa.Table, lanes: Ints) -> None:
        """The inverse; lanes may have got other numbers."""
        kind, begun, start, unknown = (
            codec.ints(table, name) for name in ("kind", "begun", "start", "unknown")
        )
        for number, state in enumerate(self.courses):
            mine = np.flatnonzero((kind == state.kind) & (unknown != _SINCE))
            mine = mine[np.argsort(lanes[mine])]
            since = start[(kind == state.kind) & (unknown == _SINCE)].tolist()
            self.courses[number] = Course(
                state.window,
                state.kind,
                lanes[mine],
                begun[mine],
                start[mine],
                unknown[mine],
                since[0] if since else None,
            )

    def save(self, put: Put) -> None:
        self.gather()
        put.table("courses", self.courses_table())
        if self.lanes.states:
            put.table("lanes", self.lanes.table())
            put.table("whole", pa.table({"states": [self.lanes.save()]}))
        for kind, state in enumerate(self.gathered):
            put.rows(f"gathered {kind}", state.rows)
            put.ints(f"gathered {kind} given", key=state.key, given=state.given)
            put.ints(f"gathered {kind} heard", lane=state.heard)
        gathered = [(state.since, state.missed) for state in self.gathered]
        put.record(StreamsRecord(self.streams.names[1:], gathered))

    def load(self, get: Get) -> None:
        saved = get.record(StreamsRecord)
        self.streams = Streams(saved.streams)
        self.load_courses(get.table("courses"), get.ints("courses", "lane"))
        if self.lanes.states:
            states = get.table("whole").column("states")[0].as_py()
            self.lanes.load(get.table("lanes"), get.ints("lanes", "lane"), states)
        for kind, (since, missed) in enumerate(saved.gathered):
            self.gathered[kind] = Gathered(
                self.gathered[kind].window,
                get.rows(f"gathered {kind}"),
                since,
                get.ints(f"gathered {kind} given", "key"),
                get.ints(f"gathered {kind} given", "given"),
                missed,
                get.ints(f"gathered {kind} heard", "lane"),
                self.gathered[kind].whole,
            )


def _events_in(rows: Rows) -> int:
    """How many events are in windows that are open. Where those of a stream and key overlap, as
    count windows do, the first of them holds all of the others' events."""
    held = plain(rows.fields[_EVENTS]) if len(rows) else np.empty(0, np.int64)
    _, lane = np.unique(np.stack([rows.key, rows.first]), axis=1, return_inverse=True)
    most = np.zeros(len(rows), np.int64)
    np.maximum.at(most, lane, held)
    return int(most.sum())
