"""What `catchment bench` does: measures a suite, prints each figure as it comes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer

import benchmarks
from benchmarks.figure import line


def run(suite: str, quick: bool, as_json: bool, plots: Path | None) -> bool:
    """Measures a suite, or draws its plots; gives whether every figure reaches its bar."""
    if plots is not None:
        for path in benchmarks.draw(suite, plots, quick):
            typer.echo(f"drew {path}")
        return True
    reached = True
    for figure in benchmarks.run(suite, quick):
        typer.echo(json.dumps(asdict(figure)) if as_json else line(figure))
        reached = reached and figure.ok is not False
    return reached
