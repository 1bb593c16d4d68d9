"""The suite of trees: bytes on links, the root's capacity, latency, start-up, and Disco."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import (
    tree_capacity,
    tree_first_keys,
    tree_frequent,
    tree_latency,
    tree_mixed,
    tree_ranks,
    tree_start,
    tree_wire,
)
from benchmarks.figure import Figure

PARTS = (
    tree_wire,
    tree_ranks,
    tree_frequent,
    tree_first_keys,
    tree_mixed,
    tree_capacity,
    tree_latency,
    tree_start,
)


def figures(quick: bool = False) -> Iterator[Figure]:
    """Every figure, as it is measured."""
    for part in PARTS:
        yield from part.figures(quick)
