"""Which groups need few of their values, which can be found by asking who has them: those of some
ranks, or the most frequent."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from catchment.functions import Function, function_of
from catchment.model.plan import Group
from catchment.model.query import Aggregate
from catchment.operators import OperatorRef, operator_class

SORT, COUNTS = "sort", "counts"
SEARCHED = (SORT, COUNTS)
"""The operators whose values may be asked for: sorted values, and how often each value occurs."""
_ENDS = ("min", "max", "count")
"""What the number of sorted values, the first and the last of them tell."""


def is_ranked(group: Group) -> bool:
    """Whether values of a group may stay where they were read: its slices are cut at edges that
    are known ahead, as events come."""
    return (
        group.slicing == "arrival"
        and group.way == "slices"
        and group.measure == "event"
        and not group.distinct_on
        and all(window.periods for window in group.windows)
        and any(ref[0] in SEARCHED for ref in group.operators)
    )


def value_wants(group: Group, of: OperatorRef) -> Iterator[tuple[Function, Aggregate, bool]]:
    """The functions that read the values of an operator, and whether some of them are enough."""
    refs = {OperatorRef(*ref) for ref in group.operators}
    derived = operator_class(of.kind).derives
    for aggregate in dict.fromkeys(one for answer in group.answers for one in answer.aggregates):
        function = function_of(aggregate)
        for ref in function.operators(aggregate):
            if ref == of:
                yield function, aggregate, _some_do(function, aggregate, of)
            elif (
                ref.column == of.column
                and ref not in refs
                and ref.kind in derived
                and ref.kind not in _ENDS
            ):
                yield function, aggregate, False


def _some_do(function: Function, aggregate: Aggregate, of: OperatorRef) -> bool:
    if of.kind == COUNTS:
        return function.most_frequent(aggregate) is not None
    return function.ranks(aggregate, np.array([1], np.int64)) is not None


def needs_all(group: Group) -> list[str]:
    """The aggregates of a group that need every one of its values."""
    return [
        aggregate.text
        for ref in group.operators
        if ref[0] in SEARCHED
        for _, aggregate, some_do in value_wants(group, OperatorRef(*ref))
        if not some_do
    ]
