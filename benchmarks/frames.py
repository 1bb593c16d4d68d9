"""The frames suite: results as DataFrames, many, few and streamed, also on Connect."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import frames_few, frames_many, frames_stream
from benchmarks.figure import Figure

PARTS = (frames_many, frames_few, frames_stream)


def figures(quick: bool = False) -> Iterator[Figure]:
    """All figures; each part has processes of its own."""
    for part in PARTS:
        yield from part.figures(quick)
