"""Windows of a number of events."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.model.window import Counted, register, window_builder
from catchment.windows.checks import count
from catchment.windows.in_sql import in_sql


@register
@dataclass(frozen=True, slots=True)
class CountWindow(Counted):
    kind = "count"

    def describe(self) -> str:
        return f"count({self.size:,} every {self.step:,})"


@window_builder
def count_tumbling(size: int) -> CountWindow:
    """A key's events number `i * size` to `(i + 1) * size - 1`, by time, then arrival.

    >>> count_tumbling(100)
    CountWindow(size=100, step=100)

    Raises QueryError for a size that is no positive whole number.
    """
    return count_sliding(size, size)


@window_builder
def count_sliding(size: int, step: int) -> CountWindow:
    """`size` events, one window every `step` events; a larger step leaves events out.

    >>> count_sliding(100, 10)
    CountWindow(size=100, step=10)

    Raises QueryError for a size or step that is no positive whole number.
    """
    return CountWindow(count(size, "count window"), count(step, "count window's step"))


@in_sql("count_window(size[, slide])", takes_time=False)
def _count_window(size: int, slide: int | None = None) -> CountWindow:
    return count_sliding(size, size if slide is None else slide)
