"""Adds the columns `complete` and `missing` to results.

A table of results goes in. It comes out with a column that says whether the window has the events
of all nodes, and one that names the nodes whose events may lack.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from catchment.engine.results import COMPLETE
from catchment.model.plan import chain_of
from catchment.model.query import Query
from catchment.model.window import Window
from catchment.planner.planned import Planned
from catchment.tree.records import Lagging, Uncounted, Unranked
from catchment.tree.stale_plan import lacking, read_until

Lacking = list[tuple[str, ...]]
"""For each window of a table: the nodes whose events may lack."""


def marked(
    results: Mapping[str, pa.Table],
    complete_until: int,
    missing: Sequence[str],
    short_of: Callable[[str, pa.Table], Lacking | None] | None = None,
    inclusive: Collection[str] = (),
) -> dict[str, pa.Table]:
    """Results with the columns `complete` and `missing`.

    A window of a query in `inclusive` may hold an event whose time is exactly its end. So where a
    node is missing, such a window may lack an event although `complete_until` is its end. Where no
    node is missing, every window that is given has all its events.
    """
    made: dict[int, tuple[pa.Table, pa.Table]] = {}
    """Marked tables by the address of the table they were made of. That table is kept beside them,
    so that no other table can get its address."""
    found: dict[str, pa.Table] = {}
    for name, table in results.items():
        short = None if short_of is None else short_of(name, table)
        known = complete_until - 1 if missing and name in inclusive else complete_until
        if short is not None:
            found[name] = _marked(table, known, missing, short)
            continue
        if id(table) not in made:  # queries that differ only in name have one table
            made[id(table)] = table, _marked(table, known, missing, None)
        found[name] = made[id(table)][1]
    return found


def inclusive_in(planned: Planned) -> set[str]:
    """The queries whose windows may hold an event just at their end, or that read the results of
    such queries: sessions, and windows that events end."""
    return {name for name, query in planned.queries.items() if _inclusive(query)}


def _inclusive(query: Query) -> bool:
    if query.window.session_gap is not None or query.window.bounded_by_events:
        return True
    return isinstance(query.source, Query) and _inclusive(query.source)


def lacking_in(
    lagging: Lagging | None,
    planned: Planned,
    uncounted: Sequence[Uncounted],
    unranked: Sequence[Unranked],
    name: str,
    table: pa.Table,
) -> Lacking | None:
    """For each window of a table, the nodes whose events it may lack; None: it lacks none.

    Their events were cut by a plan that is older than the query, or came too late, or they were
    given up while count windows were counted: `uncounted` are such windows. Or they did not say
    which values they keep back, or said what cannot be: `unranked` are such windows.
    """
    found: list[Lacking] = []
    group, window = planned.plan.names[name][0], planned.queries[name].window
    chain = chain_of(planned.plan, planned.plan.every_group[group], window)
    windows = [window for _, window in chain]
    groups = {chain[0][0], *_former_groups(planned, name)}
    if lagging is not None:
        found.append(lacking(lagging, name, groups, table, windows))
    if uncounted and planned.queries[name].window.by_rank:
        known = {(one.group, one.number, *one.key): one.nodes for one in uncounted}
        names = ("window_index", *planned.queries[name].by)
        places = zip(*(table.column(c).to_pylist() for c in names), strict=True)
        found.append([known.get((group, *place), ()) for place in places])
    if unranked:
        columns = (table.column(c).cast(pa.int64()) for c in ("window_start", "window_end"))
        bounds = [*zip(*(column.to_pylist() for column in columns), strict=True)]
        found += [
            [one.nodes if _among(one, windows, *pair) else () for pair in bounds]
            for one in unranked
            if one.group in groups
        ]
    return [sum(who, ()) for who in zip(*found, strict=True)] if found else None


def _former_groups(planned: Planned, name: str) -> list[int]:
    """The groups that a query has left, and that still give windows in its name."""
    plan = planned.plan
    return [plan.names[former][0] for former, query in plan.former.items() if query == name]


def _among(these: Unranked, windows: Sequence[Window], start: int, end: int) -> bool:
    """Whether a window is one of these, or reads results of some of them."""
    if len(windows) == 1:
        return these.after < end <= these.by and these.start in (None, start)
    return start <= read_until(windows[1:-1], these.by - 1) and end > these.after


def _marked(
    table: pa.Table, complete_until: int, missing: Sequence[str], short: Lacking | None
) -> pa.Table:
    late = pa.array(table.column("window_end").cast(pa.int64()).to_numpy() > complete_until)
    if short is None:
        nobody = pa.scalar(None, pa.string())
        names = pc.if_else(late, pa.scalar(", ".join(missing) or None, pa.string()), nobody)
    else:
        open_ones = [missing if open_one else [] for open_one in late.to_pylist()]
        who = [sorted({*some, *others}) for some, others in zip(short, open_ones, strict=True)]
        names = pa.array([", ".join(some) or None for some in who], pa.string())
    complete = pc.invert(pc.or_(late, pc.is_valid(names)))
    if COMPLETE in table.schema.names:  # some have not ended, and never will
        complete = pc.and_(complete, table.column(COMPLETE))
        table = table.drop_columns([COMPLETE])
    return table.append_column(COMPLETE, complete).append_column("missing", names)
