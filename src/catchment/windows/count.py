"""Windows of a number of events."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.errors import QueryError
from catchment.model.duration import Duration, micros, show
from catchment.model.window import Chained, Counted, register, window_builder
from catchment.windows.checks import count, positive, read_as
from catchment.windows.in_sql import in_sql
from catchment.windows.wording import with_reading


@register
@dataclass(frozen=True, slots=True)
class CountWindow(Counted):
    kind = "count"

    def describe(self) -> str:
        return f"count({self.size:,} every {self.step:,}{with_reading(self.reading)})"


@window_builder
def count_tumbling(size: int, *, reading: str = "global") -> CountWindow:
    """A key's events number `i * size` to `(i + 1) * size - 1`, by time, then arrival.

    `reading` says what becomes of the windows of many nodes: by `global` the events of all are
    counted together. By the others each node counts its own, and windows stay apart (`local`), or
    are one where their bounds are equal (`aligned`) or by their number (`ordered`).

    >>> count_tumbling(100)
    CountWindow(size=100, step=100)

    Raises QueryError for a size that is no positive whole number.
    """
    return count_sliding(size, size, reading=reading)


@window_builder
def count_sliding(size: int, step: int, *, reading: str = "global") -> CountWindow:
    """`size` events, one window every `step` events; a larger step leaves events out.

    `reading` means what it does for `count_tumbling`.

    >>> count_sliding(100, 10)
    CountWindow(size=100, step=10)

    Raises QueryError for a size or step that is no positive whole number.
    """
    made = CountWindow(count(size, "count window"), count(step, "count window's step"))
    return read_as(made, reading)


@register
@dataclass(frozen=True, slots=True)
class CountWithin(Chained):
    """A number of events, or as many as come within a time."""

    kind = "count_within"

    def describe(self) -> str:
        more = show(self.max_length or 0) + with_reading(self.reading)
        return f"count_within({self.max_events:,}, {more})"


@window_builder
def count_within(size: int, limit: Duration, *, reading: str = "global") -> CountWithin:
    """A key's next `size` events, or fewer where `limit` has passed since the first of them.

    Windows follow each other: each begins with the first event that is in none before. One that is
    full is `[first, last]`, the times of its first and last event; another ends `limit` after its
    first. Full windows of one instant are numbered from 0 by `window_index`. `reading` means what
    it does for `count_tumbling`.

    >>> count_within(1000, "10s").describe()
    'count_within(1,000, 10s)'

    Raises QueryError for a size or a limit that is not positive.
    """
    most = count(size, "count window")
    longest = positive(micros(limit, "time limit of a count window"), "time limit", limit)
    return read_as(CountWithin(max_length=longest, max_events=most), reading)


@in_sql(
    "count_window(size[, slide] | size, within => duration[, reading => 'local'])", takes_time=False
)
def _count_window(
    size: int,
    slide: int | None = None,
    within: Duration | None = None,
    reading: str = "global",
) -> CountWindow | CountWithin:
    if within is None:
        return count_sliding(size, size if slide is None else slide, reading=reading)
    if slide is not None:
        raise QueryError(
            "count windows with a time limit follow each other, and do not slide",
            given=f"slide {slide}, within {within}",
            hint="leave out one of the two",
        )
    return count_within(size, within, reading=reading)
