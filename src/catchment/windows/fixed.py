"""One window, from one instant to another."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.errors import QueryError
from catchment.model.duration import LONGEST, Instant, instant
from catchment.model.window import OnePeriod, Period, register, window_builder
from catchment.windows.checks import read_as
from catchment.windows.wording import with_reading


@register
@dataclass(frozen=True, slots=True)
class Fixed(OnePeriod):
    kind = "fixed"

    @property
    def periods(self) -> tuple[Period, ...]:
        return (Period(self.length, self.slide, self.offset, only=True),)

    def describe(self) -> str:
        bounds = f"{self.offset}us, {self.offset + self.length}us"
        return f"fixed({bounds}{with_reading(self.reading)})"


@window_builder
def fixed(start: Instant, end: Instant, *, reading: str = "global") -> Fixed:
    """The single window `[start, end)`: times as texts, datetimes or microseconds since 1970.

    `reading` means what it does for tumbling windows.

    >>> fixed(0, 10)
    Fixed(length=10, slide=10, offset=0)

    Raises QueryError for what is no time, and for an end that is not after the start.
    """
    first, last = instant(start, "window start"), instant(end, "window end")
    if last <= first:
        raise QueryError(
            "a fixed window must end after it starts",
            given=f"{start} to {end}",
            hint="swap the two instants",
        )
    if last - first > LONGEST:
        raise QueryError(
            "a fixed window is too long",
            given=f"{start} to {end}",
            hint="the most is 36,000 years",
        )
    return read_as(Fixed(last - first, last - first, first), reading)
