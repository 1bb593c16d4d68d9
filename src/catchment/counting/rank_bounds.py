"""Finds the place of a rank from what nodes have counted.

For each node, some places go in with the number of its events before each. For every place that any
node has named, the least and the most events of all nodes that can be before it are added up. A
rank is found where both are equal to it; otherwise its place lies between two known places, and
nodes are asked about the span between these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from catchment.counting.place import Place, at
from catchment.operators.ragged import Ints

_SURE, _SPARE = 3.0, 10.0
"""Standard deviations, and events, by which a rank may be elsewhere than it is expected."""
_ZERO = np.zeros(1, np.int64)
NEVER = 2**50
"""More events than there are."""


class Points(NamedTuple):
    """Places, in order, and how many of a node's events are before each, and just after it.

    Past the last place nothing is known, unless the node is not waited for.
    """

    time: Ints
    node: Ints
    arrival: Ints
    before: Ints
    after: Ints
    over: bool = False


class RankPlace(NamedTuple):
    """Where a rank is: at `place`, or between `low` and `high`. Where `high` is None, its event may
    be still to come."""

    place: Place | None
    cuts: dict[int, int]
    low: Place | None
    high: Place | None
    loose: int
    """Events between the two places, at most."""
    share: float = 0.5
    """Where the rank lies among them, as far as their number says."""


def narrowed(low: Place, high: Place, loose: int, share: float) -> tuple[Place, Place, int]:
    """Where between two places a rank is expected, and how many events are there, at most.

    Events that come at random are evenly spread, up to the square root of their number.

    >>> from catchment.counting.place import at
    >>> narrowed(at(0), at(10_000), 10_000, 0.25)
    (Place(time=2360, node=-1, arrival=0), Place(time=2640, node=-1, arrival=0), 280)
    >>> narrowed(at(0), at(50), 50, 0.5)
    (Place(time=0, node=-1, arrival=0), Place(time=50, node=-1, arrival=0), 50)
    """
    wide = _SURE * math.sqrt(max(loose * share * (1 - share), 1.0)) + _SPARE
    if 4 * wide >= loose or high.time - low.time < loose / 4:
        return low, high, loose
    pace = (high.time - low.time) / loose
    middle = low.time + share * loose * pace
    first, last = math.floor(middle - wide * pace), math.ceil(middle + wide * pace)
    near = max(low, at(first)), min(high, at(last))
    return *near, math.ceil((near[1].time - near[0].time) / pace)


class RankBounds:
    """The least (`low`) and the most (`high`) events before each known place, in the order of all
    events."""

    def __init__(self, points: Mapping[int, Points]) -> None:
        self._points = points
        time, node, arrival = (
            np.concatenate([getattr(known, name) for known in points.values()])
            for name in ("time", "node", "arrival")
        )
        order = np.lexsort((arrival, node, time))
        new = np.ones(len(order), np.bool_)
        t, n, a = time[order], node[order], arrival[order]
        new[1:] = (t[1:] != t[:-1]) | (n[1:] != n[:-1]) | (a[1:] != a[:-1])
        code = np.empty(len(order), np.int64)
        code[order] = np.cumsum(new) - 1
        self._places = (t[new], n[new], a[new])
        size = int(new.sum())
        self.low, self.high = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._codes: dict[int, Ints] = {}
        begin = 0
        for id, known in points.items():
            codes = code[begin : begin + len(known.time)]
            begin += len(known.time)
            self._codes[id] = codes
            named = np.bincount(codes, minlength=size)
            end = np.cumsum(named)
            first = end - named  # its own places before each place, and up to it
            least = np.concatenate([_ZERO, known.after])[first]
            here = np.flatnonzero(named)
            least[here] = np.maximum(least[here], known.before[end[here] - 1])
            self.low += least
            beyond = known.before[-1] if known.over else NEVER
            self.high += np.append(known.before, beyond)[first]

    def place(self, code: int) -> Place:
        time, node, arrival = self._places
        return Place(int(time[code]), int(node[code]), int(arrival[code]))

    def find(self, rank: int) -> RankPlace:
        """Where the place is that has exactly this number of events before it."""
        exact = np.searchsorted(self.high, rank), np.searchsorted(self.low, rank)
        code = int(max(exact))
        if code < len(self.low) and self.low[code] == rank and self.high[code] == rank:
            return RankPlace(self.place(code), self._cuts(code), None, None, 0)
        below = int(np.searchsorted(self.high, rank, "right")) - 1
        above = int(exact[1])
        known = int(np.searchsorted(self.high, NEVER)) - 1
        low = self.place(below) if below >= 0 else None
        if above > known:
            return RankPlace(None, {}, low, None, NEVER)
        least = int(self.low[below]) if below >= 0 else 0
        loose = int(self.high[above]) - least
        share = (rank - least) / max(loose, 1)
        return RankPlace(None, {}, low, self.place(above), loose, share)

    def _cuts(self, code: int) -> dict[int, int]:
        """Each node's position at a place that is known exactly."""
        cuts = {}
        for id, codes in self._codes.items():
            known, first = self._points[id], int(np.searchsorted(codes, code, "left"))
            here = first < len(codes) and codes[first] == code
            cuts[id] = int(known.before[first] if here else known.after[first - 1] if first else 0)
        return cuts
