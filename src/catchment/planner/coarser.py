"""Which groups follow from the partials of another one: by fewer keys, or in longer slices.

A query by site is answered from partials by site and device, and one of hours from partials of
seconds. On the way to where windows are assembled, only the finer partials travel.

    sent      by (site, device), slices of 1 s
    made      by site, slices of 1 s          by (), slices of 1 min
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from catchment.model.plan import Group, Plan
from catchment.planner.cost import edges_of, periods_of
from catchment.planner.ranked import SEARCHED


def coarser_groups(
    plan: Plan, lineage: Mapping[int, int], before: Mapping[int, int]
) -> dict[int, int]:
    """The groups that are made of the partials of another one, and of which.

    `lineage` says which group of the version before each continues, and `before` which of those
    were made of others. One that travels goes on to do so: part of what it holds may be on its way.
    One that is made of another stays so while that one is there and has what it needs.
    """
    known = {group.id: group for group in plan.groups if _simple(group)}
    follows = {old: new for new, old in lineage.items()}
    made: dict[int, int] = {}
    for id in [id for id in known if lineage.get(id) in before]:
        fine = follows.get(before[lineage[id]])
        if fine in known and covers(known[fine], known[id]):
            made[id] = fine
    travelling: dict[str | None, list[Group]] = {}
    """By a condition, the groups that have it: none of the others covers one that does."""
    for group in (group for id, group in known.items() if id in lineage and id not in made):
        _add(group, travelling)
    new = [group for id, group in known.items() if id not in lineage]
    for group in sorted(new, key=_fineness, reverse=True):
        alike = travelling.get(group.selections[0], ())
        # Of several, the one with the fewest keys: it has the fewest rows to go through.
        found = min(
            (base for base in alike if covers(base, group)),
            key=lambda base: (len(base.by), base.id),
            default=None,
        )
        if found is None:
            _add(group, travelling)
        else:
            made[group.id] = found.id
    return made


def _add(group: Group, travelling: dict[str | None, list[Group]]) -> None:
    for condition in group.selections:
        travelling.setdefault(condition, []).append(group)


def _fineness(group: Group) -> tuple[int, int, float, int]:
    """No group covers one that is finer by this."""
    rate = edges_of(group.windows).rate
    return len(group.by), len(group.operators), rate, len(group.selections)


def _simple(group: Group) -> bool:
    """Whether events are sliced as they come, and all of a slice travels in its partials.

    Sorted values and counts stay where they were read until somebody asks for them.
    """
    return (
        group.slicing == "arrival"
        and group.way == "slices"
        and group.measure == "event"
        and not group.distinct_on
        and not any(ref[0] in SEARCHED for ref in group.operators)
    )


def covers(fine: Group, coarse: Group) -> bool:
    """Whether all partials of a group follow from those of another one."""
    return (
        all(window.periods for window in coarse.windows)
        and {*coarse.by} <= {*fine.by}
        and {*coarse.computed} <= {*fine.computed}
        and {*coarse.selections} <= {*fine.selections}
        and {*coarse.operators} <= {*fine.operators}
        and _edges_among(fine, coarse)
    )


def _edges_among(fine: Group, coarse: Group) -> bool:
    """Whether all edges of a group are edges of another one."""
    edges = edges_of(fine.windows)
    return all(
        bool(edges.covers(np.array([period.offset, period.offset + period.length])).all())
        if period.only
        else edges.holds(period, period.offset)
        and edges.holds(period, period.offset + period.length)
        for period in periods_of(coarse.windows)
    )
