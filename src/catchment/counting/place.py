"""Places in the one order of all events, which goes by time, then node, then arrival."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta

from catchment.operators.ragged import Ints

Whole = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A whole number that an array can hold."""


class Place(NamedTuple):
    """Between two events, or just before the event that is there. Places compare as the events."""

    time: Whole
    node: Whole
    arrival: Whole


def at(time: int) -> Place:
    """The place before all events of a time, on whichever node they are."""
    return Place(time, -1, 0)


def after(place: Place) -> Place:
    """Just after the event at a place."""
    return place._replace(arrival=place.arrival + 1)


def before(times: Ints, arrivals: Ints, node: int, place: Place) -> int:
    """How many of a node's events, sorted by time and arrival, are before a place.

    >>> before(np.array([1, 2, 2, 3]), np.array([0, 1, 2, 3]), 5, Place(2, 5, 2))
    2
    """
    time, whose, arrival = place
    if node != whose:
        return int(np.searchsorted(times, time, "right" if node < whose else "left"))
    low = int(np.searchsorted(times, time, "left"))
    high = int(np.searchsorted(times, time, "right"))
    return low + int(np.searchsorted(arrivals[low:high], arrival))
