"""A plan as a tree that a person can read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from catchment import html
from catchment.model.duration import show
from catchment.model.plan import Group, Plan
from catchment.model.query import NODE, Query
from catchment.model.window import STREAM, Marked
from catchment.operators import OperatorRef, operator_class
from catchment.planner.coarser import coarser_groups
from catchment.planner.cost import edges_of, session_grid, ways_of
from catchment.planner.group import operators_by_window, operators_of
from catchment.planner.group import plan as make_plan
from catchment.planner.marked import waiting_sets, why_events
from catchment.planner.ranked import (
    COUNTS,
    SORT,
    is_ranked,
    need_all_keys,
    needs_all,
    takes_first_keys,
)
from catchment.planner.together import sets_met, sliced_together, waiting_together

_MOST = 8
"""Windows or queries listed before the rest are only counted."""
_COMPARED = 1000
"""Groups of a plan of which it is said which ones follow from others."""


class Explanation(str):
    """A text of several lines, which notebooks show as it is written."""

    def _repr_html_(self) -> str:
        return html.preformatted(self)


def explain(plan: Plan | Query | Iterable[Query]) -> Explanation:
    """What queries share and why, as a tree for people: groups, operators, slices, what runs where.

    `plan` is a plan, a query, or queries, for which a plan is made.

    >>> from catchment.functions import avg, sum
    >>> from catchment.windows import tumbling
    >>> mean = Query("mean", avg("v"), window=tumbling("1s"))
    >>> print(explain([mean, Query("total", sum("v"), window=tumbling("2s"))]).splitlines()[0])
    Plan version 1: 2 queries, 2 distinct, in 1 group(s); for 10,000 events a second (assumed)

    Raises QueryError where queries cannot be planned, such as two of one name.
    """
    if not isinstance(plan, Plan):
        plan = make_plan([plan] if isinstance(plan, Query) else plan)
    queries = len(plan.names) - len(plan.former)
    distinct = len({place for name, place in plan.names.items() if name not in plan.former})
    title = (
        f"Plan version {plan.version}: {queries:,} queries, "
        f"{distinct:,} distinct, in {len(plan.every_group)} group(s); "
        f"for {plan.rate.describe()}"
    )
    groups = explained_groups(plan)
    return Explanation("\n".join([title, *(line for one in groups for line in _tree(*one))]))


def explained_groups(plan: Plan) -> list[tuple[str, list[str]]]:
    """A title for each group, and what is to say about it."""
    named: dict[int, list[str]] = {}
    for name, (number, _) in plan.names.items():
        named.setdefault(number, []).append(name)
    together: dict[int, tuple[list[int], str]] = {}
    for ids in sliced_together(plan.groups):
        conditions = _conditions(plan.groups[id] for id in ids)
        together |= dict.fromkeys(ids, (sorted(ids), conditions))
    waiting = {id: ids for ids in waiting_together(plan.groups) for id in ids}
    climbing = _events_climb(plan)
    made_of = coarser_groups(plan, {}, {}) if len(plan.groups) <= _COMPARED else {}
    bases = set(made_of.values())
    found = []
    for group in plan.every_group:
        marks = _marked(group, climbing.get(group.id))
        branches = _branches(group, plan, named.get(group.id, []), marks, group.id in bases)
        if group.id in together:
            ids, conditions = together[group.id]
            others = _others(group.id, ids)
            said = f"sliced together with group(s) {others}, where events are many"
            branches.append(said + conditions)
        if len(waiting.get(group.id, ())) > 1:
            others = _others(group.id, waiting[group.id])
            branches.append(f"events wait together with group(s) {others}, each kept once")
        if group.id in made_of:
            fine = f"group {made_of[group.id]}"
            said = f"made at the root of partials of {fine}"
            branches.append(f"in a tree that starts with both, nothing of it climbs: it is {said}")
        found.append((_title(group, plan), branches))
    return found


def _others(id: int, ids: Sequence[int]) -> str:
    """The other groups of a set, the first by their numbers: a set may have very many."""
    first = [str(other) for other in ids[: _MOST + 1] if other != id][:_MOST]
    more = len(ids) - 1 - len(first)
    return ", ".join(first) + (f" and {more:,} more" if more else "")


def _events_climb(plan: Plan) -> dict[int, tuple[int, str]]:
    """By group that waits for marks: a group for which all its events must climb, and why. It is
    the group itself, or one that its events wait together with."""
    found: dict[int, tuple[int, str]] = {}
    known = {group.id: group for group in plan.groups}
    for ids in [one.groups for one in waiting_sets(plan.groups).values()]:
        whys = {id: why for id in ids if (why := why_events(known.pop(id))) is not None}
        if whys:
            first = next(iter(whys))
            found |= {id: (id, whys[id]) if id in whys else (first, whys[first]) for id in ids}
    for id, group in known.items():  # those that wait for themselves, or not at all
        why = why_events(group)
        if why is not None:
            found[id] = id, why
    return found


def _conditions(groups: Iterable[Group]) -> str:
    """What is known of the conditions of groups that are sliced together."""
    every = {condition for group in groups for condition in group.selections if condition}
    if not every:
        return ""
    return f": {len(every)} condition(s), of which events meet {sets_met(every):,} sets at most"


def _tree(title: str, branches: list[str]) -> list[str]:
    marks = ["├─"] * (len(branches) - 1) + ["└─"]
    return [title, *(f"  {mark} {branch}" for mark, branch in zip(marks, branches, strict=True))]


def _title(group: Group, plan: Plan) -> str:
    keys = [NODE if key == STREAM else key for key in group.by]
    by = ", ".join(keys) or "all events together"
    extra = "" if group.measure == "event" else ", processing time"
    if group.distinct_on:
        extra += (
            f", distinct on {', '.join(group.distinct_on)} within {show(group.distinct_within)}"
        )
    if group.source is not None:
        extra += f", of results of group {plan.sources[group.source][0]}"
    return f"group {group.id}: by {by}{extra}"


def _branches(
    group: Group, plan: Plan, names: list[str], marks: list[str], is_base: bool
) -> list[str]:
    """`marks` says what becomes of marks, and `is_base` whether other groups are made of its
    partials."""
    refs = [OperatorRef(*ref) for ref in group.operators]
    selections = [condition or "every event" for condition in group.selections]
    owed = [plan.former[name] for name in names if name in plan.former]
    if owed:
        return [f"open windows of {_some(owed)}, which another group goes on with", _slices(group)]
    branches = [
        f"answers {len(group.answers):,} distinct for {len(names):,} queries: {_some(names)}",
        f"selections: {_some(selections)}",
        f"windows: {_some([window.describe() for window in group.windows])}",
        f"operators, each event once: {', '.join(ref.id for ref in refs)}",
        _alone(group, Counter(plan.names[name][1] for name in names)),
        _slices(group),
        *_merged(group, refs),
        *_compared(group, plan),
        f"store: {group.store} ({group.why})" if group.way == "slices" else f"because {group.why}",
    ]
    return branches + _where(group, refs, marks, is_base)


def _some(items: list[str]) -> str:
    text = ", ".join(items[:_MOST])
    return text if len(items) <= _MOST else f"{text} and {len(items) - _MOST:,} more"


def _alone(group: Group, uses: Counter[int]) -> str:
    """What separate queries would cost; `uses` counts the queries of each answer."""
    alone = sum(len(operators_of([group.answers[a]])) * times for a, times in uses.items())
    return (
        f"operator calls an event: {len(group.operators)}, against {alone:,} for separate queries"
    )


def _slices(group: Group) -> str:
    if group.way == "accumulators":
        return "one accumulator per window and key, no slices"
    rate = edges_of(group.windows).rate * 60
    text = (
        f"slices a minute: {rate:,.4g} from edges known ahead" if rate else "no edges known ahead"
    )
    grid = session_grid(group.windows)
    if grid is not None:
        text += f", a grid of {show(grid)} for sessions among them"
    if any(window.bounded_by_events for window in group.windows):
        text += ", more where events mark or count"
    return text


def _merged(group: Group, refs: list[OperatorRef]) -> list[str]:
    """Which large operators are merged for which windows, where not all are for all."""
    large = [n for n, ref in enumerate(refs) if not operator_class(ref.kind).small]
    if not large or len(group.windows) == 1:
        return []
    needs = list(zip(group.windows, operators_by_window(group), strict=True))
    windows = {n: [window for window, needed in needs if n in needed] for n in large}
    if all(len(some) == len(group.windows) for some in windows.values()):
        return []
    said = (
        f"{refs[n].id} for {_some([window.describe() for window in some])}"
        for n, some in windows.items()
    )
    return [f"merged only where asked for: {'; '.join(said)}"]


def _compared(group: Group, plan: Plan) -> list[str]:
    """What the two ways of slicing cost, where both are possible."""
    rate = plan.rate.per_second
    ways = None if group.slicing != "arrival" else ways_of(group.windows, rate, plan.costs)
    return [] if ways is None else [f"compared: {ways.describe(rate)}"]


_HELD = {SORT: "sorted numbers", COUNTS: "counts of numbers and texts"}
"""What a node may keep back of an operator."""


def _ranked(group: Group, is_base: bool) -> list[str]:
    """What a tree does with sorted values, with counts of values, and with keys of which only the
    first are wanted."""
    if not is_ranked(group):
        return []
    where = "an embedded root, no late: update or early results, quantiles: auto or ask"
    if takes_first_keys(group):
        reasons = need_all_keys(group)
        reasons += ["other groups are made of its partials"] if is_base else []
        if reasons:
            return [f"local: all keys climb, since {' and '.join(reasons)}"]
        return [f"local: keys that cannot be among the first may stay, of sums above 0 ({where})"]
    all_values = needs_all(group)
    if all_values:
        return [f"local: values climb, since {', '.join(all_values)} needs all of them"]
    kinds = {ref[0] for ref in group.operators}
    held = [text for kind, text in _HELD.items() if kind in kinds]
    what = " and ".join(held)
    return [f"local: {what} may stay until the root asks for those in doubt ({where})"]


def _marked(group: Group, climbing: tuple[int, str] | None) -> list[str]:
    """What a tree does with events between marks; all of them climb where a group needs them."""
    if not any(isinstance(window, Marked) for window in group.windows):
        return []
    if climbing is not None:
        id, why = climbing
        whose = "" if id == group.id else f" in group {id}, which shares them"
        return [f"local: all events climb, since {why}{whose}"]
    where = "an embedded root, no late: update, early results or idle timeout, marks: ask"
    return [
        f"local: marks climb, other events stay until the root tells where to cut ({where})",
        "local: all events climb where so many are marks that this costs less",
    ]


def _where(group: Group, refs: list[OperatorRef], marks: list[str], is_base: bool) -> list[str]:
    if group.source is not None:
        return ["root: the results are its events, each at the last moment of its window"]
    if group.slicing == "stream":
        readings = dict.fromkeys(w.stream_reading for w in group.windows if w.stream_reading)
        cut = "local: cut them at own marks, send partials with the windows they are in"
        whole = "local: follow the windows of the own stream, send each once it has ended"
        marked = [isinstance(window, Marked) for window in group.windows]
        return [
            "local: keep events, sorted, until they settle (a late one could split a slice)",
            *([cut] if any(marked) else []),
            *([] if all(marked) else [whole]),
            "intermediate: merge partials of equal slice, key and windows",
            f"root: assemble; windows of many streams by reading ({', '.join(map(str, readings))})",
        ]
    if group.slicing == "settled":
        why = (
            "marks, counts and limits"
            if any(window.bounded_by_events for window in group.windows)
            else "functions whose order matters"
        )
        because = f"{why}: a late one could split a slice"
        return [
            f"local: keep events, sorted, until they settle ({because})",
            *marks,
            "intermediate: pass events on in order",
            "root: slice settled events, assemble windows",
        ]
    large = [ref.id for ref in refs if not operator_class(ref.kind).small]
    sent = f" ({', '.join(large)}: on no other slices than these windows need)" if large else ""
    return [
        "local: select, slice on arrival, send partials" + sent,
        *_ranked(group, is_base),
        "intermediate: merge partials of equal slice and key",
        "root: merge, assemble windows when the frontier passes their end"
        + (", all keys of a window together" if group.whole else "")
        + (", and give them to other queries" if group.feeds else ""),
    ]
