"""Which count windows of a tree are found by asking, without collecting events.

Local nodes keep the events of groups that have count windows only, tell the root where some of
them are, and cut them where the root has found an edge: what climbs is a partial per slice.
"""

from __future__ import annotations

from catchment.engine.asking import found_by_asking
from catchment.planner.group import only_counts
from catchment.tree.charter import Charter

COUNTS = -2
"""The section of a message that holds notes."""


def asked(charter: Charter, plan: int) -> dict[int, str]:
    """The groups whose count windows are found by asking, and their names for good.

    Equal on all nodes, and the same for a group in all versions of the plan that have it.
    """
    if not charter.asks or charter.schema is None:
        return {}
    wires = charter.wire(plan)
    types = {
        group.id: {name: wires[group.id].field(f"key {name}").type for name in group.by}
        for group in charter.plans[plan].plan.groups
        if only_counts(group)
    }
    return found_by_asking(charter.plans[plan], types, str(charter.settings["count"]))
