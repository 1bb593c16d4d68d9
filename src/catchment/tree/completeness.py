"""Adds the columns `complete` and `missing` to results.

A table of results goes in. It comes out with a column that says whether the window has the events
of all nodes, and one that names the nodes whose events may lack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from catchment.engine.results import COMPLETE
from catchment.planner.planned import Planned
from catchment.tree.records import Lagging, Uncounted
from catchment.tree.stale_plan import lacking

Lacking = list[tuple[str, ...]]
"""For each window of a table: the nodes whose events may lack."""


def marked(
    results: Mapping[str, pa.Table],
    complete_until: int,
    missing: Sequence[str],
    short_of: Callable[[str, pa.Table], Lacking | None] | None = None,
) -> dict[str, pa.Table]:
    """Results with the columns `complete` and `missing`."""
    made: dict[int, tuple[pa.Table, pa.Table]] = {}
    """Marked tables by the address of the table they were made of. That table is kept beside them,
    so that no other table can get its address."""
    found: dict[str, pa.Table] = {}
    for name, table in results.items():
        short = None if short_of is None else short_of(name, table)
        if short is not None:
            found[name] = _marked(table, complete_until, missing, short)
            continue
        if id(table) not in made:  # queries that differ only in name have one table
            made[id(table)] = table, _marked(table, complete_until, missing, None)
        found[name] = made[id(table)][1]
    return found


def lacking_in(
    lagging: Lagging | None,
    planned: Planned,
    uncounted: Sequence[Uncounted],
    name: str,
    table: pa.Table,
) -> Lacking | None:
    """Who may have had events of windows that count as complete otherwise; None: nobody.

    Either their events were cut by a plan that is older than the query, or they were given up while
    count windows were counted: `uncounted` are such windows.
    """
    found: list[Lacking] = []
    if lagging is not None:
        found.append(lacking(lagging, name, table, planned.queries[name].window))
    if uncounted and planned.queries[name].window.by_rank:
        known = {(one.group, one.number, *one.key): one.nodes for one in uncounted}
        names = ("window_index", *planned.queries[name].by)
        places = zip(*(table.column(c).to_pylist() for c in names), strict=True)
        group = planned.plan.names[name][0]
        found.append([known.get((group, *place), ()) for place in places])
    return [sum(who, ()) for who in zip(*found, strict=True)] if found else None


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
