"""Options that several sinks have, and the packages that some need."""

from __future__ import annotations

import importlib
from typing import Annotated

from catchment.errors import SinkError
from catchment.model.duration import micros
from catchment.model.section import duration_option

Timeout = Annotated[str, duration_option("timeout")]
"""How long to try before a delivery is refused, as in "30s"."""


def seconds(timeout: str) -> float:
    return micros(timeout, "timeout") / 1e6


def need(package: str, extra: str) -> None:
    """Fails when a package that not everybody installs is missing."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise SinkError(
            f"the {extra} sink needs a package that is not installed",
            given=package,
            hint=f"pip install 'catchment[{extra}]'",
        ) from error
