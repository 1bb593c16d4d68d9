"""`catchment bench`: finds the benchmarks, which are in a checkout and not in the package."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from catchment.errors import CatchmentError


def run(
    suite: str,
    quick: bool,
    as_json: bool,
    record: bool,
    plots: Path | None,
    only: Sequence[str] = (),
) -> bool:
    """Measures a suite, or draws its plots; gives whether every figure reaches its bar."""
    _reach()
    command = import_module("benchmarks.command")
    reached: bool = command.run(suite, quick, as_json, record, plots, only)
    return reached


def suites() -> list[str]:
    """The names of all suites."""
    _reach()
    return [*import_module("benchmarks").SUITES]


def _reach() -> None:
    """Lets the benchmarks of the checkout be imported."""
    root = str(checkout(Path(__file__).resolve().parents[3], Path.cwd()))
    if root not in sys.path:
        sys.path.insert(0, root)


def checkout(*places: Path) -> Path:
    """The first of some folders that is a checkout of the project, with its benchmarks.

    It holds the package too: a folder of that name alone may be anybody's.
    """
    for place in places:
        parts = (place / "benchmarks", place / "src" / "catchment")
        if all((part / "__init__.py").is_file() for part in parts):
            return place
    raise CatchmentError(
        "the benchmarks are not part of the installed package",
        hint="run this command in the top folder of a checkout of the project's repository",
    )
