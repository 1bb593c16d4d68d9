"""Windows that end where the data pauses: rows that no break parts are fused, in any order.

The state is one row for each open session and gap. Rows that come wait until windows are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from catchment.engine.bound_group import BoundGroup
from catchment.engine.complete import Complete, of_type
from catchment.engine.emitted import Emitted
from catchment.engine.rows import Operators, Rows, concat_rows, fit, merge_rows, no_rows
from catchment.engine.shapes.base import Change, Get, Moment, Put, ShapeState, UnmergedRows
from catchment.model.window import Gap
from catchment.operators import Grouping
from catchment.operators.grouping import sort_order
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST


class Sessions(NamedTuple):
    """The sessions of one gap that are not final: one row each, `first` to `last` event.

    Sessions that begin by `since + gap` may have begun unseen, and are not results.
    """

    gap: int
    open: Rows
    since: int | None = None


def sessions(gap: int, operators: Operators, since: int | None) -> Sessions:
    return Sessions(gap, no_rows(operators), since)


def step(state: Sessions, rows: Rows, frontier: int, operators: Operators) -> tuple[Sessions, Rows]:
    """Takes in rows; gives the sessions that nothing at or after the frontier can join."""
    fused = fuse(concat_rows([state.open, rows], operators), state.gap, operators)
    done = fused.last + state.gap < frontier
    return state._replace(open=fused.where(~done)), seen(state, fused.where(done))


def seen(state: Sessions, rows: Rows) -> Rows:
    return rows if state.since is None else rows.where(rows.first > state.since + state.gap)


def fuse(rows: Rows, gap: int, operators: Operators) -> Rows:
    """One row per session: sorted by key and time, a break is a pause longer than the gap."""
    if len(rows) < 2:
        return rows
    order = sort_order(rows.first, rows.key)
    rows = rows.take(order)
    other = rows.key[1:] != rows.key[:-1]
    new = np.ones(len(rows), np.bool_)
    new[1:] = other | (rows.first[1:] - latest(rows.last, other)[:-1] > gap)
    heads = np.flatnonzero(new)
    if len(heads) == len(rows):
        return rows
    return merge_rows(rows, Grouping(None, len(heads), starts=heads, rows=len(rows)), operators)


def latest(last: Ints, other: Mask) -> Ints:
    """The greatest `last` so far within each key (a row may lie inside the one before it)."""
    segment: Ints = np.concatenate([[0], np.cumsum(other)])
    if (np.diff(last)[~other] >= 0).all():
        return last
    # Ranks instead of times, so that adding a key's number cannot overflow.
    values, rank = np.unique(last, return_inverse=True)
    rank = rank.astype(np.int64) + segment * len(values)
    best = np.maximum.accumulate(rank) - segment * len(values)
    return values[best]


class SessionState(ShapeState):
    """The open sessions of each gap, and the rows that have come since they were fused."""

    name = "sessions"

    def __init__(
        self, bound: BoundGroup, windows: Mapping[int, Gap], emitted: Emitted | None
    ) -> None:
        super().__init__(bound, windows)
        self._updates = emitted is not None
        self._windows = list(windows.values())
        self._open = [sessions(window.gap, self.operators, None) for window in self._windows]
        self._fresh = UnmergedRows()

    def absorb(self, rows: Rows) -> None:
        self._fresh.add(rows)
        if self._fresh.untidy(self._open[0].open.nbytes):
            self.merge()

    def merge(self) -> None:
        self._step(EARLIEST)

    def complete(self, moment: Moment) -> list[Complete]:
        parts = [self._step(moment.horizon)]
        if self._updates:  # those that may still change are found again each time
            passing = (step(s, moment.loose, moment.ahead, self.operators) for s in self._open)
            parts.append([rows for _, rows in passing])
        return [
            of_type(place, rows, rows.first, rows.last + window.gap)
            for part in parts
            for place, window, rows in zip(self.places, self._windows, part, strict=True)
        ]

    def next_end(self, frontier: int) -> int | None:
        ends = [state.open.last + state.gap for state in self._open]
        open_ones = [some[some >= frontier] for some in ends]
        return min((int(some.min()) for some in open_ones if len(some)), default=None)

    def _step(self, horizon: int) -> list[Rows]:
        """Fuses what has come; gives the sessions of each gap that are final.

        Rows that no shorter gap parts are not parted by a longer one either: so each gap fuses what
        the one before it left.
        """
        fresh = self._fresh.emptied(self.operators)
        done = [fresh] * len(self._open)
        for place in np.argsort([state.gap for state in self._open], kind="stable").tolist():
            if len(self._open) > 1:
                fresh = fuse(fresh, self._open[place].gap, self.operators)
            self._open[place], done[place] = step(self._open[place], fresh, horizon, self.operators)
        return done

    def ended(self, place: int, until: int, frontier: int, waiting: bool) -> bool:
        rows = [self._open[self.places.index(place)].open, *self._fresh.rows]
        return not waiting and not any((part.first <= until).any() for part in rows)

    def begin(self, frontier: int, newest: int) -> None:
        if newest > EARLIEST:
            self._open = [state._replace(since=newest) for state in self._open]

    def continue_from(self, old: SessionState | None, change: Change) -> None:
        was = {} if old is None else dict(zip(old._windows, old._open, strict=True))
        if old is not None:
            self._fresh.rows = [fit(rows, self.operators) for rows in old._fresh.rows]
        for n, window in enumerate(self._windows):
            known = was.get(window)
            self._open[n] = (
                self._open[n]._replace(since=change.since)
                if known is None
                else known._replace(open=fit(known.open, self.operators))
            )

    def tables(self) -> list[Rows]:
        return [*self._fresh.rows, *(state.open for state in self._open)]

    def save(self, put: Put) -> None:
        put.rows("fresh", concat_rows(self._fresh.rows, self.operators))
        for place, state in zip(self.places, self._open, strict=True):
            put.rows(str(place), state.open)
        put.record([state.since for state in self._open])

    def load(self, get: Get) -> None:
        since_when = get.record(list[int | None])
        self._fresh.rows = [get.rows("fresh")]
        self._open = [
            state._replace(open=get.rows(str(place)), since=since)
            for place, state, since in zip(self.places, self._open, since_when, strict=True)
        ]
