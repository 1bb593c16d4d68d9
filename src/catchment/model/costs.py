"""What a plan was decided by: what parts of the work cost, and how many events come.

Both are part of the plan, so that a plan made on one machine means the same on every other.
"""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from catchment.errors import QueryError
from catchment.model.settings import positive_rate

Basis = Literal["given", "assumed", "observed"]


class CostModel(Struct, frozen=True):
    """What parts of the work cost against each other; the unit is to slice one event.

    `benchmarks/calibration.py` measures the first three.
    """

    group: float = 1.0
    """To pass an event on to a group of accumulators, in batches of a few thousand."""
    update: float = 0.05
    """To bring one window up to date with an event."""
    edge: float = 0.14
    """To make an edge and to look for the events between it and the next."""
    margin: float = 2.0
    """How many times cheaper accumulators must be: slices also serve queries that come later."""
    eager_from: float = 24.0
    """Slices per window from which a tree over slices beats a list of them."""
    alike: float = 4.0
    """How many times as often as its own windows ask for a large partial may be cut."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise QueryError(
                    f"the cost {name!r} must be positive",
                    given=repr(value),
                    hint="costs are in units of slicing one event",
                )


RECORDED = CostModel()
"""The costs that plans are made by."""


class EventRate(Struct, frozen=True):
    """Events in a second of event time, and how that is known."""

    per_second: float
    basis: Basis = "given"

    @classmethod
    def of(cls, given: float | None) -> EventRate:
        """The rate that somebody gave, or the one that is assumed."""
        return ASSUMED if given is None else cls(positive_rate(given))

    def describe(self) -> str:
        """As people read it.

        >>> EventRate(0.25, "observed").describe(), EventRate(10_000.0).describe()
        ('0.25 events a second (observed)', '10,000 events a second (given)')
        """
        return f"{shown(self.per_second)} events a second ({self.basis})"


def shown(number: float) -> str:
    """A number with three digits, or all before the point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


ASSUMED = EventRate(10_000.0, "assumed")
"""What a plan assumes when it is told nothing better."""
