"""Modules that lean on packages which not everybody installs: imported when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from catchment.errors import SourceError


def module(name: str, extra: str) -> Any:
    """A module of this layer, by its name."""
    try:
        return import_module(f"catchment.sources.{name}")
    except ModuleNotFoundError as error:
        raise SourceError(
            "this source needs a package that is not installed",
            given=error.name,
            hint=f"pip install 'catchment[{extra}]'",
        ) from error
