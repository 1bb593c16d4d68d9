"""The suite of mixes: queries of many kinds together, as people have them, on every runtime."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import (
    mix_batch,
    mix_driver,
    mix_engine,
    mix_keys,
    mix_node,
    mix_random,
    mix_stream,
)
from benchmarks.figure import Figure

PARTS = (mix_engine, mix_random, mix_node, mix_batch, mix_keys, mix_stream, mix_driver)


def figures(quick: bool = False) -> Iterator[Figure]:
    """All figures, part by part."""
    for part in PARTS:
        yield from part.figures(quick)
