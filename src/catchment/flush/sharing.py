"""One link for several groups: who may send how much, and how much in a day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from catchment.operators.ragged import Floats

DAY = 86400.0


def shares(capacity: float, wanted: Sequence[float], weights: Sequence[float]) -> Floats:
    """What each gets: all that it wants, or as much by its weight as anybody who wants more.

    Nothing is left over while somebody wants more (weighted max-min fairness).

    >>> shares(10.0, [1.0, 20.0, 20.0], [1.0, 1.0, 2.0]).tolist()
    [1.0, 3.0, 6.0]
    """
    want, weight = np.asarray(wanted, float), np.asarray(weights, float)
    given = np.zeros(len(want))
    order = np.argsort(want / weight, kind="stable")
    left, weighs = float(capacity), float(weight.sum())
    for place in order.tolist():
        level = left / weighs if weighs > 0 else 0.0
        given[place] = min(want[place], max(level, 0.0) * weight[place])
        left -= given[place]
        weighs -= weight[place]
    return given


@dataclass
class Meter:
    """A limit on bytes: what was not used counts later, but for no more than a day."""

    rate: float
    """Bytes a second."""
    left: float
    at: float
    """When `left` was right, in seconds."""

    @classmethod
    def full(cls, rate: float, now: float) -> Meter:
        return cls(rate, rate * DAY, now)

    def allowance(self, now: float) -> float:
        """Bytes that may go now; below zero when more has gone than should have."""
        if now > self.at > -inf:  # clocks may step back; nobody gets bytes for that
            self.left = min(self.left + (now - self.at) * self.rate, self.rate * DAY)
        self.at = now
        return self.left

    def spend(self, count: float, now: float) -> None:
        self.left = self.allowance(now) - count
