"""Chooses whether events between marks are cut where they are, or climb: what costs fewer bytes."""

from __future__ import annotations

EDGE_BYTES = 32
"""What a mark costs for each node, about: it is told, and cuts a slice in two."""
EVENT_BYTES = 5
"""What an event costs that climbs, about."""


def cost_more(marks: int, nodes: int, events: int) -> bool:
    """Whether to tell so many marks to nodes, and to send slices between them, costs more than so
    many events."""
    return marks * nodes * EDGE_BYTES > events * EVENT_BYTES
