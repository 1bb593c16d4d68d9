"""A window whose edges are known from time alone: the shifts of a plant."""

from __future__ import annotations

from dataclasses import dataclass

from catchment.model.scale import Ints, Scale
from catchment.model.window import Period, Periodic, register

SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Changes(Scale):
    """Every eight seconds a shift begins, which ends three seconds later."""

    def times(self, numbers: Ints) -> Ints:
        return (numbers // 2 * 8 + numbers % 2 * 3) * SECOND

    @property
    def pace(self) -> float:
        return 4 * SECOND

    def reach(self, points: int) -> int:
        return (points // 2 * 8 + points % 2 * 5) * SECOND


@register
@dataclass(frozen=True, slots=True)
class Shifts(Periodic):
    """From each beginning of a shift to its end: what comes in between is in no window."""

    kind = "shifts"

    count: int = 1

    @property
    def periods(self) -> tuple[Period, ...]:
        return (Period(2 * self.count - 1, 2, scale=Changes()),)


def shifts(count: int = 1) -> Shifts:
    """So many shifts, with the pauses between them, from each beginning of one on."""
    return Shifts(count)
