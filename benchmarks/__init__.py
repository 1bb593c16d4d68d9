"""Measuring speed and size.

A suite is one file, one line here, and a place for its figures in README.md and docs/figures.md.

This package is part of a checkout, not of what is installed: `catchment bench` finds it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from benchmarks.figure import Figure
from catchment.errors import QueryError, did_you_mean

__all__ = ["Figure", "SUITES", "draw", "run"]

SUITES = {
    "engine": "benchmarks.engine",
    "spark": "benchmarks.spark",
    "tree": "benchmarks.tree",
    "flush": "benchmarks.flush",
    "count": "benchmarks.count",
}
"""Suite to the module whose `figures(quick)` measures it."""


def run(suite: str, quick: bool = False) -> Iterator[Figure]:
    """The figures of a suite, one by one as they are measured; `quick` takes fewer events."""
    if suite not in SUITES:
        raise QueryError("no such suite", given=suite, hint=did_you_mean(suite, SUITES))
    yield from import_module(SUITES[suite]).figures(quick)


PLOTS = {"count": "benchmarks.count_plots", "flush": "benchmarks.flush_plots"}
"""Suite to the module whose `draw(folder, quick)` draws its plots."""


def draw(suite: str, folder: Path, quick: bool = False) -> Iterator[Path]:
    """The plots of a suite, one by one as they are drawn into a folder."""
    if suite not in PLOTS:
        raise QueryError("this suite has no plots", given=suite, hint=did_you_mean(suite, PLOTS))
    yield from import_module(PLOTS[suite]).draw(folder, quick)
