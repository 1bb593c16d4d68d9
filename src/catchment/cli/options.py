"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JobFile = Annotated[Path, typer.Argument(help="A job file (YAML).", metavar="JOB.YAML")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        help="The job's checkpoint, instead of the job file's.", metavar="DIR", show_default=False
    ),
]
