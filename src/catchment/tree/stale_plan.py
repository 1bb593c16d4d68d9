"""What nodes that were given up for silent cut by an older plan, after the others had gone over.

It cannot serve queries that are newer than that plan: of those, windows that began by then lack it.
What was lost serves no query at all.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from catchment.model.window import Window
from catchment.planner.edges import LATEST
from catchment.tree.charter import Charter
from catchment.tree.records import Behind, Lag, Lagging


def joined(parts: Iterable[Behind]) -> Behind:
    """The newest times that any of these accounts has, by node and version.

    >>> one, two = {"a": Lag({1: 5})}, {"a": Lag({1: 7, 2: 9}, lost=4), "b": Lag({1: 3})}
    >>> joined([one, two])
    {'a': Lag(cut={1: 7, 2: 9}, lost=4), 'b': Lag(cut={1: 3}, lost=None)}
    """
    found: Behind = {}
    for part in parts:
        for node, lag in part.items():
            held = found.get(node, Lag())
            newest = [time for time in (held.lost, lag.lost) if time is not None]
            plans = held.cut.keys() | lag.cut.keys()
            cut = {
                plan: max(some.cut[plan] for some in (held, lag) if plan in some.cut)
                for plan in sorted(plans)
            }
            found[node] = Lag(cut, max(newest, default=None))
    return found


def lost_in(behind: Behind) -> Behind:
    """What of it was lost, and not only cut by an older plan."""
    return {node: Lag(lost=lag.lost) for node, lag in behind.items() if lag.lost is not None}


def recent(behind: Behind, time: int) -> Behind:
    """Leaves out events before a time, which no open window reaches back to; what was lost
    stays."""
    late = {
        node: Lag({plan: t for plan, t in lag.cut.items() if t >= time}, lag.lost)
        for node, lag in behind.items()
    }
    return {node: lag for node, lag in late.items() if lag != Lag()}


def added(charter: Charter, plan: int) -> dict[str, int]:
    """The versions of the plan that brought the queries, or their last change of groups."""
    queries = charter.plans[plan].queries
    first = dict.fromkeys(queries, plan)
    open_ones = set(queries)
    for version in sorted((v for v in charter.plans if v <= plan), reverse=True):
        there = charter.plans[version].queries
        open_ones = {name for name in open_ones if there.get(name) == queries[name]}
        first |= dict.fromkeys(open_ones, version)
        open_ones -= _handed(charter, version)
    return first


def _handed(charter: Charter, version: int) -> set[str]:
    """The queries that went over to other groups with a version of the plan."""
    older = charter.plans.get(version - 1)
    known = {} if older is None else older.plan.former
    former = charter.plans[version].plan.former
    return {query for name, query in former.items() if name not in known}


def _touched(window: Window, time: int) -> int:
    """The last start of a window that events up to a time, had they been there, could change."""
    last = window.last_touched(time)
    return LATEST if last is None else last


def lagging_in(behind: Behind, charter: Charter, plan: int) -> Lagging | None:
    """For a step: who was behind, and since when queries are there; None: nobody was."""
    if not behind:
        return None
    return Lagging(behind, added(charter, plan))


def lacking(lagging: Lagging, name: str, table: pa.Table, window: Window) -> list[tuple[str, ...]]:
    """For each window of a query: the nodes whose events it may lack."""
    since = lagging.added[name]
    newest: dict[str, int] = {}
    for node, lag in sorted(lagging.behind.items()):
        older = [time for plan, time in lag.cut.items() if plan < since]
        lost = [] if lag.lost is None else [_touched(window, lag.lost)]
        if older or lost:
            newest[node] = max(older + lost)
    starts: list[int] = table.column("window_start").cast(pa.int64()).to_numpy().tolist()
    return [tuple(n for n, time in newest.items() if start <= time) for start in starts]
