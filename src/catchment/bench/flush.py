"""The suite of flushing: the paper's figures in simulation, `auto`, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator

from catchment.bench import flush_auto, flush_paper
from catchment.bench.figure import Figure

SUITES = (flush_paper, flush_auto)


def figures(quick: bool = False) -> Iterator[Figure]:
    """Every figure, as it is measured."""
    for suite in SUITES:
        yield from suite.figures(quick)
