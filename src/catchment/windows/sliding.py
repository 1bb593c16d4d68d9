"""Windows of one length, one beginning every slide."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.model.duration import Duration, micros, show
from catchment.model.window import OnePeriod, Periodic, register, window_builder
from catchment.windows.calendar import calendar_window, in_calendar
from catchment.windows.checks import positive, read_as
from catchment.windows.in_sql import in_sql
from catchment.windows.tumbling import Tumbling
from catchment.windows.wording import with_offset, with_reading


@register
@dataclass(frozen=True, slots=True)
class Sliding(OnePeriod):
    kind = "sliding"

    def describe(self) -> str:
        more = with_offset(self.offset) + with_reading(self.reading)
        return f"sliding({show(self.length)}, {show(self.slide)}{more})"


@window_builder
def sliding(
    length: Duration,
    slide: Duration,
    *,
    offset: Duration = "0s",
    zone: str | None = None,
    reading: str = "global",
) -> Periodic:
    """Windows `[k * slide + offset, k * slide + offset + length)`: one begins every `slide`.

    `length` is how long they are, `offset` by how much they are shifted against 1970.

    A slide longer than the length leaves gaps whose events are in no window; a slide equal to the
    length is a tumbling window, and is the same window to the planner. A `zone` means what it does
    for tumbling windows; length and slide are then both in days and weeks, or both in longer units.
    So does `reading`.

    >>> sliding("10s", "5s")
    Sliding(length=10000000, slide=5000000, offset=0)

    Raises QueryError for a length or slide that is no duration, or not positive.
    """
    if in_calendar(zone, length, slide, offset):
        return read_as(calendar_window(length, slide, offset, zone), reading)
    size = positive(micros(length, "window length"), "window length", length)
    step = positive(micros(slide, "window slide"), "window slide", slide)
    shift = micros(offset, "window offset") % step
    made = Tumbling(size, step, shift) if size == step else Sliding(size, step, shift)
    return read_as(made, reading)


@in_sql("window(ts, size[, slide[, start]][, zone => name][, reading => 'local'])")
def _window(
    size: Duration,
    slide: Duration | None = None,
    start: Duration = "0s",
    zone: str | None = None,
    reading: str = "global",
) -> Periodic:
    step = size if slide is None else slide
    return sliding(size, step, offset=start, zone=zone, reading=reading)
