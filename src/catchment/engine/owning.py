"""A group whose streams have windows of their own: cut on their node, put together at the root."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.engine import codec, readings, settled, streams
from catchment.engine.complete import Complete
from catchment.engine.readings import Awaited, Gathered
from catchment.engine.rows import Operators, Rows, no_rows
from catchment.engine.streams import OPEN, Course, Owned, Streams
from catchment.model.plan import Group
from catchment.model.window import Marked
from catchment.operators.ragged import Ints
from catchment.planner.edges import EARLIEST, LATEST

_COURSE = ("lane", "begun", "start", "unknown")
_SINCE = -1
"""In a table of courses, said of a row that tells when its type began, not of a lane."""


class Owning:
    """Both halves: where a stream is read, `courses`; where streams meet, `gathered`."""

    def __init__(self, group: Group, operators: Operators) -> None:
        self.group = group
        self.operators = operators
        self.streams = Streams()
        self.places = streams.own_windows(group)
        marked = [w for w in group.windows if isinstance(w, Marked)]
        self.courses = [streams.course(window) for window in marked]
        self.gathered = [readings.gathered(window, operators) for window in marked]
        self.open = [no_rows(operators) for _ in marked]
        """At the end of the input: the windows of each type that had not ended."""
        self._fresh: list[Owned] = []
        self._frontier = EARLIEST

    def cut(self, events: settled.Ordered) -> Owned:
        """Cuts settled events, and remembers which windows are open."""
        self.courses, owned = streams.cut(self.courses, events, self.group, self.operators)
        return owned

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
                readings.gather(state, owned, kind, self._frontier, self.operators)
                for kind, state in enumerate(self.gathered)
            ]

    def complete(self, frontier: int, live: Collection[str] | None) -> list[Complete]:
        """The windows that nothing can change any more; `live` are the streams that go on."""
        self.gather()
        awaited = self._awaited(live)
        if frontier >= LATEST:
            self.open = [state.rows.where(state.rows.end == OPEN) for state in self.gathered]
        out = []
        for kind, place in enumerate(self.places):
            state, done = readings.complete(self.gathered[kind], frontier, awaited, self.operators)
            self.gathered[kind] = state
            out.append(readings.as_complete(place, state.window, done, self.streams.names))
        return out

    def _awaited(self, live: Collection[str] | None) -> Awaited:
        names = self.streams.names
        if live is None:
            return Awaited(np.arange(1, len(names)))
        known = [code for code, name in enumerate(names) if name in live]
        return Awaited(np.array(known, np.int64), len(known) < len(live))

    @property
    def missed(self) -> int:
        """Slices that came too late for their window."""
        return sum(state.missed for state in self.gathered)

    def waits(self, place: int, until: int) -> bool:
        """Whether a window of a type that began by a time is still to come."""
        self.gather()
        kind = self.places.index(place)
        start = self.courses[kind].start
        open_ = ((start != OPEN) & (start <= until)).any()
        return bool(open_ or (self.gathered[kind].rows.start <= until).any())

    def begin(self, since: int) -> None:
        """Starts in the middle of streams whose events so far nobody has seen."""
        self.courses = [state._replace(since=since) for state in self.courses]
        self.gathered = [state._replace(since=since) for state in self.gathered]

    def move(self, old: Owning, since: int | None, fit: Any) -> None:
        """Goes on from the state of a group that this one continues."""
        old.gather()
        self.streams = old.streams
        was = {state.window: kind for kind, state in enumerate(old.courses)}
        for kind, state in enumerate(self.courses):
            known = was.get(state.window)
            if known is None:
                self.courses[kind] = state._replace(since=since)
                self.gathered[kind] = self.gathered[kind]._replace(since=since)
                continue
            self.courses[kind] = old.courses[known]
            held = old.gathered[known]
            self.gathered[kind] = held._replace(rows=fit(held.rows, self.operators))

    def fit(self, owned: Owned, old: Owning, rows: Rows) -> Owned:
        """Slices that the old one tagged, with these rows, as this one would have tagged them."""
        tags = np.full((len(rows), 1 + 3 * len(self.places)), OPEN, np.int64)
        tags[:, 1::3], tags[:, 2::3] = -1, 0
        tags[:, 0] = owned.tags[:, 0]
        was = {state.window: kind for kind, state in enumerate(old.courses)}
        for kind, state in enumerate(self.courses):
            if state.window in was:
                known = 1 + 3 * was[state.window]
                tags[:, 1 + 3 * kind : 4 + 3 * kind] = owned.tags[:, known : known + 3]
        # What only told of the end of a window that nobody asks for any more says nothing.
        said = Owned(rows, tags)
        return said.where(~owned.ends | said.ends)

    @property
    def tables(self) -> list[Rows]:
        self.gather()
        return [state.rows for state in self.gathered]

    @property
    def nbytes(self) -> int:
        """Of what is not in `tables`."""
        return 32 * sum(len(state.lane) for state in self.courses)

    # -- as tables --------------------------------------------------------------------------------

    def courses_table(self) -> pa.Table:
        """How far every type has come in every lane, and since when it is followed."""
        columns: dict[str, list[Ints]] = {name: [] for name in ("kind", *_COURSE)}
        for kind, state in enumerate(self.courses):
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
            mine = np.flatnonzero((kind == number) & (unknown != _SINCE))
            mine = mine[np.argsort(lanes[mine])]
            since = start[(kind == number) & (unknown == _SINCE)].tolist()
            self.courses[number] = Course(
                state.window,
                lanes[mine],
                begun[mine],
                start[mine],
                unknown[mine],
                since[0] if since else None,
            )

    def save(self, prefix: str, tables: dict[str, pa.Table]) -> dict[str, Any]:
        """Puts tables beside those of a snapshot; gives what is no table."""
        self.gather()
        tables[f"{prefix}courses"] = self.courses_table()
        for kind, state in enumerate(self.gathered):
            tables[f"{prefix}gathered {kind}"] = codec.rows_to_table(state.rows, self.operators)
            told = {"key": pa.array(state.key), "given": pa.array(state.given)}
            tables[f"{prefix}gathered {kind} given"] = pa.table(told)
            heard = pa.table({"lane": pa.array(state.heard)})
            tables[f"{prefix}gathered {kind} heard"] = heard
        return {
            "streams": self.streams.names[1:],
            "gathered": [[state.since, state.missed] for state in self.gathered],
        }

    def load(self, prefix: str, tables: Mapping[str, pa.Table], meta: dict[str, Any]) -> None:
        self.streams = Streams(meta["streams"])
        table = tables[f"{prefix}courses"]
        self.load_courses(table, codec.ints(table, "lane"))
        for kind, (since, missed) in enumerate(meta["gathered"]):
            rows = codec.table_to_rows(tables[f"{prefix}gathered {kind}"], self.operators)
            told = tables[f"{prefix}gathered {kind} given"]
            self.gathered[kind] = Gathered(
                self.gathered[kind].window,
                rows,
                since,
                codec.ints(told, "key"),
                codec.ints(told, "given"),
                missed,
                codec.ints(tables[f"{prefix}gathered {kind} heard"], "lane"),
            )
