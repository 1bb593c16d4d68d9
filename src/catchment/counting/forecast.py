"""Predicts where the next edges will be.

Places of edges that were found go in, times at which the next ones are expected come out. A
prediction only decides what nodes send unasked; but for `approx`, every edge is verified.
"""

from __future__ import annotations

import math
from itertools import pairwise

from msgspec import Struct, field

from catchment.counting.message import Forecast, NodeShare
from catchment.counting.scheme import MEMORY

_LAST, _MEAN = 0, 1
_UNKNOWN = 0.05
"""The error that is reckoned with before any was seen."""
_MORE = 3.0
"""Zones reach so many times the mean error to both sides: 2.4 standard deviations."""


class Pace(Struct, array_like=True):
    """Predicts the time of edges by the rate of all events together.

    Shares of nodes do not matter to it: each counts its own events up to a time. The rate of a
    stride is the last one's or the mean of the last `memory`: whichever was closer of late.
    """

    stride: int
    memory: int = MEMORY
    rank: int = 0
    time: float | None = None
    paces: list[float] = []
    errors: list[list[float]] = field(default_factory=lambda: [[], []])

    def learn(self, rank: int, time: float) -> None:
        """An edge was found."""
        if self.time is None:
            self.rank, self.time = rank, time
            return
        if rank - self.rank < self.stride:
            return
        pace = (time - self.time) / (rank - self.rank)
        self.rank, self.time = rank, time
        if pace <= 0:
            return
        for guess, errors in zip(self._guesses(), self.errors, strict=True):
            if self.paces:
                errors.append(abs(guess - pace))
                del errors[: -2 * self.memory]
        self.paces.append(pace)
        del self.paces[: -self.memory]

    def _guesses(self) -> tuple[float, float]:
        if not self.paces:
            return 0.0, 0.0
        return self.paces[-1], sum(self.paces) / len(self.paces)

    @property
    def error(self) -> float:
        """The mean error of the better guess, relative to the pace."""
        pace = self._guesses()[self._best]
        errors = self.errors[self._best]
        if not errors or pace <= 0:
            return _UNKNOWN
        recent = errors[-self.memory :]
        return max(sum(errors) / len(errors), sum(recent) / len(recent)) / pace

    @property
    def tried(self) -> bool:
        """Whether predictions have been tried often enough to rest on them."""
        return len(self.errors[0]) > 1

    @property
    def _best(self) -> int:
        last, mean = (sum(errors[-self.memory :]) for errors in self.errors)
        return _LAST if last < mean else _MEAN

    def forecast(self, edge: int, rank: int, time: float) -> Forecast | None:
        """The forecast from an edge on; None while no rate is known."""
        if not self.paces:
            return None
        pace = self._guesses()[self._best]
        spread = self.error * pace * self.stride
        return Forecast(edge, rank, time, pace, spread, self.stride)


def span(forecast: Forecast, rank: int) -> tuple[int, int]:
    """Between which times an edge is expected. The error grows with the square root of the number
    of strides to the edge, as that of a sum of independent errors."""
    ahead = max(rank - forecast.rank, 1)
    expected = forecast.time + ahead * forecast.pace
    wide = _MORE * forecast.spread * math.sqrt(ahead / forecast.stride)
    wide = max(wide, 2 * forecast.pace)
    low = max(expected - wide, forecast.time)
    return math.floor(low), math.ceil(expected + wide) + 1


def doubtful(forecast: Forecast, rank: int) -> float:
    """Events between the times where an edge is expected."""
    low, high = span(forecast, rank)
    return min((high - low) / max(forecast.pace, 1e-9), rank - forecast.rank)


def expected_cuts(forecast: Forecast, rank: int) -> dict[int, int]:
    """Where nodes' shares put an edge: a position in the events of each node that has a share."""
    strides = (rank - forecast.rank) / forecast.stride
    sizes = forecast.sizes or {}
    return {n: start + round(share * strides) for n, (start, share, _) in sizes.items() if share}


class Shares(Struct, array_like=True):
    """The paper's way: a node's share of a stride is what it was the last time.

    Its buffer is the change from one window to the next, averaged over the last `memory`.
    """

    memory: int = MEMORY
    sizes: dict[int, list[int]] = {}

    def learn(self, cuts: dict[int, int], before: dict[int, int]) -> None:
        for node, cut in cuts.items():
            known = self.sizes.setdefault(node, [])
            known.append(cut - before.get(node, 0))
            del known[: -self.memory - 1]

    @property
    def known(self) -> bool:
        return bool(self.sizes) and all(len(sizes) > 1 for sizes in self.sizes.values())

    def of(self, cuts: dict[int, int]) -> dict[int, NodeShare]:
        out = {}
        for node, cut in cuts.items():
            sizes = self.sizes.get(node, [0])
            deltas = [abs(b - a) for a, b in pairwise(sizes)] or [sizes[-1]]
            out[node] = NodeShare(cut, sizes[-1], max(1, round(sum(deltas) / len(deltas))))
        return out
