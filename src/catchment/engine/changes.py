"""Queries that come and go while an engine runs."""

from __future__ import annotations

from collections.abc import Mapping

from catchment.engine import counted
from catchment.engine.group import GroupState
from catchment.engine.results import Limit
from catchment.engine.rows import Operators, Rows, concat_rows, identity_fields
from catchment.engine.store import Store
from catchment.model.plan import Plan
from catchment.model.window import Counted, Periodic, Window
from catchment.planner.edges import EARLIEST, Edges, Series
from catchment.planner.group import operators_of


def answer_limit(
    before: Plan, after: Plan, lineage: Mapping[int, int], name: str, newest: int
) -> Limit | None:
    """Whether a new query must skip windows that began before: when its operators are new."""
    group, number = after.names[name]
    if group not in lineage:
        return None
    old = before.groups[lineage[group]]
    kept = after.groups[group].operators
    needed = {tuple(ref) for ref in operators_of([after.groups[group].answers[number]])}
    # An operator that was only derived before may now stand by itself: all kept ones must be old.
    if needed & set(kept) <= set(old.operators) and set(kept) == set(old.operators):
        return None
    return Limit(since=newest)


def move(old: GroupState, new: GroupState, newest: int) -> None:
    """Carries a group's state over to the group that continues it."""
    operators = new.operators
    new.keys, new.waiting, new.late = old.keys, old.waiting, old.late
    new.repeats = old.repeats
    new.frontier, new.kept_from = old.frontier, old.kept_from
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
            session._replace(since=newest)
            if known is None
            else known._replace(open=fit(known.open, operators))
        )
    for place, mark in new.marks.items():
        known_mark = old.marks.get(was.get(new.group.windows[place], -1))
        new.marks[place] = (
            mark._replace(since=newest)
            if known_mark is None
            else known_mark._replace(open=fit(known_mark.open, operators))
        )
    _move_ranks(old, new, newest)


def fit(rows: Rows, operators: Operators) -> Rows:
    """Rows with the fields of these operators: what they lack holds no values."""
    missing = identity_fields(operators, len(rows))
    fields = {name: rows.fields.get(name, column) for name, column in missing.items()}
    return Rows.of(rows.columns(), fields)


def _move_periodic(old: GroupState, new: GroupState, was: dict[Window, int], newest: int) -> None:
    places = {int(kind): row for row, kind in enumerate(old.kinds)}
    for row, kind in enumerate(new.kinds):
        window = new.group.windows[kind]
        assert isinstance(window, Periodic)
        known = was.get(window)
        if known is not None:
            new.series.first[row] = old.series.first[places[known]]
        elif newest > EARLIEST:
            first = first_answerable(window, old, new, newest)
            new.series.first[row] = max(int(new.series.first[row]), first)


def first_answerable(window: Periodic, old: GroupState, new: GroupState, newest: int) -> int:
    """The number of the first window from which on kept slices serve: none straddles an edge."""
    reach = max(new.frontier, EARLIEST)
    if not len(old.series) or set(new.operators) != set(old.operators):
        begin = newest + 1
    else:
        rows = concat_rows([new.store.all_rows(), *new.pending], new.operators)
        begin = max(new.kept_from, EARLIEST)
        if len(rows):
            begin = max(begin, _after_last_cut(window, rows))
    series = Series([window])
    number = -((int(series.offsets[0]) - begin) // int(series.slides[0]))
    return max(number, int(series.ending_after(reach)[0]))


def _after_last_cut(window: Periodic, rows: Rows) -> int:
    """Just after the last edge that lies inside a slice there is."""
    last = EARLIEST
    for begin, end in {(int(b), int(e)) for b, e in zip(rows.start, rows.end, strict=True)}:
        inside = Edges([window]).between(begin, end - 1)[1:-1]
        if len(inside):
            last = max(last, int(inside[-1]) + 1)
    return last


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


def drained(plan: Plan, states: Mapping[int, GroupState], name: str, until: int) -> bool:
    """Whether no window of a query that began by `until` is still open."""
    group, number = plan.names[name]
    state = states.get(group)
    if state is None:
        return True
    place = plan.groups[group].answers[number].window
    window = plan.groups[group].windows[place]
    waits = any((t.column("#time").to_numpy() <= until).any() for t in state.waiting)
    if isinstance(window, Periodic):
        return until + window.length <= state.frontier - 1 or (
            window.only and window.offset > until
        )
    if place in state.sessions:
        rows = [state.sessions[place].open, *state.fresh]
        return not waits and not any((part.first <= until).any() for part in rows)
    if place in state.marks:
        return not waits and not (state.marks[place].open.start <= until).any()
    rows = [tally.kept for kinds, tally in state.ranks if place in kinds]
    return not waits and not any((part.first <= until).any() for part in rows)
