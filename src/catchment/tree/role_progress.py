"""How far a node of a tree has come, as it says of itself."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from catchment.counting.status import CountStatus


class RoleProgress(Struct, frozen=True):
    """How far a node has come; what only a root knows is not set elsewhere."""

    frontier: int
    complete_until: int
    """Nothing is missing before it, also nothing of nodes that are no longer waited for."""
    missing: tuple[str, ...]
    plan: int
    step: int | UnsetType = UNSET
    counts: dict[str, int] | UnsetType = UNSET
    event_rate: float | UnsetType = UNSET
    planned_rate: float | UnsetType = UNSET
    count_windows: dict[str, CountStatus] | UnsetType = UNSET
    lost: dict[str, int] | UnsetType = UNSET
    """Nodes of which events are lost, and the time up to which results may lack them."""
    not_asked: dict[str, str] | UnsetType = UNSET
    """Nodes that are not asked for values any more, because of what they said, and why."""
