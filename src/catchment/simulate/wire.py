"""A link in use: what waits for it, what it has carried, and what its users have learnt of it."""

from __future__ import annotations

from collections import deque

import numpy as np

from catchment.flush.bandwidth import Estimate
from catchment.flush.line import Line


class Wire:
    """First in, first out; several edges may share one."""

    def __init__(self, line: Line, believed: float | Estimate = 1.0) -> None:
        self.line = line
        self.believed = believed
        """Of the bandwidth: how much it is over-estimated; or what is learnt on the way."""
        self.queued = 0.0
        """When it will have sent what it has, in the measure of the link's work."""
        self.work = 0.0
        self.heard = 0.0
        """When something last arrived."""
        self._pending: deque[tuple[float, float, float]] = deque()
        """What is on its way: when it began, when it will have arrived, and how much it is."""
        self._steady = float(line.rates[0]) if len(line.rates) == 1 else None

    def go_on(self, now: float) -> None:
        """Time goes by: what has arrived is acknowledged."""
        self.work = self._work(now)
        while self._pending and self._pending[0][1] <= now:
            began, ended, total = self._pending.popleft()
            if isinstance(self.believed, Estimate):
                self.believed.measured(total, ended - began)
            self.heard = ended

    def send(self, total: float, now: float) -> None:
        free = max(self.queued, self.work)
        self.queued = free + total
        began, ended = self._when(free), self._when(self.queued)
        self._pending.append((max(began, now), ended, total))

    @property
    def idle(self) -> bool:
        return not self._pending

    @property
    def backlog(self) -> float:
        return max(self.queued - self.work, 0.0)

    def clear_at(self) -> float:
        """When all that was sent so far will have arrived."""
        return self._when(self.queued)

    def bandwidth(self, now: float, end: float) -> float:
        """What its users take it to carry from now on."""
        if isinstance(self.believed, Estimate):
            return self.believed.rate
        if self._steady is not None:
            return self.believed * self._steady
        return self.believed * self.line.average(now, max(end, now + 1e-9))

    def _work(self, now: float) -> float:
        if self._steady is not None:
            return now * self._steady
        return float(self.line.work(np.array([now]))[0])

    def _when(self, work: float) -> float:
        if self._steady is not None:
            return work / self._steady
        return float(self.line.when(np.array([work]))[0])
