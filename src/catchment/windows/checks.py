"""The checks that several window types share."""

from __future__ import annotations

from catchment.errors import QueryError, did_you_mean
from catchment.model.window import READINGS, Reading

MOST_EVENTS = 1 << 48
"""Of a count window: positions of events are counted in 64 bits, over many nodes."""


def positive(value: int, what: str, given: object) -> int:
    if value <= 0:
        raise QueryError(
            f"the {what} must be positive", given=repr(given), hint='try "10s" or longer than zero'
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


def one_reading(value: object) -> Reading:
    """What a user-defined window means over the streams of many nodes."""
    for known in READINGS:
        if value == known:
            return known
    raise QueryError(
        "no such reading of a user-defined window",
        given=repr(value),
        hint=did_you_mean(str(value), READINGS),
    )
