"""Queries to query groups: what can share, shares."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from msgspec import structs

from catchment.errors import QueryError
from catchment.expression import columns, quote
from catchment.functions import Function, function_of
from catchment.model.costs import RECORDED, CostModel, EventRate
from catchment.model.definition import digest_of
from catchment.model.plan import Answer, Group, Plan, Slicing
from catchment.model.query import Aggregate, Query
from catchment.model.rules import each_source, time_named, with_sources
from catchment.model.settings import each_its_name
from catchment.model.window import STREAM, Counted
from catchment.operators import OperatorRef, operator_class
from catchment.planner.cost import choose_store, on_scale, ways_of
from catchment.planner.drafts import Draft, Need, SimilarDrafts
from catchment.planner.selections import Selections


def plan(
    queries: Iterable[Query], *, rate: float | None = None, costs: CostModel = RECORDED
) -> Plan:
    """One plan of all queries.

    `rate` is the expected number of events in a second of event time. Without it one is assumed.
    `costs` are what its choices are decided by.

    >>> from catchment.functions import avg, sum
    >>> from catchment.windows import tumbling
    >>> p = plan([Query("a", avg("v"), window=tumbling("1s")),
    ...           Query("b", sum("v"), window=tumbling("2s"))])
    >>> [OperatorRef(*o).id for o in p.groups[0].operators]
    ['sum(v)', 'count(v)']

    Raises QueryError where queries cannot be planned together, such as two of one name.
    """
    return replan(Plan(rate=EventRate.of(rate), costs=costs), queries)[0]


_MANY = 100_000
"""Objects that the garbage collector would look through at once after planning."""


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keeps the garbage collector out: of what planning makes, nothing is garbage, and to look
    through the objects of a million queries again and again takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > _MANY and not gc.get_freeze_count():
            # What was made lives long: it joins the oldest objects without being looked through.
            gc.freeze()
            gc.unfreeze()
        if enabled:
            gc.enable()


def replan(
    before: Plan,
    queries: Iterable[Query],
    *,
    rate: EventRate | None = None,
    handed: Collection[int] = (),
    ended: Collection[str] = (),
) -> tuple[Plan, dict[int, int]]:
    """The next plan, in which queries that stay keep their group, and which group became which.

    A new query joins a group that has its selection already, so that kept slices can serve it;
    new selections open groups of their own. A running group of count windows stays as it is: its
    nodes may have been asked for the edges of just these windows.

    The rate of events is the one there was, or another, by which new groups are made then. The
    queries of groups that are `handed` over go to other groups, as if they were new; what they had
    stays under names of its own (`Plan.former`) until it has `ended`.
    """
    with _uncollected():
        return _replan(before, queries, rate or before.rate, frozenset(handed), frozenset(ended))


def _replan(
    before: Plan,
    queries: Iterable[Query],
    rate: EventRate,
    handed: frozenset[int],
    ended: frozenset[str],
) -> tuple[Plan, dict[int, int]]:
    given = with_sources(each_its_name(queries))
    drafts = [_draft_of(group) for group in before.every_group]
    former = _former(before, given, handed, ended)
    closed = handed.union(place[0] for _, place in former.values())
    alike = before.costs.alike
    sharing: dict[tuple[Any, ...], SimilarDrafts] = {}
    for draft, group in zip(drafts, before.every_group, strict=True):
        if draft.need.by_rank:
            draft.windows.update((window, n) for n, window in enumerate(group.windows))
        elif group.id not in closed:
            sharing.setdefault(draft.shared, SimilarDrafts(alike)).running(draft)
    names: dict[str, tuple[Draft, int]] = {}
    for name, (_, (id, number)) in former.items():
        names[name] = drafts[id], drafts[id].keep(before.every_group[id].answers[number])
    numbers: dict[tuple[Any, ...], int] = {}
    """What is computed, whatever its name, to its place in `placed`."""
    placed: list[tuple[Draft, int]] = []
    time = time_named(given)
    fit = _Fitting(drafts, sharing, alike)
    sources = _placed_sources(given, before, handed, fit)
    for query, place in sources.values():
        numbers[query.identity] = len(placed)
        placed.append(place)
    for query in given:
        old = before.names.get(query.name)
        running = None
        if old and old[0] not in handed:
            running = drafts[old[0]], drafts[old[0]].add(query)
            if handed:
                names[query.name] = running
                continue
        number = numbers.setdefault(query.identity, len(placed))
        if number == len(placed):
            placed.append(fit.place(query) if running is None else running)
        names[query.name] = placed[number]
    kept = [draft for draft in drafts if draft.answers and draft.source is None]
    kept += [draft for draft in drafts if draft.answers and draft.source is not None]
    groups, places_of, lineage = _finish(kept, rate.per_second, before.costs)
    own = tuple(group for group in groups if group.source is None)
    made = Plan(
        before.version + 1,
        own,
        {name: places_of(place) for name, place in names.items()},
        time,
        rate,
        before.costs,
        {name: query for name, (query, _) in former.items()},
        groups[len(own) :],
        {label: places_of(place) for label, (_, place) in sources.items()},
    )
    return made, lineage


@dataclass(frozen=True)
class _Fitting:
    """Finds the drafts that queries fit, or makes them."""

    drafts: list[Draft]
    sharing: dict[tuple[Any, ...], SimilarDrafts]
    alike: float

    def place(self, query: Query, feeds: bool = False) -> tuple[Draft, int]:
        """The draft of a query, and its answer in it; `feeds` where others read its results."""
        _refuse_order(query)
        shared = _shared(query, feeds)
        among = self.sharing.get(shared)
        if among is None:
            among = self.sharing[shared] = SimilarDrafts(self.alike)
        return among.place(query, shared, self.drafts, feeds)


def _placed_sources(
    given: list[Query], before: Plan, handed: frozenset[int], fit: _Fitting
) -> dict[str, tuple[Query, tuple[Draft, int]]]:
    """The queries whose results others read, each after those that it reads itself.

    They come before all others: a query of the same definition is then answered from them.
    """
    found: dict[str, tuple[Query, tuple[Draft, int]]] = {}
    for query in each_source(given):
        label = digest_of(query)
        if label in found:
            continue
        old = before.sources.get(label)
        if old is None or old[0] in handed:
            _refuse_begun(query, before)
            found[label] = query, fit.place(query, True)
        else:
            draft = fit.drafts[old[0]]
            found[label] = query, (draft, draft.add(query, None, True))
    return found


def _refuse_begun(query: Query, before: Plan) -> None:
    """Refuses a query, added while others run, that reads results of windows with unknown ends.

    Some of these windows began before the query came, and nobody can tell when the last of them
    ends."""
    if before.groups and not query.window.periods:
        raise QueryError(
            "windows that begin and end with the data cannot be read by a query that is added "
            "while others run",
            given=query.window.describe(),
            hint="start the job with this query, or read windows of a fixed length",
        )


def refuse_former(before: Plan, name: str) -> None:
    """Raises where a new query has a name that stands for a query's windows in a former group."""
    if name in before.former:
        raise QueryError(
            "a query cannot have this name now",
            given=name,
            hint=f"it stands for open windows of {before.former[name]!r}: wait, or take another",
        )


def _former(
    before: Plan, queries: Iterable[Query], handed: frozenset[int], ended: frozenset[str]
) -> dict[str, tuple[str, tuple[int, int]]]:
    """Windows that former groups still give: a name for them, the query, and its place there."""
    there = {query.name for query in queries}
    for name in before.former.keys() & there:
        refuse_former(before, name)
    found = {
        name: (query, before.names[name])
        for name, query in before.former.items()
        if query in there and name not in ended
    }
    for query, place in before.names.items() if handed else ():
        if place[0] in handed and query in there and query not in before.former:
            name = f"{query} (by plan {before.version})"
            while name in there or name in found:
                name += "'"
            found[name] = query, place
    return found


def only_counts(group: Group) -> bool:
    """Whether all windows of a group are count windows."""
    return all(window.by_rank for window in group.windows)


def counts_of(group: Group) -> list[Counted]:
    """The count windows of a group."""
    return [window for window in group.windows if isinstance(window, Counted)]


def _draft_of(group: Group) -> Draft:
    """An empty draft in a group's place."""
    large = _large(kind for kind, _, _ in group.operators)
    need = Need(group.slicing, only_counts(group), large, group.whole)
    distinct = group.distinct_on, group.distinct_within
    draft = Draft(group.by, group.measure, *distinct, need, group.computed, group.source)
    draft.selections = Selections(group.selections)
    draft.before = group
    return draft


def _shared(query: Query, feeds: bool) -> tuple[Any, ...]:
    """What queries of one draft agree in."""
    by, computed = _by(query)
    need = _need(query)._replace(whole=True) if feeds else _need(query)
    source = None if query.source is None else digest_of(query.source)
    distinct = query.distinct_on, query.distinct_within
    return by, query.measure, *distinct, need, computed, source


def _by(query: Query) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys as a group has them, and which of them are expressions and no columns."""
    node = (STREAM,) if query.window.by_node else ()
    if not query.computed:
        return (*query.by, *node), ()
    texts = dict(query.computed)
    named = {key: _column_in(texts[key]) if key in texts else key for key in query.by}
    by = tuple(texts[key] if column is None else column for key, column in named.items())
    return (*by, *node), tuple(texts[key] for key, column in named.items() if column is None)


def _column_in(text: str) -> str | None:
    """The column that an expression is nothing but."""
    names = columns(text)
    return names[0] if len(names) == 1 and text == quote(names[0]) else None


def _need(query: Query) -> Need:
    ordered, large = _kind_of(query.aggregates)
    waits = query.window.bounded_by_events or ordered
    slicing: Slicing = "stream" if _by_stream(query) else "settled" if waits else "arrival"
    whole = query.output is not None and query.output.whole
    return Need(slicing, query.window.by_rank, large, whole)


def _by_stream(query: Query) -> bool:
    """Whether windows are cut on the node that reads their events."""
    return query.window.stream_reading is not None and not query.window.by_node


def _kind_of(aggregates: tuple[Aggregate, ...]) -> tuple[bool, bool]:
    """Whether the order of events matters to aggregates, and whether their partials are large."""
    if len(aggregates) == 1:
        return _kind_of_one(function_of(aggregates[0]), aggregates[0])
    kinds = [_kind_of_one(function_of(aggregate), aggregate) for aggregate in aggregates]
    return any(ordered for ordered, _ in kinds), any(large for _, large in kinds)


@lru_cache(maxsize=4096)
def _kind_of_one(function: Function, aggregate: Aggregate) -> tuple[bool, bool]:
    operators = _required(function, aggregate)
    return _ordered(operators), _large(ref.kind for ref in operators)


@lru_cache(maxsize=4096)
def _required(function: Function, aggregate: Aggregate) -> dict[OperatorRef, None]:
    """The operators of an aggregate, each once, after those whose fields it reads."""
    return dict.fromkeys(_with_required(function.operators(aggregate)))


def _large(kinds: Iterable[str]) -> bool:
    return not all(operator_class(kind).small for kind in kinds)


_PlaceOf = Callable[[tuple[Draft, int]], tuple[int, int]]


def _finish(
    drafts: list[Draft], rate: float, costs: CostModel
) -> tuple[tuple[Group, ...], _PlaceOf, dict[int, int]]:
    """The groups, where answers of drafts are in them, and which group before each continues."""
    groups: list[Group] = []
    moved: dict[int, list[tuple[int, int]]] = {}
    lineage: dict[int, int] = {}
    for draft in drafts:
        answers = list(draft.answers)
        places = moved[id(draft)] = [(0, 0)] * len(answers)
        ways = _ways(draft, rate, costs)
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
            groups.append(_group(len(groups), draft, windows, kept, why, costs.eager_from))
    return tuple(groups), lambda place: moved[id(place[0])][place[1]], lineage


def _ways(draft: Draft, rate: float, costs: CostModel) -> list[tuple[list[int], str | None]]:
    """The draft's windows as one sliced group, or each alone where slicing loses, and why."""
    windows = list(draft.windows)
    together = list(range(len(windows)))
    if draft.before is not None:  # a running group goes on as it is
        return [(together, draft.before.why if draft.before.way == "accumulators" else None)]
    sliced = [number for number, window in enumerate(windows) if on_scale(window)]
    apart = [number for number in together if number not in sliced]
    ways = ways_of([windows[number] for number in apart], rate, costs) if apart else None
    if ways is None or not ways.direct_wins or _ordered(operators_of(draft.answers)):
        return [(together, None)]
    direct = [([number], ways.describe(rate)) for number in apart]
    return [*direct, (sliced, None)] if sliced else [*direct]


def _refuse_order(query: Query) -> None:
    if query.output is not None and query.output.sets and _kind_of(query.aggregates)[0]:
        raise QueryError(
            f"query {query.name!r}: subtotals over keys merge what was computed by key, but the "
            "order of events matters to a function",
            given=", ".join(aggregate.text for aggregate in query.aggregates),
            hint="make each set of keys a query of its own",
        )
    if _by_stream(query) and _kind_of(query.aggregates)[0]:
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
    id: int,
    draft: Draft,
    windows: list[int],
    answers: list[Answer],
    why: str | None,
    eager_from: float,
) -> Group:
    if draft.before is not None and _unchanged(draft, answers):
        return draft.before if draft.before.id == id else replace(draft.before, id=id)
    kept, renumbered = tuple(draft.windows), tuple(answers)
    if len(windows) < len(kept):
        kept = tuple(kept[number] for number in windows)
        places = {number: place for place, number in enumerate(windows)}
        renumbered = tuple(
            structs.replace(answer, window=places[answer.window]) for answer in answers
        )
    running = () if draft.before is None else draft.before.operators
    operators = operators_of(answers, [OperatorRef(*ref) for ref in running])
    store, because = choose_store(kept, operators, eager_from)
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
        draft.computed,
        draft.source,
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
    answers: Collection[Answer], running: Iterable[OperatorRef] = ()
) -> list[OperatorRef]:
    """The operators that the answers need, each once, after those it reads, less those derived.

    Those that run already stay: what they hold of slices kept, nothing else could tell.
    """
    stay = frozenset(running)
    needed: dict[OperatorRef, None] = dict.fromkeys(running)
    if not needed and len(answers) == 1:  # as of most groups of many queries
        (only,) = answers
        return list(_operators_of(tuple(map(function_of, only.aggregates)), only.aggregates))
    small: set[OperatorRef] = set()
    for answer in answers:
        own: dict[OperatorRef, None] = {}
        for aggregate in answer.aggregates:
            own |= _required(function_of(aggregate), aggregate)
        needed |= own
        if not stay:
            small |= _small_without(tuple(own))
    return list(_less_derived(tuple(needed), stay, frozenset(small)))


@lru_cache(maxsize=4096)
def _small_without(needed: tuple[OperatorRef, ...]) -> frozenset[OperatorRef]:
    """The small operators of an answer that none of its others holds.

    They are computed for it even if an operator of another answer holds them: else the sorted
    values of the other one would be merged for its windows too.
    """
    kept = _less_derived(needed, frozenset(), frozenset())
    return frozenset(ref for ref in kept if operator_class(ref.kind).small)


@lru_cache(maxsize=4096)
def _operators_of(
    functions: tuple[Function, ...], aggregates: tuple[Aggregate, ...]
) -> tuple[OperatorRef, ...]:
    needed: dict[OperatorRef, None] = {}
    for function, aggregate in zip(functions, aggregates, strict=True):
        needed |= _required(function, aggregate)
    return _less_derived(tuple(needed), frozenset(), frozenset())


@lru_cache(maxsize=4096)
def _less_derived(
    needed: tuple[OperatorRef, ...], stay: frozenset[OperatorRef], small: frozenset[OperatorRef]
) -> tuple[OperatorRef, ...]:
    """The operators whose fields no other one holds, in the order in which they are computed."""
    columns: dict[str | None, set[str]] = {}
    for ref in needed:
        columns.setdefault(ref.column, set()).update(operator_class(ref.kind).derives)
    kept = [
        ref for ref in needed if ref in stay or ref in small or ref.kind not in columns[ref.column]
    ]
    return tuple(sorted(kept, key=lambda ref: not operator_class(ref.kind).derives))


def operators_by_window(group: Group) -> list[tuple[int, ...]]:
    """Of each window of a group, the places of the operators that the answers over it need.

    Where one is not among the group's, another one of its column holds its fields.
    """
    refs = [OperatorRef(*ref) for ref in group.operators]
    places = {ref: place for place, ref in enumerate(refs)}
    answers: dict[int, list[Answer]] = {}
    for answer in group.answers:
        answers.setdefault(answer.window, []).append(answer)

    def place_of(wanted: OperatorRef) -> int:
        if wanted in places:
            return places[wanted]
        return next(
            place
            for place, ref in enumerate(refs)
            if ref.column == wanted.column and wanted.kind in operator_class(ref.kind).derives
        )

    return [
        tuple(sorted({place_of(ref) for ref in operators_of(answers.get(number, ()))}))
        for number in range(len(group.windows))
    ]
