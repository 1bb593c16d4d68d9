"""Windows of one length, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.model.duration import Duration, micros, show
from catchment.model.window import OnePeriod, Periodic, register, window_builder
from catchment.windows.calendar import calendar_window, in_calendar
from catchment.windows.checks import positive, read_as
from catchment.windows.wording import with_offset, with_reading


@register
@dataclass(frozen=True, slots=True)
class Tumbling(OnePeriod):
    kind = "tumbling"

    def describe(self) -> str:
        more = with_offset(self.offset) + with_reading(self.reading)
        return f"tumbling({show(self.length)}{more})"


@window_builder
def tumbling(
    length: Duration,
    *,
    offset: Duration = "0s",
    zone: str | None = None,
    reading: str = "global",
) -> Periodic:
    """Windows `[k * length + offset, (k + 1) * length + offset)`, side by side.

    `length` is how long they are, `offset` by how much they are shifted against 1970.

    With a `zone`, a window is whole days, weeks (from Monday), months, quarters or years by the
    clocks there; months and longer are those of UTC where no zone is named. The offset is then by
    the clock too, and may count months.

    `reading` says what becomes of the windows of many nodes: by `local` each node has its own, and
    the column `node` says whose a result is.

    >>> tumbling("10s", offset="2s")
    Tumbling(length=10000000, slide=10000000, offset=2000000)
    >>> tumbling("1 quarter", zone="Europe/Berlin").describe()
    'tumbling(1 quarter, zone=Europe/Berlin)'

    Raises QueryError for a length that is no duration, or not positive.
    """
    if in_calendar(zone, length, offset):
        return read_as(calendar_window(length, length, offset, zone), reading)
    size = positive(micros(length, "window length"), "window length", length)
    return read_as(Tumbling(size, size, micros(offset, "window offset") % size), reading)
