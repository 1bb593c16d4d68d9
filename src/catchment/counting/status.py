"""What an operator wants to know of count windows."""

from __future__ import annotations

from typing import Any

from catchment.counting.node_view import EARLIEST
from catchment.counting.root import LATEST, RootCounter

_FAR = 3.0
"""Strides that a clock may be away from the others' before it is named."""


def status(root: RootCounter) -> dict[str, Any]:
    """The scheme in use, how often it was wrong, and whose clocks or links are bad."""
    tracks = root.tracks
    return {
        "scheme": root.using,
        "moves": root.auto.moves,
        "edges": root.edge,
        "corrections": root.corrections,
        "rounds": root.rounds,
        "clocks": clocks(root),
        "late": {node: track.late for node, track in tracks.items() if track.late},
        "missing": [node for node, track in tracks.items() if track.gone and not track.left],
    }


def clocks(root: RootCounter) -> dict[int, str]:
    """Nodes whose clocks seem wrong: far from the others', or running backwards."""
    live = {node: track.frontier for node, track in root.tracks.items() if not track.gone}
    known = sorted(frontier for frontier in live.values() if EARLIEST < frontier < LATEST)
    if not known or not root.pace.paces:
        return {}
    middle = known[len(known) // 2]
    far = _FAR * root.pace.paces[-1] * root.edges.stride
    found = {node: "ahead" for node, frontier in live.items() if middle + far < frontier < LATEST}
    found |= {node: "behind" for node, f in live.items() if EARLIEST < f < middle - far}
    late = {n: "backwards" for n, track in root.tracks.items() if track.late and n not in found}
    return found | late
