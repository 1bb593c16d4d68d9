"""A window of a shape that Catchment knows: each overlaps the one before by half."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.model.duration import Duration, micros
from catchment.model.window import OnePeriod, register


@register
@dataclass(frozen=True, slots=True)
class Overlapping(OnePeriod):
    kind = "overlapping"


def overlapping(length: Duration) -> Overlapping:
    """Windows of this length, one every half of it."""
    size = micros(length, "window length")
    return Overlapping(size, size // 2)
