"""What nodes that were given up for silent cut by an older plan, after the others had gone over.

It cannot serve queries that are newer than that plan: of those, windows that began by then lack it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from catchment.model.window import Window
from catchment.planner.edges import LATEST
from catchment.tree.charter import Charter

Behind = dict[str, dict[str, int]]
"""By node, by version of the plan as text: the time of the newest event that was cut by it."""


def joined(parts: Iterable[Behind]) -> Behind:
    """All that some say.

    >>> joined([{"a": {"1": 5}}, {"a": {"1": 7, "2": 9}}, {"b": {"1": 3}}])
    {'a': {'1': 7, '2': 9}, 'b': {'1': 3}}
    """
    found: Behind = {}
    for part in parts:
        for node, cut in part.items():
            held = found.setdefault(node, {})
            for plan, newest in cut.items():
                held[plan] = max(newest, held.get(plan, newest))
    return found


LOST = "-1"
"""Stands for a version of the plan before all others: what was lost serves no query."""


def lost_in(behind: Behind) -> Behind:
    """What of it was lost, and not only cut by an older plan."""
    return {node: {LOST: cut[LOST]} for node, cut in behind.items() if LOST in cut}


def recent(behind: Behind, time: int) -> Behind:
    """Without what no window concerns that ends after a time; what was lost stays."""
    late = {
        node: {plan: t for plan, t in cut.items() if t >= time or plan == LOST}
        for node, cut in behind.items()
    }
    return {node: cut for node, cut in late.items() if cut}


def added(charter: Charter, plan: int, name: str) -> int:
    """The version of the plan that brought a query."""
    query = charter.plans[plan].queries[name]
    older = [version for version in charter.plans if version <= plan]
    first = plan
    for version in sorted(older, reverse=True):
        if charter.plans[version].queries.get(name) != query:
            break
        first = version
    return first


def _touched(window: Window, time: int) -> int:
    """The last start of a window that events up to a time, had they been there, could change."""
    last = window.last_touched(time)
    return LATEST if last is None else last


def noted(behind: Behind, charter: Charter, plan: int) -> dict[str, Any]:
    """For the note of a step: who was behind, and since when queries are there."""
    if not behind:
        return {}
    return {
        "cut": behind,
        "added": {n: added(charter, plan, n) for n in charter.plans[plan].queries},
    }


def lacking(
    note: Mapping[str, Any], name: str, table: pa.Table, window: Window
) -> list[tuple[str, ...]]:
    """For each window of a query: the nodes whose events it may lack."""
    since = note["added"][name]
    newest: dict[str, int] = {}
    for node, cut in sorted(note["cut"].items()):
        older = [time for plan, time in cut.items() if plan != LOST and int(plan) < since]
        lost = [_touched(window, cut[LOST])] if LOST in cut else []
        if older or lost:
            newest[node] = max(older + lost)
    starts: list[int] = table.column("window_start").cast(pa.int64()).to_numpy().tolist()
    return [tuple(n for n, time in newest.items() if start <= time) for start in starts]
