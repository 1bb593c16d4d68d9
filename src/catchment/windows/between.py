"""Windows from a starting event to an ending event."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.expression import canonical
from catchment.model.window import Marked, register, window_builder
from catchment.windows.checks import read_as
from catchment.windows.wording import with_reading


@register
@dataclass(frozen=True, slots=True)
class Between(Marked):
    kind = "between"

    def describe(self) -> str:
        return f"between({self.opens}, {self.closes}{with_reading(self.reading)})"


@window_builder
def between(start: str, end: str, *, reading: str = "global") -> Between:
    """Opens at a key's event that meets `start` if none is open, ends at the next to meet `end`.

    Both events belong to the window and their times are its bounds; windows of equal bounds, of
    marks at one instant, are numbered from 0 by `window_index`. An event that meets both
    conditions opens a window when none is open and ends it when one is. `reading` says what
    becomes of the windows of many nodes: `global`, `local`, `aligned`, `ordered`, `gaps` or `any`.

    >>> between(start="door = 'open'", end="door = 'shut'")
    Between(opens="door = 'open'", closes="door = 'shut'")

    Raises QueryError for a condition that is no SQL, and for a reading that there is not.
    """
    opens, closes = canonical(start, "start condition"), canonical(end, "end condition")
    return read_as(Between(opens, closes), reading)
