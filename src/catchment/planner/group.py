"""Queries to query groups: what can share, shares."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

from catchment.errors import QueryError
from catchment.functions import Function, function_of
from catchment.model.plan import Answer, Group, Plan, Slicing
from catchment.model.query import Aggregate, Query
from catchment.model.rules import time_named
from catchment.model.settings import each_its_name
from catchment.model.window import Counted
from catchment.operators import OperatorRef, operator_class
from catchment.planner.cost import choose_store, slicing_loses
from catchment.planner.drafts import Alike, Draft, Need
from catchment.planner.selections import Selections

DEFAULT_RATE = 10_000.0
"""Events per second of event time that a plan assumes when it is told nothing better."""


def plan(queries: Iterable[Query], *, rate: float = DEFAULT_RATE) -> Plan:
    """One plan of all queries. `rate` is the expected number of events per second, per group.

    >>> from catchment.functions import avg, sum
    >>> from catchment.windows import tumbling
    >>> p = plan([Query("a", avg("v"), window=tumbling("1s")),
    ...           Query("b", sum("v"), window=tumbling("2s"))])
    >>> [OperatorRef(*o).id for o in p.groups[0].operators]
    ['sum(v)', 'count(v)']
    """
    return replan(Plan(), queries, rate)[0]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keeps the garbage collector out: of what planning makes, nothing is garbage, and to look
    through the objects of a million queries again and again takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def replan(
    before: Plan,
    queries: Iterable[Query],
    rate: float = DEFAULT_RATE,
) -> tuple[Plan, dict[int, int]]:
    """The next plan, in which queries that stay keep their group, and which group became which.

    A new query joins a group that has its selection already, so that kept slices can serve it;
    new selections open groups of their own. A running group of count windows stays as it is: its
    nodes may have been asked for the edges of just these windows.
    """
    with _uncollected():
        return _replan(before, queries, rate)


def _replan(before: Plan, queries: Iterable[Query], rate: float) -> tuple[Plan, dict[int, int]]:
    drafts = [_draft_of(group) for group in before.groups]
    sharing: dict[tuple[Any, ...], Alike] = {}
    for draft, group in zip(drafts, before.groups, strict=True):
        if draft.need.by_rank:
            draft.windows.update((window, n) for n, window in enumerate(group.windows))
        else:
            sharing.setdefault(draft.shared, Alike()).running(draft)
    placed: dict[tuple[Any, ...], tuple[Draft, int]] = {}
    names: dict[str, tuple[Draft, int]] = {}
    given = each_its_name(queries)
    time = time_named(given)
    for query in given:
        identity = query.identity
        place = placed.get(identity)
        if place is None:
            old = before.names.get(query.name)
            if old:
                place = drafts[old[0]], drafts[old[0]].add(query)
            else:
                _refuse_order(query)
                shared = _shared(query)
                alike = sharing.get(shared) or sharing.setdefault(shared, Alike())
                place = alike.place(query, shared, drafts)
            placed[identity] = place
        names[query.name] = place
    kept = [draft for draft in drafts if draft.answers]
    made, lineage = _finish(kept, names, rate, before.version + 1)
    return (made if time is None else replace(made, time=time)), lineage


def only_counts(group: Group) -> bool:
    """Whether all windows of a group are count windows."""
    return all(window.by_rank for window in group.windows)


def counts_of(group: Group) -> list[Counted]:
    """The count windows of a group."""
    return [window for window in group.windows if isinstance(window, Counted)]


def _draft_of(group: Group) -> Draft:
    """An empty draft in a group's place."""
    need = Need(group.slicing, only_counts(group), _large(OperatorRef(*r) for r in group.operators))
    draft = Draft(group.by, group.measure, group.distinct_on, group.distinct_within, need)
    draft.selections = Selections(group.selections)
    draft.before = group
    return draft


def _shared(query: Query) -> tuple[Any, ...]:
    """What queries of one draft agree in."""
    return query.by, query.measure, query.distinct_on, query.distinct_within, _need(query)


def _need(query: Query) -> Need:
    ordered, large = _kind_of(query.aggregates)
    waits = query.window.bounded_by_events or ordered
    by_stream = query.window.stream_reading is not None
    slicing: Slicing = "stream" if by_stream else "settled" if waits else "arrival"
    return Need(slicing, query.window.by_rank, large)


def _kind_of(aggregates: tuple[Aggregate, ...]) -> tuple[bool, bool]:
    """Whether the order of events matters to aggregates, and whether their partials are large."""
    kinds = [_kind_of_one(function_of(aggregate), aggregate) for aggregate in aggregates]
    return any(ordered for ordered, _ in kinds), any(large for _, large in kinds)


@lru_cache(maxsize=4096)
def _kind_of_one(function: Function, aggregate: Aggregate) -> tuple[bool, bool]:
    operators = _required(function, aggregate)
    return _ordered(operators), _large(operators)


@lru_cache(maxsize=4096)
def _required(function: Function, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
    """The operators of an aggregate, each after those whose fields it reads."""
    return tuple(_with_required(function.operators(aggregate)))


def _large(operators: Iterable[OperatorRef]) -> bool:
    return not all(operator_class(ref.kind).small for ref in operators)


def _finish(
    drafts: list[Draft], names: dict[str, tuple[Draft, int]], rate: float, version: int
) -> tuple[Plan, dict[int, int]]:
    groups: list[Group] = []
    moved: dict[int, list[tuple[int, int]]] = {}
    lineage: dict[int, int] = {}
    for draft in drafts:
        answers = list(draft.answers)
        places = moved[id(draft)] = [(0, 0)] * len(answers)
        ways = _ways(draft, rate)
        by_window: dict[int, list[int]] = {}
        for number, answer in enumerate(answers) if len(ways) > 1 else ():
            by_window.setdefault(answer.window, []).append(number)
        for windows, why in ways:
            chosen: Iterable[int] = range(len(answers))
            if len(ways) > 1:
                chosen = sorted(a for window in windows for a in by_window.get(window, ()))
            for place, number in enumerate(chosen):
                places[number] = (len(groups), place)
            if draft.before is not None:
                lineage[len(groups)] = draft.before.id
            kept = [answers[number] for number in chosen]
            groups.append(_group(len(groups), draft, windows, kept, why))
    places_of = {name: moved[id(draft)][answer] for name, (draft, answer) in names.items()}
    return Plan(version, tuple(groups), places_of), lineage


def _ways(draft: Draft, rate: float) -> list[tuple[list[int], str | None]]:
    """The draft's windows as one sliced group, or each alone where slicing loses, and why."""
    windows = list(draft.windows)
    together = list(range(len(windows)))
    if draft.before is not None:  # a running group goes on as it is
        return [(together, draft.before.why if draft.before.way == "accumulators" else None)]
    why = slicing_loses(windows, rate)
    if why is None or _ordered(operators_of(draft.answers)):
        return [(together, None)]
    return [([window], why) for window in together]


def _refuse_order(query: Query) -> None:
    if query.window.stream_reading is not None and _kind_of(query.aggregates)[0]:
        raise QueryError(
            f"query {query.name!r}: a function whose order matters needs all events in one order, "
            "but these windows are cut on each node",
            given=", ".join(aggregate.text for aggregate in query.aggregates),
            hint="leave out reading, or say that the function is commutative",
        )


def _ordered(operators: Iterable[OperatorRef]) -> bool:
    """Whether the order of events matters to an operator."""
    return any(operator_class(ref.kind).ordered(ref) for ref in operators)


def _group(
    id: int, draft: Draft, windows: list[int], answers: list[Answer], why: str | None
) -> Group:
    if draft.before is not None and _unchanged(draft, answers):
        return draft.before if draft.before.id == id else replace(draft.before, id=id)
    every = list(draft.windows)
    kept = tuple(every[number] for number in windows)
    places = {number: place for place, number in enumerate(windows)}
    renumbered = tuple(Answer(a.selection, places[a.window], a.aggregates) for a in answers)
    running = () if draft.before is None else draft.before.operators
    operators = operators_of(answers, [OperatorRef(*ref) for ref in running])
    store, because = choose_store(kept, operators)
    plain = tuple((ref.kind, ref.column, ref.params) for ref in operators)
    return Group(
        id,
        draft.by,
        tuple(draft.selections.numbers),
        draft.measure,
        draft.distinct_on,
        draft.distinct_within,
        kept,
        plain,
        renumbered,
        draft.need.slicing,
        store,
        "slices" if why is None else "accumulators",
        why or because,
    )


def _unchanged(draft: Draft, answers: list[Answer]) -> bool:
    """Whether a draft is the group that it continues, query for query."""
    before = draft.before
    return (
        before is not None
        and len(draft.selections.numbers) == len(before.selections)
        and tuple(draft.windows) == before.windows
        and tuple(answers) == before.answers
    )


def _with_required(refs: Iterable[OperatorRef]) -> Iterator[OperatorRef]:
    """Operators, each after those whose fields it reads."""
    for ref in refs:
        yield from _with_required(operator_class(ref.kind).requires(ref))
        yield ref


def operators_of(
    answers: Iterable[Answer], running: Iterable[OperatorRef] = ()
) -> list[OperatorRef]:
    """The operators that the answers need, each once, after those it reads, less those derived.

    Those that run already stay: what they hold of slices kept, nothing else could tell.
    """
    needed: dict[OperatorRef, None] = dict.fromkeys(running)
    stay = frozenset(needed)
    for answer in answers:
        for aggregate in answer.aggregates:
            needed.update(dict.fromkeys(_required(function_of(aggregate), aggregate)))
    return list(_less_derived(tuple(needed), stay))


@lru_cache(maxsize=4096)
def _less_derived(
    needed: tuple[OperatorRef, ...], stay: frozenset[OperatorRef]
) -> tuple[OperatorRef, ...]:
    """The operators whose fields no other one holds, in the order in which they are computed."""
    columns: dict[str | None, set[str]] = {}
    for ref in needed:
        columns.setdefault(ref.column, set()).update(operator_class(ref.kind).derives)
    kept = [ref for ref in needed if ref in stay or ref.kind not in columns[ref.column]]
    return tuple(sorted(kept, key=lambda ref: not operator_class(ref.kind).derives))
