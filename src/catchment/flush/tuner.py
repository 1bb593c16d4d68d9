"""Finds how lazy to be while it runs: hill climbing on what windows cost, towards a stated goal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from catchment.flush.settings import Flush

_PENALTY = 100.0
"""What it costs to miss a target by as much as the target, or by a window."""
_BETTER = 0.005
"""By how much a trial must be cheaper to be followed."""
_CHANGED = 0.15
"""By how much a window must cost more than the ones before to make a new search worth while."""
_LONGEST = 16
_WIDE, _NARROW = 0.25, 1 / 32


@dataclass(frozen=True, slots=True)
class Spent:
    """What a slice cost."""

    traffic: float
    """Over the least possible: one update for each key."""
    staleness: float
    """Seconds from its end until its last update had arrived."""
    length: float
    """The length of the slice, in seconds."""
    rate: float
    """Bytes a second that went."""


Cost = Callable[[Spent], float]


def cost_of(goal: Flush) -> Cost:
    """What a goal makes of traffic and staleness: one number, the less the better."""
    if goal.staleness is not None:
        target = goal.staleness / 1e6
        return lambda s: s.traffic + _PENALTY * max(s.staleness / target - 1, 0.0)
    if goal.budget is not None:
        budget = goal.budget
        return lambda s: s.staleness / s.length + _PENALTY * max(s.rate / budget - 1, 0.0)
    weight = goal.weight
    return lambda s: s.traffic + weight * s.staleness / s.length


@dataclass
class Tuner:
    """Tries a neighbour of the best alpha known from time to time, and moves if it was cheaper.

    A trial is judged by the slices before and after it, since what comes changes all the time.
    """

    alpha: float = 0.75
    """The one in use."""
    home: float = 0.75
    """The best known."""
    cost: float | None = None
    """What it cost lately."""
    trial: float | None = None
    """What the trial before this slice cost, and where."""
    tried: float = 0.0
    step: float = _WIDE
    direction: float = -1.0
    failed: int = 0
    """Trials since the last that was followed."""
    rest: int = 1
    """Slices until the next trial: the first has nothing to go by, and tells nothing."""

    def spent(self, cost: float) -> float:
        """A slice at `alpha` cost so much; the alpha of the next one."""
        if self.alpha != self.home:
            self.trial, self.tried, self.alpha = cost, self.alpha, self.home
            return self.alpha
        before, self.cost = cost if self.cost is None else self.cost, cost
        if self.trial is not None:
            self._judge((before + cost) / 2)
        elif abs(cost - before) > _CHANGED * max(abs(before), 1e-9):
            self.step, self.failed, self.rest = _WIDE, 0, 0
        self._next()
        return self.alpha

    def _judge(self, usual: float) -> None:
        assert self.trial is not None
        trial, self.trial = self.trial, None
        if trial < usual - _BETTER * max(abs(usual), 1e-9):
            self.home, self.cost, self.failed = self.tried, trial, 0
            return
        self.direction = -self.direction
        self.failed += 1
        if self.failed % 2 == 0:  # neither side is better
            self.step = max(self.step / 2, _NARROW)
            self.rest = min(2 ** (self.failed // 2), _LONGEST)

    def _next(self) -> None:
        self.alpha = self.home
        if self.rest > 0:
            self.rest -= 1
            return
        for direction in (self.direction, -self.direction):
            trial = min(max(self.home + direction * self.step, 0.0), 1.0)
            if trial != self.home:
                self.alpha, self.direction = trial, direction
                return
