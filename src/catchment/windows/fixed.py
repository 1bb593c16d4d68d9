"""One window, from one instant to another."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.errors import QueryError
from catchment.model.duration import LONGEST, Instant, instant
from catchment.model.window import OnePeriod, Period, register, window_builder


@register
@dataclass(frozen=True, slots=True)
class Fixed(OnePeriod):
    kind = "fixed"

    @property
    def periods(self) -> tuple[Period, ...]:
        return (Period(self.length, self.slide, self.offset, only=True),)

    def describe(self) -> str:
        return f"fixed({self.offset}us, {self.offset + self.length}us)"


@window_builder
def fixed(start: Instant, end: Instant) -> Fixed:
    """The single window `[start, end)`: times as texts, datetimes or microseconds since 1970.

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
    return Fixed(last - first, last - first, first)
