"""Measuring speed and size: each suite is one file, and one line here."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from catchment.bench.figure import Figure
from catchment.errors import QueryError, did_you_mean

__all__ = ["Figure", "SUITES", "run"]

SUITES = {
    "engine": "catchment.bench.engine",
    "spark": "catchment.bench.spark",
    "tree": "catchment.bench.tree",
    "flush": "catchment.bench.flush",
}
"""Suite to the module whose `figures(quick)` measures it."""


def run(suite: str, quick: bool = False) -> Iterator[Figure]:
    """The figures of a suite, one by one as they are measured; `quick` takes fewer events."""
    if suite not in SUITES:
        raise QueryError("no such suite", given=suite, hint=did_you_mean(suite, SUITES))
    yield from import_module(SUITES[suite]).figures(quick)
