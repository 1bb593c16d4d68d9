"""The checks that several window types share."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from catchment.errors import QueryError, did_you_mean
from catchment.model.window import READINGS, Window, no_such_reading

Some = TypeVar("Some", bound=Window)

MOST_EVENTS = 1 << 48
"""The largest count window: positions of events over many nodes are counted in 64 bits."""


def positive(value: int, what: str, given: object) -> int:
    if value <= 0:
        raise QueryError(
            f"the {what} must be positive",
            given=repr(given),
            hint='try one that is longer than zero, such as "10s"',
        )
    return value


def count(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise QueryError(
            f"the {what} must be a positive whole number of events",
            given=repr(value),
            hint="try 1000",
        )
    if value > MOST_EVENTS:
        hint = f"the most is {MOST_EVENTS:,} events"
        raise QueryError(f"the {what} is too large", given=f"{value:,}", hint=hint)
    return value


def read_as(window: Some, reading: object) -> Some:
    """The window with what it means over the streams of many nodes."""
    for known in READINGS:
        if reading == known:
            break
    else:
        raise QueryError(
            "no such reading of a window",
            given=repr(reading),
            hint=did_you_mean(str(reading), READINGS),
        )
    if known in window.as_global:
        known = "global"
    if known not in window.readings:
        raise no_such_reading(window, known)
    return window if known == window.reading else replace(window, reading=known)
