"""Durations and instants, in whole microseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from numbers import Integral
from typing import NamedTuple

from catchment.errors import QueryError

_UNITS = {
    "us": 1,
    "microsecond": 1,
    "microseconds": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "milliseconds": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "seconds": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "minutes": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "hours": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
    "days": 86_400_000_000,
    "w": 604_800_000_000,
    "week": 604_800_000_000,
    "weeks": 604_800_000_000,
}
_MONTHS = {
    "mo": 1,
    "month": 1,
    "months": 1,
    "q": 3,
    "quarter": 3,
    "quarters": 3,
    "y": 12,
    "year": 12,
    "years": 12,
}
_DAYS = {"d": 1, "day": 1, "days": 1, "w": 7, "week": 7, "weeks": 7}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_EXAMPLE = 'write a number and a unit, as in "10s", "5 minutes" or "1h 30m"'
_FIXED = (
    "months, quarters and years are lengths, slides and offsets of tumbling and sliding windows; "
    "elsewhere count days"
)
LONGEST = 1 << 60
"""Microseconds of a duration."""
_FARTHEST = 1 << 62
"""Microseconds from 1970 to any time that windows and frontiers know."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Duration = str | timedelta
Instant = str | datetime | int


def micros(value: Duration, what: str = "duration") -> int:
    """A duration in microseconds.

    >>> micros("1h 30m"), micros("250 ms"), micros(timedelta(seconds=2))
    (5400000000, 250000, 2000000)
    """
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if not isinstance(value, str):
        raise QueryError(f"the {what} needs a unit", given=repr(value), hint=_EXAMPLE)
    return _parse(value, what)


@lru_cache(maxsize=65536)
def _parse(text: str, what: str) -> int:
    total = 0.0
    exact = 0
    for number, unit in _parts(text, what):
        if unit in _MONTHS:
            raise QueryError(f"the {what} has no fixed length", given=repr(text), hint=_FIXED)
        if "." in number:
            total += float(number) * _UNITS[unit]
        else:
            exact += int(number) * _UNITS[unit]
    result = exact + round(total)
    if abs(result) > LONGEST:
        raise _too_long(text, what)
    return result


def _parts(text: str, what: str) -> list[tuple[str, str]]:
    """The numbers and units that a text is made of."""
    rest = text.strip().lower().removeprefix("interval").strip().strip("'").strip()
    parts = []
    position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if not part or (part[2] not in _UNITS and part[2] not in _MONTHS):
            raise QueryError(f"the {what} is not a duration", given=repr(text), hint=_EXAMPLE)
        parts.append((part[1], part[2]))
        position = part.end()
    if not parts:
        raise QueryError(f"the {what} is empty", given=repr(text), hint=_EXAMPLE)
    return parts


def _too_long(value: Duration, what: str) -> QueryError:
    hint = "the most is 36,000 years"
    return QueryError(f"the {what} is too long", given=repr(value), hint=hint)


class CalendarSpan(NamedTuple):
    """A stretch of a calendar: how long it is depends on where it begins."""

    months: int
    days: int
    rest: int
    """Microseconds by the clock."""


def counts_months(value: object) -> bool:
    """Whether a duration is in months, quarters or years.

    >>> counts_months("1 month"), counts_months("30 days"), counts_months("nonsense")
    (True, False, False)
    """
    if not isinstance(value, str):
        return False
    return any(unit in _MONTHS for _, unit in _PART.findall(value.lower()))


def calendar_span(value: Duration, what: str = "duration") -> CalendarSpan:
    """A duration as months, days and what is left.

    >>> calendar_span("1 year 2 weeks"), calendar_span("-1d 6h")
    (CalendarSpan(months=12, days=14, rest=0), CalendarSpan(months=0, days=-1, rest=21600000000))
    """
    if not isinstance(value, str):
        days, rest = divmod(micros(value, what), _UNITS["day"])
        return CalendarSpan(0, days, rest)
    months = days = 0
    left: list[str] = []
    for number, unit in _parts(value, what):
        if unit not in _MONTHS and unit not in _DAYS:
            left.append(f"{number}{unit}")
        elif "." in number:
            hint = "write a whole number of them, as in '1 month' or '2 weeks'"
            raise QueryError(f"the {what} breaks a calendar unit", given=repr(value), hint=hint)
        else:
            months += int(number) * _MONTHS.get(unit, 0)
            days += int(number) * _DAYS.get(unit, 0)
    if max(abs(days), 31 * abs(months)) * _UNITS["day"] > LONGEST:
        raise _too_long(value, what)
    return CalendarSpan(months, days, micros(" ".join(left), what) if left else 0)


def show(duration: int) -> str:
    """The shortest exact text of a duration in microseconds.

    >>> show(90_000_000), show(3_600_000_000), show(1_500)
    ('90s', '1h', '1500us')
    """
    for unit, size in (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000)):
        if duration and duration % size == 0:
            return f"{duration // size}{unit}"
    for unit, size in (("s", 1_000_000), ("ms", 1_000)):
        if duration % size == 0:
            return f"{duration // size}{unit}"
    return f"{duration}us"


def instant(value: Instant, what: str = "time") -> int:
    """An instant in microseconds since 1970; naive means UTC.

    >>> instant("1970-01-01 00:00:01"), instant(datetime(1969, 12, 31, 23, 59, 59))
    (1000000, -1000000)
    """
    if isinstance(value, bool) or not isinstance(value, str | Integral | datetime):
        raise QueryError(
            f"the {what} is not an instant",
            given=repr(value),
            hint="pass a datetime, an ISO text or whole microseconds since 1970",
        )
    if isinstance(value, Integral):
        if abs(int(value)) > _FARTHEST:
            raise QueryError(
                f"the {what} is too far from now",
                given=int(value),
                hint="event times are microseconds since 1970, of at most 146,000 years",
            )
        return int(value)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise QueryError(
                f"the {what} is not an instant",
                given=repr(value),
                hint='write it as "2026-01-31 12:00:00" (UTC unless it says otherwise)',
            ) from error
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return (value - _EPOCH) // timedelta(microseconds=1)
