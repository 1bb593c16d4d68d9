"""The suite of mixes: queries of many kinds together, as people have them, on every runtime."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import mix_engine, mix_node, mix_random
from benchmarks.figure import Figure

PARTS = (mix_engine, mix_random, mix_node)


def figures(quick: bool = False) -> Iterator[Figure]:
    """All figures, part by part."""
    for part in PARTS:
        yield from part.figures(quick)
