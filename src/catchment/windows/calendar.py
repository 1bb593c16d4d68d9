"""Windows of days, weeks, months, quarters or years, by the clocks of a time zone."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.errors import QueryError
from catchment.model.calendar import DAY, Calendar, Unit, time_zone
from catchment.model.duration import CalendarSpan, Duration, calendar_span, counts_months, show
from catchment.model.window import Period, Periodic, register
from catchment.windows.checks import positive
from catchment.windows.wording import with_reading

_MONDAY = 4
"""The number of 1970-01-05, from which days are counted: so weeks begin on Mondays."""
_LATEST_DAY = 28
"""Days that every month has: a window of months may begin at each of them."""
_UNITS = "days, weeks, months, quarters or years"


@register
@dataclass(frozen=True, slots=True)
class CalendarWindow(Periodic):
    """Windows from the start of day or month number `offset + k * slide` to that `length` further
    on, each `shift` microseconds by the clock after the day or month begins."""

    kind = "calendar"

    unit: Unit
    length: int
    slide: int
    offset: int = 0
    shift: int = 0
    zone: str = "UTC"

    def __post_init__(self) -> None:
        positive(min(self.length, self.slide), "length and slide of a window", self.length)
        time_zone(self.zone)

    @property
    def periods(self) -> tuple[Period, ...]:
        if self.zone == "UTC" and self.unit == "day":  # days of one length: plain time
            start = self.offset * DAY + self.shift
            return (Period(self.length * DAY, self.slide * DAY, start % (self.slide * DAY)),)
        scale = Calendar(self.unit, self.zone, self.shift)
        return (Period(self.length, self.slide, self.offset, scale=scale),)

    def describe(self) -> str:
        length, slide = self._text(self.length), self._text(self.slide)
        base = _MONDAY % self.slide if self.unit == "day" else 0
        moved = (self.offset - base) % self.slide
        parts = [self._text(moved)] if moved else []
        parts += [show(self.shift)] if self.shift else []
        offset = f", offset={' '.join(parts)}" if parts else ""
        one = length if self.length == self.slide else f"{length}, {slide}"
        name = "tumbling" if self.length == self.slide else "sliding"
        return f"{name}({one}{offset}, zone={self.zone}{with_reading(self.reading)})"

    def _text(self, count: int) -> str:
        """So many units, in the largest that divides them."""
        sizes = {"year": 12, "quarter": 3, "month": 1} if self.unit == "month" else {}
        for name, size in (sizes or {"week": 7, "day": 1}).items():
            if count % size == 0:
                return f"{count // size} {name}{'s' if count > size else ''}"
        raise AssertionError(count)


def in_calendar(zone: object, *durations: object) -> bool:
    """Whether windows go by a calendar: a zone is named, or something is in months."""
    return zone is not None or any(map(counts_months, durations))


def calendar_window(
    length: Duration, slide: Duration, offset: Duration, zone: str | None
) -> CalendarWindow:
    """The window of a calendar; without a zone, in UTC."""
    name = "UTC" if zone is None else _name(zone)
    time_zone(name)
    unit, size = _counted(length, "window length")
    unit_of_slide, step = _counted(slide, "window slide")
    if unit != unit_of_slide:
        raise QueryError(
            "the length and the slide of a window must be counted alike, both in months, quarters "
            "and years, or both in days and weeks",
            given=f"length {length}, slide {slide}",
            hint='try sliding("3 months", "1 month") or sliding("30 days", "1 day")',
        )
    span = calendar_span(offset, "window offset")
    start, shift = _in_days(span, offset) if unit == "day" else _in_months(span, offset)
    return CalendarWindow(unit, size, step, start % step, shift, name)


def _name(zone: object) -> str:
    if not isinstance(zone, str):
        hint = "name a place, as in Europe/Berlin or UTC"
        raise QueryError("a time zone is a name", given=repr(zone), hint=hint)
    return zone


def _counted(value: Duration, what: str) -> tuple[Unit, int]:
    """A duration as a number of days or of months."""
    months, days, rest = calendar_span(value, what)
    if rest:
        raise QueryError(
            f"the {what} in a time zone must be whole {_UNITS}",
            given=repr(value),
            hint="leave out the zone: hours and shorter are as long everywhere"
            if not (months or days)
            else "count in one unit",
        )
    if months and days:
        raise QueryError(
            f"the {what} mixes months and days",
            given=repr(value),
            hint='count in one of them, as in "1 month" or "45 days"',
        )
    unit: Unit = "month" if months else "day"
    return unit, positive(months or days, what, value)


def _in_days(span: CalendarSpan, given: Duration) -> tuple[int, int]:
    if span.months:
        raise QueryError(
            "the offset of windows of days or weeks is in days or shorter",
            given=repr(given),
            hint='try offset="6h", or offset="-1 day" for weeks from Sunday',
        )
    days, shift = divmod(span.days * DAY + span.rest, DAY)
    return _MONDAY + days, shift


def _in_months(span: CalendarSpan, given: Duration) -> tuple[int, int]:
    shift = span.days * DAY + span.rest
    if not 0 <= shift < _LATEST_DAY * DAY:
        raise QueryError(
            f"a window of months begins within the first {_LATEST_DAY} days of one, which all of "
            "them have",
            given=repr(given),
            hint='try offset="14 days" for the fifteenth, offset="3 months" for years from April',
        )
    return span.months, shift
