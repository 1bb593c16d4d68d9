"""What plots are drawn with, imported only where one is drawn."""

from __future__ import annotations

from typing import Any

from catchment.errors import CatchmentError


def pyplot() -> Any:
    """Matplotlib's, drawing into files."""
    try:
        import matplotlib
    except ImportError as error:
        raise CatchmentError(
            "plots need matplotlib", hint="pip install 'catchment[plots]'"
        ) from error
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot
