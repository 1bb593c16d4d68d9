"""The status of count windows, for the person who runs a tree."""

from __future__ import annotations

from msgspec import Struct

from catchment.counting.node_view import EARLIEST
from catchment.counting.root import LATEST, RootCounter

_FAR = 3.0
"""Strides that a clock may be away from the others' before it is named."""


class CountStatus(Struct, frozen=True):
    """The scheme in use, how often it was wrong, and whose clocks or links are bad."""

    scheme: str
    moves: list[tuple[int, str]]
    """Where another scheme was chosen, and which."""
    edges: int
    corrections: int
    rounds: int
    clocks: dict[int, str]
    """By node: what seems to be wrong with its clock."""
    late: dict[int, int]
    """By node: events that came too late."""
    missing: list[int]


def status(root: RootCounter) -> CountStatus:
    """How the count windows of a key stand at the root."""
    views = root.views
    return CountStatus(
        scheme=root.using,
        moves=root.auto.moves,
        edges=root.edge,
        corrections=root.corrections,
        rounds=root.rounds,
        clocks=clocks(root),
        late={node: view.late for node, view in views.items() if view.late},
        missing=[node for node, view in views.items() if view.gone and not view.left],
    )


def clocks(root: RootCounter) -> dict[int, str]:
    """Nodes whose clocks seem wrong: far from the others', or running backwards."""
    live = {node: view.frontier for node, view in root.views.items() if not view.gone}
    known = sorted(frontier for frontier in live.values() if EARLIEST < frontier < LATEST)
    if not known or not root.pace.paces:
        return {}
    middle = known[len(known) // 2]
    far = _FAR * root.pace.paces[-1] * root.edges.stride
    found = {node: "ahead" for node, frontier in live.items() if middle + far < frontier < LATEST}
    found |= {node: "behind" for node, f in live.items() if EARLIEST < f < middle - far}
    late = {n: "backwards" for n, view in root.views.items() if view.late and n not in found}
    return found | late
