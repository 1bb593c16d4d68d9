"""Words for whoever waits: what a benchmark is at, on standard error."""

from __future__ import annotations

import typer


def tell(what: str, done: int, of: int) -> None:
    """One line, before something that takes long; the figures themselves go elsewhere."""
    typer.echo(f"{what}: {done} of {of}", err=True)
