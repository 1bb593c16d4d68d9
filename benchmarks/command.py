"""What `catchment bench` does: measures a suite, prints each figure as it comes, keeps a record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer
from msgspec.structs import asdict

import benchmarks
from benchmarks import records
from benchmarks.figure import line
from benchmarks.process import importable


def run(
    suite: str,
    quick: bool,
    as_json: bool,
    record: bool,
    plots: Path | None,
    only: Sequence[str] = (),
) -> bool:
    """Measures a suite, or draws its plots; gives whether every figure reaches its bar."""
    if plots is not None:
        for path in benchmarks.draw(suite, plots, quick):
            typer.echo(f"drew {path}")
        return True
    # Before measuring, which may take an hour: the code that runs is the code of this moment.
    commit = records.commit() if record else ""
    found = []
    with importable():
        for figure in benchmarks.run(suite, quick, only):
            typer.echo(json.dumps(asdict(figure)) if as_json else line(figure))
            found.append(figure)
    if record:
        path = records.write(records.made(suite, quick, commit, found))
        typer.echo(f"recorded in {path}", err=True)
    return all(figure.ok is not False for figure in found)
