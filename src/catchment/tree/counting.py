"""Which count windows of a tree are found by asking, without collecting events.

Local nodes keep the events of groups that have count windows only, tell the root where some of
them are, and cut them where the root has found an edge: what climbs is a partial per slice.
"""

from __future__ import annotations

import pyarrow as pa

from catchment.engine.group import GroupState
from catchment.model.window import Counted
from catchment.planner.group import only_counts
from catchment.tree.charter import Charter

COUNTS = -2
"""The section of a message that holds notes."""
LARGE = 2_000
"""Events between the edges of windows from which on `auto` asks for them: below, that costs more
bytes than the events."""


def asked(charter: Charter, plan: int) -> dict[int, str]:
    """The groups whose count windows are found by asking, and their names for good.

    Equal on all nodes, and the same for a group in all versions of the plan that have it.
    """
    if not charter.asks or charter.schema is None:
        return {}
    planned, wires = charter.plans[plan], charter.wire(plan)
    least = LARGE if charter.settings["count"] == "auto" else 1
    return {
        group.id: planned.origins[group.id] for group in planned.plan.groups
        if group.slicing == "settled" and not group.distinct_on and group.measure == "event"
        and only_counts(group)
        and all(min(window.size, window.step) >= least for window in _counts(group.windows))
        and all(_plain(wires[group.id].field(f"key {name}").type) for name in group.by)
    }  # fmt: skip


def windows_of(state: GroupState) -> list[Counted]:
    return _counts(state.group.windows)


def _counts(windows: tuple[object, ...]) -> list[Counted]:
    return [window for window in windows if isinstance(window, Counted)]


def _plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind))
