"""Which groups of one key share work that comes before their partials.

Groups whose partials are a few numbers may be *sliced together*: they differ in conditions and in
edges only, or have no keys at all. A slicer can reduce events once for all of them, to cells of
slice, key and set of conditions met (`engine/slicing.py`, `SharedSlicer`).

Groups that are sliced once their events are settled *wait together*: each event is kept, sent and
put in order once for all of them (`engine/waiting.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

from catchment.expression import alternatives
from catchment.model.plan import Group
from catchment.operators import operator_class
from catchment.planner.cost import periods_of

CONDITIONS = 16
"""Conditions of a set of groups that are sliced together, whatever they are."""
SETS, BITS = 64, 62
"""Sets of conditions that events may meet, at most, where there are more conditions, as far as is
known of these; and how many there may be then: each is a bit of a word."""


def sliced_together(groups: Iterable[Group]) -> list[list[int]]:
    """Sets of groups, by their ids: in each, those with the fewest conditions and edges first.

    Each set of conditions that events meet is a cell of its own. Conditions on ranges of one term
    leave few such sets, one for each stretch between two bounds, while others may double their
    number. So groups whose conditions speak of the same terms come together.

    Groups without keys are put together from the cells of a key, of the one whose groups have the
    most operators in common with them.
    """
    found: dict[tuple[Any, ...], list[_Together]] = {}
    some = [group for group in groups if _shares(group) and len(group.selections) <= BITS]
    for group in sorted(some, key=_terms):
        own = {condition for condition in group.selections if condition}
        if not _few(own):
            continue
        sets = found.setdefault((group.measure, group.by), [_Together()])
        if not sets[-1].takes(own):
            sets.append(_Together())
        sets[-1].add(group, own)
    made = [one for sets in found.values() for one in sets]
    for one in [one for one in made if not one.groups[0].by]:
        hosts = [host for host in made if host.groups[0].by and host.takes_all(one)]
        if hosts:
            max(hosts, key=one.alike).take_all(one)
            made.remove(one)
    return [
        [group.id for group in sorted(one.groups, key=_cells)]
        for one in made
        if len(one.groups) > 1
    ]


class _Together:
    """Groups that are sliced together, and what is known of their conditions."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self._conditions: set[str] = set()

    def takes(self, conditions: set[str]) -> bool:
        return _few(self._conditions | conditions)

    def add(self, group: Group, conditions: set[str]) -> None:
        self.groups.append(group)
        self._conditions |= conditions

    def takes_all(self, other: _Together) -> bool:
        same = self.groups[0].measure == other.groups[0].measure
        return same and self.takes(other._conditions)

    def take_all(self, other: _Together) -> None:
        self.groups += other.groups
        self._conditions |= other._conditions

    def alike(self, other: _Together) -> tuple[int, int]:
        """The more operators in common, the better, and then the fewer keys."""
        common = self._operators() & other._operators()
        return len(common), -len(other.groups[0].by)

    def _operators(self) -> set[Any]:
        return {operator for group in self.groups for operator in group.operators}


def _few(conditions: set[str]) -> bool:
    count = len(conditions)
    return count <= CONDITIONS or (count <= BITS and sets_met(conditions) <= SETS)


def sets_met(conditions: Iterable[str]) -> int:
    """How many sets of conditions an event may meet, at most, as far as ranges tell.

    >>> sets_met(["v > 1", "v > 2", "v > 3"]), sets_met(["v > 1", "w > 2", "v + w > 3"])
    (4, 8)
    """
    bounds: dict[str, set[Any]] = {}
    sets = 1
    for condition in conditions:
        read = alternatives(condition)
        terms = {term for alternative in read for term in alternative}
        if len(terms) != 1:
            sets *= 2
            continue
        ends = (end for one in read for r in one.values() for part in r.parts for end in part)
        # A value has a place before and one behind it: of a single value, both are one bound.
        bounds.setdefault(terms.pop(), set()).update(end[1] for end in ends if end[0] == 1)
    return sets * math.prod(len(ends) + 1 for ends in bounds.values())


def _terms(group: Group) -> tuple[list[str], tuple[int, float, int]]:
    """What the conditions of a group speak of."""
    read = [alternatives(condition) for condition in group.selections if condition]
    terms = {term for one in read for alternative in one for term in alternative}
    return sorted(terms), _cells(group)


def _shares(group: Group) -> bool:
    plain = group.slicing == "arrival" and group.way == "slices" and not group.distinct_on
    return plain and all(operator_class(kind).small for kind, _, _ in group.operators)


def _cells(group: Group) -> tuple[int, float, int]:
    """How many cells a group adds to those of others, roughly: by conditions, then by edges."""
    conditions = sum(selection is not None for selection in group.selections)
    edges = sum(1 / period.pace for period in periods_of(group.windows) if not period.only)
    return conditions, edges, group.id


def waiting_together(groups: Iterable[Group], apart: Collection[int] = ()) -> list[list[int]]:
    """All groups whose events wait, by their ids, in sets: one for each key and measure of time.

    Some groups are sets by themselves: where duplicates are dropped, every group has events of its
    own; where each stream has windows of its own, events stay on their node; and of the groups that
    are `apart`, somebody else takes the events.
    """
    found: dict[tuple[Any, ...], list[int]] = {}
    for group in groups:
        if group.slicing == "arrival":
            continue
        alone = group.slicing == "stream" or bool(group.distinct_on) or group.id in apart
        place = (group.id,) if alone else (group.measure, group.by, group.whole)
        found.setdefault(place, []).append(group.id)
    return list(found.values())
