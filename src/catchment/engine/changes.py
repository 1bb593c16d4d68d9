"""Queries that come and go while an engine runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from catchment.engine import counted
from catchment.engine.bound_group import BoundGroup
from catchment.engine.group import Era, GroupState
from catchment.engine.results import Limit
from catchment.engine.rows import Operators, Rows, identity_fields
from catchment.engine.store import Store
from catchment.model.plan import Answer, Plan
from catchment.model.window import Counted, Period, Window
from catchment.planner.cost import periods_of
from catchment.planner.edges import EARLIEST, LATEST, Edges, Series
from catchment.planner.group import operators_of

_LOOKED_AT = 1 << 16
"""Edges of a new window type that are compared with those of older plans, at most."""


def answer_limit(state: GroupState, answer: Answer) -> Limit | None:
    """Whether a new query must skip windows that began before its operators did."""
    since = EARLIEST
    for ref in operators_of([answer]):
        stands_in = next(
            (
                id
                for id, operator in state.operators.items()
                if operator.ref == ref
                or (operator.ref.column == ref.column and ref.kind in operator.derives)
            ),
            "",
        )
        since = max(since, state.known_since.get(stands_in, EARLIEST))
    return Limit(since=since) if since > EARLIEST else None


def move(old: GroupState, new: GroupState, newest: int) -> None:
    """Carries a group's state over to the group that continues it."""
    operators = new.operators
    since = newest if newest > EARLIEST else None  # before the first event nothing was missed
    new.known_since = {
        id: old.known_since.get(id, EARLIEST) if id in old.operators else newest for id in operators
    }
    new.keys, new.late, new.newest = old.keys, old.late, old.newest
    new.waiting = [with_columns(table, new.bound) for table in old.waiting]
    new.repeats = old.repeats
    new.frontier = old.frontier
    new.kept_from, new.eras = old.kept_from, old.eras
    if newest > EARLIEST:
        # Without periodic windows no slice is kept; after the newest event, none was forgotten.
        new.kept_from = min(old.kept_from if len(old.series) else LATEST, newest + 1)
        new.eras = _eras(old, newest) if len(new.series) else []
    new.slices, new.partials, new.calls = old.slices, old.partials, old.calls
    new.pending = [fit(rows, operators) for rows in old.pending] if len(new.series) else []
    new.fresh = [fit(rows, operators) for rows in old.fresh] if new.sessions else []
    new.store = Store(new.group.store, operators)
    if len(new.series):
        new.store.append(fit(old.store.all_rows(), operators))
    if new.ledger is not None and old.ledger is not None:
        _move_ledger(old, new)
    was = {window: place for place, window in enumerate(old.group.windows)}
    _move_periodic(old, new, was, newest)
    for place, session in new.sessions.items():
        known = old.sessions.get(was.get(new.group.windows[place], -1))
        new.sessions[place] = (
            session._replace(since=since)
            if known is None
            else known._replace(open=fit(known.open, operators))
        )
    for place, mark in new.marks.items():
        known_mark = old.marks.get(was.get(new.group.windows[place], -1))
        new.marks[place] = (
            mark._replace(since=since)
            if known_mark is None
            else known_mark._replace(open=fit(known_mark.open, operators))
        )
    _move_ranks(old, new, newest)
    if new.own is not None and old.own is not None:
        new.own.move(old.own, since, fit)


def fit(rows: Rows, operators: Operators) -> Rows:
    """Rows with the fields of these operators: what they lack holds no values."""
    missing = identity_fields(operators, len(rows))
    fields = {name: rows.fields.get(name, column) for name, column in missing.items()}
    return Rows.of(rows.columns(), fields)


def _move_periodic(old: GroupState, new: GroupState, was: dict[Window, int], newest: int) -> None:
    for place, window in enumerate(new.group.windows):
        rows, known = np.flatnonzero(new.kinds == place), was.get(window)
        if known is not None:
            new.series.first[rows] = old.series.first[old.kinds == known]
        elif newest > EARLIEST:
            for row, period in zip(rows.tolist(), window.periods, strict=True):
                first = first_answerable(period, new)
                new.series.first[row] = max(int(new.series.first[row]), first)


def _eras(old: GroupState, newest: int) -> list[Era]:
    """The plans by which slices were cut that the next plan starts from.

    Events that wait are cut by the plan that is there when they settle. What others cut may still
    be on its way: so it is not the slices that are here that tell.
    """
    windows = tuple(window for window in old.group.windows if window.periods)
    until = min(newest, old.frontier - 1) if old.group.slicing == "settled" else newest
    latest = {era.windows: era.until for era in old.eras}
    latest[windows] = max(until, latest.get(windows, until))
    return [Era(*era) for era in latest.items() if era[1] >= old.kept_from]


def first_answerable(period: Period, state: GroupState) -> int:
    """The number of the first window from which on all windows of a new series are complete.

    A window is complete if all slices that may hold its events are kept, and if none of them lies
    across its start or its end: each of the two is an edge of every plan by which events at or
    after it were cut.
    """
    begin = state.kept_from
    number = -((period.offset - begin) // period.slide)
    first = max(number, int(Series([period]).ending_after(max(state.frontier, EARLIEST))[0]))
    for era in state.eras:
        edges = Edges(periods_of(era.windows))
        for edge in (period.offset, period.offset + period.length):
            first = max(first, _after_last_uncut(edge, period, edges, first, era.until))
    return first


def _after_last_uncut(edge: int, period: Period, edges: Edges, first: int, until: int) -> int:
    """The number after that of the last window whose edge by a time is not among these edges.

    `edge` is the one of the window with number 0. Edges are looked at from the last backwards:
    where the slide is a multiple of an older one, all of them may be cut.
    """
    last = 0 if period.only else (until - edge) // period.slide
    if last < first or (period.only and edge > until):
        return first
    for slide, offset in zip(edges.slides.tolist(), edges.offsets.tolist(), strict=True):
        if not period.only and period.slide % slide == 0 and (edge - offset) % slide == 0:
            return first
    low = last if period.only else max(first, last - _LOOKED_AT)
    uncut = np.flatnonzero(~edges.covers(edge + np.arange(low, last + 1) * period.slide))
    if len(uncut):
        return low + int(uncut[-1]) + 1
    return low


def with_columns(table: pa.Table, bound: BoundGroup) -> pa.Table:
    """Waiting events with the columns of a new plan, in its order; what it does not need goes.

    Windows that need a column which was not kept begin later, so its values do not matter.
    """
    missing = [field for field in bound.waiting_schema if field.name not in table.schema.names]
    for field in missing:
        mark = field.name.startswith("?")
        nothing = np.zeros(table.num_rows, np.bool_) if mark else [None] * table.num_rows
        table = table.append_column(field, pa.array(nothing, field.type))
    return table.select(bound.waiting_schema.names)


def _move_ranks(old: GroupState, new: GroupState, newest: int) -> None:
    """Count windows that started together stay together; new ones start with the next event."""
    tracks: list[tuple[tuple[int, ...], counted.Ranks]] = []
    placed: set[int] = set()
    places = {window: place for place, window in enumerate(new.group.windows)}
    for kinds, state in old.ranks:
        kept = [k for k in kinds if old.group.windows[k] in places]
        if not kept:
            continue
        windows = tuple(w for k, w in zip(kinds, state.windows, strict=True) if k in kept)
        numbers = tuple(places[old.group.windows[k]] for k in kept)
        rows = fit(state.kept, new.operators)
        tracks.append((numbers, state._replace(windows=windows, kept=rows)))
        placed.update(numbers)
    fresh = {
        n: w for n, w in enumerate(new.group.windows) if isinstance(w, Counted) and n not in placed
    }
    if fresh:
        since = newest if newest > EARLIEST else None
        tracks.append((tuple(fresh), counted.ranks(tuple(fresh.values()), new.operators, since)))
    new.ranks = tracks


def _move_ledger(old: GroupState, new: GroupState) -> None:
    assert old.ledger is not None and new.ledger is not None
    places = {window: place for place, window in enumerate(new.group.windows)}
    moved = {k: places.get(window, -1) for k, window in enumerate(old.group.windows)}
    for before, said in old.ledger.said.items():
        kind, key, low, high, copy = before
        if moved[kind] >= 0:
            identity = moved[kind], key, low, high, copy
            new.ledger.said[identity] = said
            new.ledger.ends[identity] = old.ledger.ends[before]
            if before in old.ledger.doubtful:
                new.ledger.doubtful.add(identity)


def drained(plan: Plan, states: Mapping[int, GroupState], name: str, until: int) -> bool:
    """Whether no window of a query that began by `until` is still open."""
    group, number = plan.names[name]
    state = states.get(group)
    if state is None:
        return True
    place = plan.groups[group].answers[number].window
    window = plan.groups[group].windows[place]
    if state.frontier <= until:
        return False  # an event may still come by which a window begins in time
    waits = any((t.column("#time").to_numpy() <= until).any() for t in state.waiting)
    if window.periods:
        return all(
            until + period.length <= state.frontier - 1 or (period.only and period.offset > until)
            for period in window.periods
        )
    if place in state.sessions:
        rows = [state.sessions[place].open, *state.fresh]
        return not waits and not any((part.first <= until).any() for part in rows)
    if state.own is not None and place in state.own.places:
        return not waits and not state.own.waits(place, until)
    if place in state.marks:
        return not waits and not (state.marks[place].open.start <= until).any()
    rows = [tally.kept for kinds, tally in state.ranks if place in kinds]
    return not waits and not any((part.first <= until).any() for part in rows)
