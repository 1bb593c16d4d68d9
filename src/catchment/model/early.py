"""When running values of open windows are given: never, whenever they change, or every so often."""

from __future__ import annotations

import re

from catchment.errors import QueryError
from catchment.model.duration import Duration, micros, show

FINAL, CHANGES = "final", "changes"
_EVERY = re.compile(r"\s*every\s*\((.*)\)\s*", re.DOTALL)
_HINT = 'one of: final, changes, every("10s")'


def every(period: Duration) -> str:
    """Says that running values are given each time that a `period` of event time has passed.

    >>> every("90 seconds")
    'every(90s)'

    Raises QueryError for a period that is no duration, or not positive.
    """
    passed = micros(period, "period of early results")
    if passed <= 0:
        raise QueryError(
            "the period of early results must be positive", given=repr(period), hint='try "10s"'
        )
    return f"every({show(passed)})"


def emit_of(value: object) -> str:
    """What a user said of early results, in one form.

    >>> emit_of("every('1 minute')"), emit_of("changes")
    ('every(1m)', 'changes')
    """
    if value in (FINAL, CHANGES):
        return str(value)
    called = _EVERY.fullmatch(value) if isinstance(value, str) else None
    if called is None:
        raise QueryError("no such choice for emit", given=repr(value), hint=_HINT)
    return every(called[1].strip().strip("\"'"))


def period_of(emit: str) -> int | None:
    """Microseconds of event time between two early results; 0: at each step, None: there are none.

    >>> period_of("final"), period_of("changes"), period_of("every(1s)")
    (None, 0, 1000000)
    """
    if emit in (FINAL, CHANGES):
        return None if emit == FINAL else 0
    called = _EVERY.fullmatch(emit)
    assert called is not None, emit
    return micros(called[1])
