"""Behind which edge of their key events stand, in the order of time and arrival.

    key x    e   e   m   e   m   e e         an event m is a mark, and an edge of its key
    edge     0   0       1       2 2         0: the beginning of the round

Times at which all keys are cut are edges too: they stand before all events of their time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from catchment.operators.ragged import Ints
from catchment.operators.values import Mask


class MarkEdges(NamedTuple):
    """The edges of a round, numbered from 1: the marks of all keys, then the times."""

    key: Ints
    """The key of each mark, as a code."""
    time: Ints
    arrival: Ints
    cuts: Ints
    """Times at which all keys are cut, in order."""

    def places(self, begin: int) -> tuple[Ints, Ints]:
        """Time and arrival of each edge by its number; 0 is the beginning of the round."""
        before = np.full(len(self.cuts), -1, np.int64)
        time = np.concatenate([np.array([begin], np.int64), self.time, self.cuts])
        return time, np.concatenate([np.array([-1], np.int64), self.arrival, before])


def edge_before(edges: MarkEdges, key: Ints, time: Ints, arrival: Ints) -> Ints:
    """The number of the last edge before each event; 0: there is none."""
    mark = _mark_before(edges, key, time, arrival)
    cut = np.searchsorted(edges.cuts, time, side="right")
    if not len(edges.cuts):
        return mark
    marked = np.where(mark > 0, np.append(edges.time, 0)[mark - 1], -(1 << 62))
    later = (cut > 0) & (np.append(edges.cuts, 0)[cut - 1] > marked)
    number: Ints = np.where(later, len(edges.time) + cut, mark)
    return number


def _mark_before(edges: MarkEdges, key: Ints, time: Ints, arrival: Ints) -> Ints:
    count = len(edges.key)
    if not count or not len(key):
        return np.zeros(len(key), np.int64)
    keys = np.concatenate([edges.key, key])
    order = np.lexsort(
        (np.concatenate([edges.arrival, arrival]), np.concatenate([edges.time, time]), keys)
    )
    heads: Mask = np.ones(len(order), np.bool_)
    heads[1:] = keys[order][1:] != keys[order][:-1]
    number = np.where(order < count, order + 1, 0)
    # The last place up to here that is a mark or where a key begins says which mark is the last.
    places = np.where(heads | (number > 0), np.arange(len(order)), 0)
    last = number[np.maximum.accumulate(places)]
    found = np.empty(len(order), np.int64)
    found[order] = last
    return found[count:]
