"""Windows that end when a key has been quiet for a while."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.errors import QueryError
from catchment.expression import canonical
from catchment.model.duration import Duration, micros, show
from catchment.model.window import Chained, Gap, Window, register, window_builder
from catchment.windows.checks import count, positive, read_as
from catchment.windows.in_sql import in_sql
from catchment.windows.wording import with_reading


@register
@dataclass(frozen=True, slots=True)
class Session(Gap):
    kind = "session"

    def describe(self) -> str:
        return f"session({show(self.gap)}{with_reading(self.reading)})"


@register
@dataclass(frozen=True, slots=True)
class LimitedSession(Chained):
    """Sessions that have a limit, or gaps from a column."""

    kind = "limited_session"

    def describe(self) -> str:
        parts = [f"gap_from={self.gap_from}" if self.gap is None else show(self.gap)]
        if self.max_length is not None:
            parts.append(f"max_length={show(self.max_length)}")
        if self.min_events > 1:
            parts.append(f"min_events={self.min_events}")
        return f"session({', '.join(parts)}{with_reading(self.reading)})"


@window_builder
@in_sql(
    "session_window(ts, gap[, max_length => length][, min_events => n][, reading => 'local']), "
    "or session_window(ts, gap_from => seconds)"
)
def session(
    gap: Duration | None = None,
    *,
    gap_from: str | None = None,
    max_length: Duration | None = None,
    min_events: int = 1,
    reading: str = "global",
) -> Window:
    """Events of a key at most `gap` apart share the window `[first, last + gap)`.

    With `gap_from`, an expression of the events, each event has a gap of its own, of so many
    seconds: a session goes on as long as the next event comes within the gap of one that it has.
    Events whose gap is null, not a number, or not positive are in no session, as if `where` said
    so. With `max_length`, an event that comes that long after the first of a session, or later,
    begins the next one. Sessions of fewer than `min_events` events are left out.

    `reading` says what becomes of the sessions of many nodes: by `global` there are those of all
    events together. By the others each node has its own, which stay apart (`local`), or are one
    where their bounds are equal (`aligned`) or by their number (`ordered`).

    >>> session("30 minutes")
    Session(gap=1800000000)
    >>> session("30 minutes", max_length="4h").describe()
    'session(30m, max_length=4h)'

    Raises QueryError for a gap that is no duration, or not positive.
    """
    if (gap is None) == (gap_from is None):
        raise QueryError(
            "a session has one gap, of a length or from a column",
            given="neither" if gap is None else f"gap {gap}, gap_from {gap_from}",
            hint='try session("30 minutes") or session(gap_from="timeout_seconds")',
        )
    pause = None if gap is None else positive(micros(gap, "session gap"), "session gap", gap)
    longest = None
    if max_length is not None:
        what = "maximal length of a session"
        longest = positive(micros(max_length, what), what, max_length)
    fewest = count(min_events, "minimal number of events of a session")
    if pause is not None and longest is None and fewest == 1:
        return read_as(Session(pause), reading)
    seconds = None if gap_from is None else canonical(gap_from, "session gap")
    return read_as(LimitedSession(pause, seconds, longest, None, fewest), reading)
