"""Windows from one marking event to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from catchment.errors import QueryError
from catchment.expression import canonical
from catchment.model.window import Marked, Reading, register, window_builder
from catchment.windows.checks import read_as
from catchment.windows.wording import with_reading


@register
@dataclass(frozen=True, slots=True)
class Cut(Marked):
    kind = "cut"
    readings: ClassVar[tuple[Reading, ...]] = ("global", "local", "aligned", "ordered")
    as_global: ClassVar[tuple[Reading, ...]] = ("any",)

    def describe(self) -> str:
        return f"cut(at {self.opens}{with_reading(self.reading)})"


@window_builder
def cut(at: str, *, reading: str = "global") -> Cut:
    """A key's events from one event where `at` holds up to, not including, the next.

    The first window starts with the key's first event. Events are taken in order of time, then
    arrival. The bounds are the times of the two marking events; windows of equal bounds, of marks
    at one instant, are numbered from 0 by `window_index`. `reading` says what becomes of
    the windows of many nodes: `global`, `local`, `aligned` or `ordered`.

    >>> cut("lap_done")
    Cut(opens='lap_done', closes=None)

    Raises QueryError for a condition that is no SQL, and for a reading that there is not.
    """
    if reading == "gaps":
        raise QueryError(
            "windows of a cut follow each other without a gap",
            given="reading='gaps'",
            hint="use between(start=, end=), or reading='aligned' or 'ordered'",
        )
    return read_as(Cut(canonical(at, "cut condition"), None), reading)
