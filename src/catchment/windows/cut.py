"""Windows from one marking event to the next."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.expression import canonical
from catchment.model.window import Marked, register


@register
@dataclass(frozen=True, slots=True)
class Cut(Marked):
    kind = "cut"


def cut(at: str) -> Cut:
    """A key's events from one event where `at` holds up to, not including, the next.

    The first window starts with the key's first event. Events are taken in order of time, then
    arrival. The bounds are the times of the two marking events.

    >>> cut("lap_done")
    Cut(opens='lap_done', closes=None)
    """
    return Cut(canonical(at, "cut condition"), None)
