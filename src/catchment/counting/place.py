"""Places in the one order of all events, which goes by time, then node, then arrival."""

from __future__ import annotations

import numpy as np

from catchment.operators.ragged import Ints

Place = tuple[int, int, int]
"""(time, node, arrival): between two events, or just before the event that is there."""


def at(time: int) -> Place:
    """Before all events of a time, whoever has them."""
    return (time, -1, 0)


def after(place: Place) -> Place:
    """Just after the event at a place."""
    return (place[0], place[1], place[2] + 1)


def before(times: Ints, arrivals: Ints, node: int, place: Place) -> int:
    """How many of a node's events, sorted by time and arrival, are before a place.

    >>> before(np.array([1, 2, 2, 3]), np.array([0, 1, 2, 3]), 5, (2, 5, 2))
    2
    """
    time, whose, arrival = place
    if node != whose:
        return int(np.searchsorted(times, time, "right" if node < whose else "left"))
    low = int(np.searchsorted(times, time, "left"))
    high = int(np.searchsorted(times, time, "right"))
    return low + int(np.searchsorted(arrivals[low:high], arrival))
