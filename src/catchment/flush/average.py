"""A moving average: of sizes, which change slowly and now and then are odd."""

from __future__ import annotations

_NEWER = 0.2
"""The share of the newest value."""


def moving(average: float, newest: float) -> float:
    """The average after one more value; an average of 0 says that there has been none.

    >>> moving(0.0, 10.0), moving(10.0, 20.0)
    (10.0, 12.0)
    """
    return average + _NEWER * (newest - average) if average else newest
