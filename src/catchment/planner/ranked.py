"""Which groups need few of their values, which can be found by asking who has them: those of some
ranks, or the most frequent; and which need only the first keys of each window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from catchment.expression import quote
from catchment.functions import Function, function_of
from catchment.model.plan import Answer, Group
from catchment.model.query import Aggregate
from catchment.operators import OperatorRef, operator_class

SORT, COUNTS = "sort", "counts"
SEARCHED = (SORT, COUNTS)
"""The operators whose values may be asked for: sorted values, and how often each value occurs."""
_ENDS = ("min", "max", "count")
"""What the number of sorted values, the first and the last of them tell."""
_ADDED = ("sum", "count")
"""The functions whose results over nodes are the sums of theirs."""


class FirstKeys(NamedTuple):
    """What a query wants that takes the first keys of each window: as many as `limit`, of those
    whose `score`, a sum or a count, is greatest."""

    score: OperatorRef
    limit: int


def is_ranked(group: Group) -> bool:
    """Whether values of a group, or rows of keys, may stay where they were read: its slices are cut
    at edges that are known ahead, as events come."""
    return (
        group.slicing == "arrival"
        and group.way == "slices"
        and group.measure == "event"
        and not group.distinct_on
        and all(window.periods for window in group.windows)
        and (_searched(group) or any(first_keys(answer) for answer in group.answers))
    )


def _searched(group: Group) -> bool:
    return any(ref[0] in SEARCHED for ref in group.operators)


def takes_first_keys(group: Group) -> bool:
    """Whether rows of keys of a ranked group may stay where they were read, not single values."""
    return not _searched(group)


def first_keys(answer: Answer) -> FirstKeys | None:
    """Which keys of each window are enough for an answer: the first by a sum or a count, the
    greatest first; None where it needs all."""
    output = answer.output
    if (
        output is None
        or not output.limit
        or not output.order
        or output.having is not None
        or output.sets
        or answer.feeds
    ):
        return None
    by = output.order[0]
    if not by.descending or by.nulls_first:
        return None
    for aggregate in answer.aggregates:
        if aggregate.function in _ADDED and by.expression == quote(aggregate.text):
            return FirstKeys(OperatorRef(aggregate.function, aggregate.column), output.limit)
    return None


def need_all_keys(group: Group) -> list[str]:
    """Why all keys of a group are needed, where some of its queries take only the first."""
    first = [first_keys(answer) for answer in group.answers]
    reasons = []
    if None in first:
        reasons.append("a query takes other keys than the first by a sum or a count")
    if len({one.score for one in first if one is not None}) > 1:
        reasons.append("queries take the first by different sums or counts")
    return reasons


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
