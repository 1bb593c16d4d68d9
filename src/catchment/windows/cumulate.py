"""Windows that grow: each size is given again and again on its way, from its start up to now."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from catchment.errors import QueryError
from catchment.model.duration import Duration, micros, show
from catchment.model.window import Period, Periodic, register, window_builder
from catchment.windows.checks import positive, read_as
from catchment.windows.in_sql import in_sql
from catchment.windows.tumbling import tumbling
from catchment.windows.wording import with_offset, with_reading


@register
@dataclass(frozen=True, slots=True)
class Cumulate(Periodic):
    kind = "cumulate"

    size: int
    step: int
    offset: int = 0

    @property
    def periods(self) -> tuple[Period, ...]:
        return _periods(self.size, self.step, self.offset)

    def describe(self) -> str:
        more = with_offset(self.offset) + with_reading(self.reading)
        return f"cumulate({show(self.size)}, {show(self.step)}{more})"


@lru_cache(maxsize=64)
def _periods(size: int, step: int, offset: int) -> tuple[Period, ...]:
    return tuple(Period(length, size, offset) for length in range(step, size + 1, step))


@window_builder
def cumulate(
    size: Duration, step: Duration, *, offset: Duration = "0s", reading: str = "global"
) -> Periodic:
    """Windows `[k * size + offset, k * size + offset + j * step)`, for j from 1 to `size / step`.

    All windows of one k start together, and each ends a step after the one before it; the last has
    the whole size. `offset` shifts all of them against 1970. The size must be a multiple of the
    step; a step as long as the size makes a tumbling window, and is the same window to the planner.
    Flink calls it CUMULATE. `reading` means what it does for tumbling windows.

    >>> cumulate("1h", "10min")
    Cumulate(size=3600000000, step=600000000, offset=0)

    Raises QueryError for what is no duration, and for a size that is no multiple of the step.
    """
    whole = positive(micros(size, "window size"), "window size", size)
    part = positive(micros(step, "window step"), "window step", step)
    if whole % part:
        raise QueryError(
            "the size of a cumulating window must be a multiple of its step",
            given=f"size {size}, step {step}",
            hint='try cumulate("1h", "10min")',
        )
    if whole == part:
        return tumbling(size, offset=offset, reading=reading)
    return read_as(Cumulate(whole, part, micros(offset, "window offset") % whole), reading)


@in_sql("cumulate_window(ts, size, step[, start][, reading => 'local'])")
def _cumulate_window(
    size: Duration, step: Duration, start: Duration = "0s", reading: str = "global"
) -> Periodic:
    return cumulate(size, step, offset=start, reading=reading)
