"""Decides which groups of count windows are found by asking nodes, without collecting events."""

from __future__ import annotations

import pyarrow as pa

from catchment.engine.binding import key_type
from catchment.model.plan import Group
from catchment.operators import OperatorRef, operator_class
from catchment.planner.group import counts_of, only_counts
from catchment.planner.planned import Planned

LARGE = 2_000
"""Events between the edges of windows from which on `auto` asks for them: below, that costs more
bytes than the events."""


def distributed_groups(planned: Planned, schema: pa.Schema, count: str) -> dict[int, str]:
    """The groups whose count windows can be found by asking, and their names for good.

    Such a group has count windows only, of events whose order does not matter to any function.
    """
    least = LARGE if count == "auto" else 1
    return {
        group.id: planned.origins[group.id]
        for group in planned.plan.groups
        if only_counts(group)
        and group.slicing == "settled"
        and group.measure == "event"
        and not group.distinct_on
        and not group.feeds
        and not _in_order(group)
        and all(_plain(name, schema) for name in group.by)
        and all(min(window.size, window.step) >= least for window in counts_of(group))
    }


def _in_order(group: Group) -> bool:
    """Whether a function needs all events of a window in one order: nodes' partials have none."""
    return any(operator_class(ref[0]).ordered(OperatorRef(*ref)) for ref in group.operators)


def _plain(name: str, schema: pa.Schema) -> bool:
    """Whether a key column has values that orders can name."""
    if name not in schema.names:
        return False  # the plan is refused where it is bound
    kind = key_type(schema.field(name).type)
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind))
