"""Windows that end when a key has been quiet for a while."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.model.duration import Duration, micros, show
from catchment.model.window import Gap, register, window_builder
from catchment.windows.checks import positive
from catchment.windows.in_sql import in_sql


@register
@dataclass(frozen=True, slots=True)
class Session(Gap):
    kind = "session"

    def describe(self) -> str:
        return f"session({show(self.gap)})"


@window_builder
@in_sql("session_window(ts, gap)")
def session(gap: Duration) -> Session:
    """Events of a key at most `gap` apart share the window `[first, last + gap)`.

    >>> session("30 minutes")
    Session(gap=1800000000)

    Raises QueryError for a gap that is no duration, or not positive.
    """
    return Session(positive(micros(gap, "session gap"), "session gap", gap))
