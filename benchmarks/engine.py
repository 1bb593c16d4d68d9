"""The engine's suite: every figure of its speed and size."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import (
    against,
    calibration,
    counts,
    keyed,
    million,
    planning,
    quantiles,
    scotty,
    strings,
)
from benchmarks.figure import Figure

PARTS = (counts, keyed, scotty, quantiles, strings, million, planning, calibration, against)


def figures(quick: bool = False) -> Iterator[Figure]:
    """All figures, part by part."""
    for part in PARTS:
        yield from part.figures(quick)
