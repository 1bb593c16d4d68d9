"""Carries state over from one plan to the next, when queries come and go.

The state of a group by the old plan goes into the state of the group that continues it. What a new
query may answer follows from when its operators began (`answer_limit`).
"""

from __future__ import annotations

from collections.abc import Mapping

from catchment.engine.group import GroupState
from catchment.engine.interleaved import fitted
from catchment.engine.results import Limit
from catchment.engine.shapes.base import Change
from catchment.model.plan import Answer, Plan
from catchment.planner.edges import EARLIEST
from catchment.planner.group import operators_of


def answer_limit(state: GroupState, answer: Answer) -> Limit | None:
    """Whether a new query must skip windows that began before its operators did."""
    since = EARLIEST
    for ref in operators_of([answer]):
        stands_in = next(
            (
                id
                for id, operator in state.operators.items()
                if operator.ref == ref
                or (operator.ref.column == ref.column and ref.kind in operator.derives)
            ),
            "",
        )
        since = max(since, state.known_since.get(stands_in, EARLIEST))
    return Limit(since=since) if since > EARLIEST else None


def move(old: GroupState, new: GroupState, newest: int) -> None:
    """Carries a group's state over to the group that continues it."""
    new.known_since = {
        id: old.known_since.get(id, EARLIEST) if id in old.operators else newest
        for id in new.operators
    }
    new.space.keys, new.newest, new.frontier = old.space.keys, old.newest, old.frontier
    new.repeats = old.repeats
    new.partials, new.calls = old.partials, old.calls
    new.between = [fitted(slices, new.operators) for slices in old.between]
    if new.emitted is not None and old.emitted is not None:
        _move_emitted(old, new)
    change = Change(
        newest,
        newest if newest > EARLIEST else None,
        old.frontier,
        min(newest, old.frontier - 1) if old.group.slicing == "settled" else newest,
        old.group.windows,
    )
    before = {shape.name: shape for shape in old.shapes}
    for shape in new.shapes:
        shape.continue_from(before.get(shape.name), change)


def _move_emitted(old: GroupState, new: GroupState) -> None:
    assert old.emitted is not None and new.emitted is not None
    places = {window: place for place, window in enumerate(new.group.windows)}
    moved = {k: places.get(window, -1) for k, window in enumerate(old.group.windows)}
    for before, said in old.emitted.said.items():
        kind, key, low, high, copy = before
        if moved[kind] >= 0:
            identity = moved[kind], key, low, high, copy
            new.emitted.said[identity] = said
            new.emitted.ends[identity] = old.emitted.ends[before]
            if before in old.emitted.doubtful:
                new.emitted.doubtful.add(identity)


def drained(plan: Plan, states: Mapping[int, GroupState], name: str, until: int) -> bool:
    """Whether no window of a query that began by `until` is still open."""
    group, number = plan.names[name]
    state = states.get(group)
    if state is None:
        return True
    return state.ended(plan.every_group[group].answers[number].window, until)
