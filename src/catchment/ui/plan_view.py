"""The queries of a job and what they share, from the plan: lists and drawings are made of it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from msgspec import Struct

from catchment.model.plan import Group
from catchment.operators import OperatorRef
from catchment.planner.explain import explained_groups
from catchment.planner.group import operators_of
from catchment.planner.planned import Planned

_DRAWN = 24
"""Windows and operators of a group that are drawn; the rest is counted."""
_ANSWERS = 2000
"""Answers of a group that are looked at for what is drawn: it is a picture, not a count."""


class QueryLine(NamedTuple):
    """A query in the list."""

    name: str
    text: str
    group: int
    answer: int
    """Queries with the same group and answer are computed once."""
    version: int
    leaving: bool
    alone: int
    """Operators that would take every event if the query ran alone."""


class GroupView(Struct, frozen=True):
    """A group as it is drawn: which windows need which operators, and for how many queries."""

    id: int
    title: str
    lines: list[str]
    """What `explain` says of it."""
    queries: int
    answers: int
    operators: list[str]
    windows: list[tuple[str, int]]
    """Each with its queries, most first."""
    needs: list[tuple[int, int]]
    """A window and an operator that it needs, by their places in these lists."""


class QueriesView(Struct, frozen=True):
    """All queries, and the groups of the plan."""

    version: int
    queries: list[QueryLine]
    groups: list[GroupView]


def queries_view(planned: Planned) -> QueriesView:
    """What the page shows of a version of the plan."""
    plan, leaving = planned.plan, set(planned.leaving)
    lines = []
    by_id = {group.id: group for group in plan.every_group}
    alone: dict[tuple[int, int], int] = {}
    for name, query in planned.queries.items():
        group, answer = place = plan.names.get(name, (-1, -1))
        if place not in alone and group in by_id:
            alone[place] = len(operators_of([by_id[group].answers[answer]]))
        known = planned.definitions.get(name)
        version = 1 if known is None else known.version
        cost = alone.get(place, 0)
        lines.append(
            QueryLine(name, query.describe(), group, answer, version, name in leaving, cost)
        )
    uses: dict[int, Counter[int]] = {}
    for name, (group, answer) in plan.names.items():
        if name not in plan.former:
            uses.setdefault(group, Counter())[answer] += 1
    told = explained_groups(plan)
    groups = [
        _group(group, title, said, uses.get(group.id, Counter()))
        for group, (title, said) in zip(plan.every_group, told, strict=True)
    ]
    return QueriesView(plan.version, lines, groups)


def _group(group: Group, title: str, lines: list[str], uses: Counter[int]) -> GroupView:
    by_window: Counter[int] = Counter()
    for answer, times in uses.items():
        by_window[group.answers[answer].window] += times
    shown = [window for window, _ in by_window.most_common(_DRAWN)]
    operators = [OperatorRef(*ref).id for ref in group.operators]
    needs: set[tuple[int, int]] = set()
    for answer, _ in uses.most_common(_ANSWERS):
        found = group.answers[answer]
        if found.window in shown:
            own = {_serving(ref, group) for ref in operators_of([found])}
            needs |= {(shown.index(found.window), n) for n in own if n is not None and n < _DRAWN}
    return GroupView(
        group.id,
        title,
        lines,
        sum(uses.values()),
        len(group.answers),
        operators,
        [(group.windows[window].describe(), by_window[window]) for window in shown],
        sorted(needs),
    )


def _serving(wanted: OperatorRef, group: Group) -> int | None:
    """The place of the operator of a group that serves one that an answer needs.

    Where it is not among them itself, another one of its column holds its fields.
    """
    refs = [OperatorRef(*ref) for ref in group.operators]
    if wanted in refs:
        return refs.index(wanted)
    return next((n for n, ref in enumerate(refs) if ref.column == wanted.column), None)
