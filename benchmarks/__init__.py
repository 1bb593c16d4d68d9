"""Measuring speed and size.

A suite is one file, one line here, and a place for its figures in docs/figures.md.

This package is part of a checkout, not of what is installed: `catchment bench` finds it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from benchmarks.figure import Figure
from catchment.errors import QueryError, did_you_mean

__all__ = ["Figure", "SUITES", "draw", "parts", "run"]

SUITES = {
    "engine": "benchmarks.engine",
    "spark": "benchmarks.spark",
    "tree": "benchmarks.tree",
    "flush": "benchmarks.flush",
    "count": "benchmarks.count",
    "mix": "benchmarks.mix",
    "frames": "benchmarks.frames",
    "language": "benchmarks.language",
}
"""Suite to the module whose `figures(quick)` measures it."""


def run(suite: str, quick: bool = False, only: Sequence[str] = ()) -> Iterator[Figure]:
    """The figures of a suite, one by one as they are measured; `quick` takes fewer events.

    `only` names parts of the suite, if not all of it is wanted.
    """
    if suite not in SUITES:
        raise QueryError("no such suite", given=suite, hint=did_you_mean(suite, SUITES))
    if not only:
        yield from import_module(SUITES[suite]).figures(quick)
        return
    known = parts(suite)
    for name in only:
        if name not in known:
            hint = did_you_mean(name, known) if known else "leave out --only"
            raise QueryError(f"the suite {suite} has no such part", given=name, hint=hint)
    for name in dict.fromkeys(only):
        yield from known[name].figures(quick)


def parts(suite: str) -> dict[str, ModuleType]:
    """The parts of a suite that can be measured alone: the modules of its `PARTS`, if it has any.

    Their names are those of the modules, without the suite's: of `tree_wire`, `wire`.
    """
    modules: Sequence[ModuleType] = getattr(import_module(SUITES[suite]), "PARTS", ())
    names = (module.__name__.rpartition(".")[2].removeprefix(f"{suite}_") for module in modules)
    return dict(zip(names, modules, strict=True))


PLOTS = {"count": "benchmarks.count_plots", "flush": "benchmarks.flush_plots"}
"""Suite to the module whose `draw(folder, quick)` draws its plots."""


def draw(suite: str, folder: Path, quick: bool = False) -> Iterator[Path]:
    """The plots of a suite, one by one as they are drawn into a folder."""
    if suite not in PLOTS:
        raise QueryError("this suite has no plots", given=suite, hint=did_you_mean(suite, PLOTS))
    yield from import_module(PLOTS[suite]).draw(folder, quick)
