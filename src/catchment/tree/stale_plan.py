"""What silent nodes cut by an older plan that nobody knew of when others changed to a newer one.

Such events do not serve queries that are newer than that plan: windows of these queries that began
by then lack them. Events in messages that were lost serve no query. Events that came too late serve
only groups whose slices had not ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from catchment.model.window import Window
from catchment.planner.edges import LATEST
from catchment.tree.charter import Charter
from catchment.tree.records import Behind, Lag, Lagging


def joined(parts: Iterable[Behind]) -> Behind:
    """Several accounts as one: by node and version, the newest time that any of them has.

    >>> one, two = {"a": Lag({1: 5})}, {"a": Lag({1: 7, 2: 9}, lost=4), "b": Lag({1: 3})}
    >>> joined([one, two])
    {'a': Lag(cut={1: 7, 2: 9}, lost=4, late={}), 'b': Lag(cut={1: 3}, lost=None, late={})}
    """
    found: Behind = {}
    for part in parts:
        for node, lag in part.items():
            held = found.get(node, Lag())
            newest = [time for time in (held.lost, lag.lost) if time is not None]
            found[node] = Lag(
                _newest(held.cut, lag.cut),
                max(newest, default=None),
                _newest(held.late, lag.late),
            )
    return found


def _newest(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    """The newer of two times, by number."""
    numbers = sorted(one.keys() | other.keys())
    return {n: max(some[n] for some in (one, other) if n in some) for n in numbers}


def followed(behind: Behind, lineage: Mapping[int, int]) -> Behind:
    """The same by the groups of the next plan; `lineage` says which group each of them continues.

    >>> followed({"a": Lag(late={0: 5, 1: 7})}, {0: 1, 2: 1})
    {'a': Lag(cut={}, lost=None, late={0: 7, 2: 7})}
    """
    return {
        node: Lag(
            lag.cut,
            lag.lost,
            {new: lag.late[old] for new, old in lineage.items() if old in lag.late},
        )
        for node, lag in behind.items()
    }


def lost_in(behind: Behind) -> Behind:
    """The events that were lost, without those that were only cut by an older plan."""
    return {node: Lag(lost=lag.lost) for node, lag in behind.items() if lag.lost is not None}


def recent(behind: Behind, time: int, unbounded: Collection[int] = ()) -> Behind:
    """Leaves out events before a time, which no open window reaches back to.

    What was lost stays, and so does what windows of unbounded length may lack: `unbounded` are the
    groups that have such windows.
    """
    kept = {
        node: Lag(
            {plan: t for plan, t in lag.cut.items() if t >= time or unbounded},
            lag.lost,
            {group: t for group, t in lag.late.items() if t >= time or group in unbounded},
        )
        for node, lag in behind.items()
    }
    return {node: lag for node, lag in kept.items() if lag != Lag()}


def added(charter: Charter, plan: int) -> dict[str, int]:
    """By query: the version of the plan that added it, or that last moved it to another group."""
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
    """The queries that a version of the plan moved to other groups."""
    older = charter.plans.get(version - 1)
    known = {} if older is None else older.plan.former
    former = charter.plans[version].plan.former
    return {query for name, query in former.items() if name not in known}


def _touched(window: Window, time: int, otherwise: int) -> int:
    """The start of the last window that events up to a time could have changed; `otherwise` where
    any later window could be changed too."""
    last = window.last_touched(time)
    return otherwise if last is None else last


def lagging_in(behind: Behind, charter: Charter, plan: int) -> Lagging | None:
    """What `lacking` needs to know of a step; None: results of the step lack nothing."""
    if not behind:
        return None
    return Lagging(behind, added(charter, plan))


def read_until(read: Iterable[Window], time: int) -> int:
    """The time of the last result, read by another query, that events up to a time may be in.

    `read` are the windows that the events pass through until they are read, the first one first.
    Without any, the events are read themselves, and the time is their own.
    """
    for window in read:
        last = window.last_touched(time)
        if last is None or not window.periods:
            return LATEST
        time = last + window.reach - 1
    return time


def lacking(
    lagging: Lagging,
    name: str,
    groups: Collection[int],
    table: pa.Table,
    windows: Sequence[Window],
) -> list[tuple[str, ...]]:
    """For each window of a query: the nodes whose events it may lack.

    `windows` are those through which events reach it, its own last, and `groups` those that slice
    events for the first of them.

    Events that were dropped as late take no rank and are no marks, whoever dropped them: windows
    that follow from those before are marked up to the time of such events, and not for good.
    """
    *read, window = windows
    since = lagging.added[name]
    newest: dict[str, int] = {}
    for node, lag in sorted(lagging.behind.items()):
        cut = [read_until(read, time) for plan, time in lag.cut.items() if plan < since]
        older = [_touched(window, time, time) for time in cut]
        lost = [] if lag.lost is None else [_touched(window, read_until(read, lag.lost), LATEST)]
        ends = [read_until(read, lag.late[group] - 1) for group in groups if group in lag.late]
        late = [_touched(window, time, time) for time in ends]
        if older or lost or late:
            newest[node] = max(older + lost + late)
    starts: list[int] = table.column("window_start").cast(pa.int64()).to_numpy().tolist()
    return [tuple(n for n, time in newest.items() if start <= time) for start in starts]
