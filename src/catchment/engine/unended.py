"""Windows that are still open when the input ends: they begin in the data, and so do their ends.

Out of a group's state come the count windows that are not full and the user-defined windows whose
end nobody saw, as windows that could be results, and how many events lie in them. A window whose
beginning nobody saw (its query came later) is not among them: it is no result either way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from catchment.engine import counted, readings
from catchment.engine.complete import Complete
from catchment.engine.group import GroupState
from catchment.engine.owning import Owning
from catchment.operators.ragged import plain
from catchment.planner.edges import LATEST

_EVENTS = "count(*).count"
"""The field that says how many events a row holds."""


def unended(state: GroupState) -> Iterator[tuple[Complete, int]]:
    """By window type: the windows that are open, and how many events are in one of them."""
    found = [*_counted(state), *_marked(state)]
    if state.own is not None:
        found += _by_stream(state, state.own)
    for windows, events in found:
        if state.ledger is not None:
            windows.revision = np.zeros(len(windows), np.int64)
            windows.retracted = np.zeros(len(windows), np.bool_)
        yield windows, events


def _counted(state: GroupState) -> Iterator[tuple[Complete, int]]:
    for kinds, ranks in state.ranks:
        full = counted.open_windows(ranks, state.group.store, state.operators)
        for place, window in enumerate(ranks.windows):
            mine = np.flatnonzero(full.kind == place)
            rows = full.rows.take(mine)
            kind = np.full(len(mine), kinds[place], np.int64)
            windows = Complete(
                kind, rows.key, rows.first, rows.last, rows.fields, full.number[mine]
            )
            yield windows, counted.events_not_full(window, ranks.total)[1]


def _marked(state: GroupState) -> Iterator[tuple[Complete, int]]:
    for n, marks in state.marks.items():
        seen = marks.unknown == 0
        rows = marks.open.where(seen)
        kind = np.full(len(rows), n, np.int64)
        # A key has one open window, and its end is just after its last event: so no other window
        # has its bounds, not even one of no length.
        alone = np.zeros(len(rows), np.int64)
        windows = Complete(kind, rows.key, rows.start, rows.last + 1, rows.fields, alone)
        yield windows, int(marks.events[seen].sum())


def _by_stream(state: GroupState, own: Owning) -> Iterator[tuple[Complete, int]]:
    """Windows that are open on one node or another, put together by their reading.

    The end of such a window so far is just after the newest event of the group.
    """
    for place, gathered, rows in zip(own.places, own.gathered, own.open, strict=True):
        if gathered.since is not None:
            rows = rows.where(rows.start > gathered.since)
        events = int(plain(rows.fields[_EVENTS]).sum()) if len(rows) else 0
        if gathered.window.reading == "ordered":
            # Of these, another stream's window has gone out under the same number.
            rows = rows.where(~readings.went_out(gathered, rows))
        # A copy: the windows stay open, whatever is closed once more.
        rows = replace(rows, end=np.full(len(rows), state.newest + 1, np.int64))
        nobody = readings.Awaited(np.empty(0, np.int64))
        alone = gathered._replace(rows=rows)
        _, done = readings.complete(alone, LATEST, nobody, state.operators)
        yield readings.as_complete(place, gathered.window, done, own.streams.names), events
