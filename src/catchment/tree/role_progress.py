"""How far a node of a tree has come, as it says of itself."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from catchment.counting.status import CountStatus


class RoleProgress(Struct, frozen=True):
    """How far a node has come; what only a root knows is not set elsewhere."""

    frontier: int
    complete_until: int
    """Nothing at all is missing before it, whatever was given up waiting for."""
    missing: tuple[str, ...]
    plan: int
    step: int | UnsetType = UNSET
    counts: dict[str, int] | UnsetType = UNSET
    event_rate: float | UnsetType = UNSET
    planned_rate: float | UnsetType = UNSET
    count_windows: dict[str, CountStatus] | UnsetType = UNSET
