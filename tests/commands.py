"""Commands of the command line, in this process."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner

from catchment.cli.main import app


def catchment(*words: str, code: int = 0) -> Any:
    """What a command gave, which must end with this code."""
    result = CliRunner().invoke(app, list(words))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result
