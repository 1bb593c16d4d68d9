"""The suite of flushing: the paper's figures in simulation, `auto`, its cost, real nodes."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import flush_auto, flush_cost, flush_nodes, flush_paper
from benchmarks.figure import Figure

PARTS = (flush_paper, flush_auto, flush_cost, flush_nodes)


def figures(quick: bool = False) -> Iterator[Figure]:
    """Every figure, as it is measured."""
    for part in PARTS:
        yield from part.figures(quick)
