"""A link in use: what waits for it, what it has carried, and what its users have learnt of it."""

from __future__ import annotations

from collections import deque

import numpy as np

from catchment.flush.bandwidth import Estimate
from catchment.flush.line import SendQueue


class Wire:
    """First in, first out; several nodes may share one."""

    def __init__(self, line: SendQueue, believed: float | Estimate = 1.0) -> None:
        self.line = line
        self.believed = believed
        """Of the bandwidth: how much it is over-estimated; or what is learnt on the way."""
        self.queued = 0.0
        """When it will have sent what it has, in the measure of the link's work."""
        self.work = 0.0
        self.now, self.until = 0.0, 0.0
        """How far time has gone, and until when its users are interested in it."""
        self.heard = 0.0
        """When something last arrived."""
        self._pending: deque[tuple[float, float, float]] = deque()
        """What is on its way: when it began, when it will have arrived, and how much it is."""
        self._steady = float(line.rates[0]) if len(line.rates) == 1 else None

    def go_on(self, now: float, until: float = 0.0) -> None:
        """Time goes by: what has arrived is acknowledged. Until when its users count on it."""
        self.now, self.until = now, until
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
    def ahead(self) -> float:
        """Bytes that wait for it, or are on their way."""
        return max(self.queued - self.work, 0.0) if self._pending else 0.0

    def clear_at(self) -> float:
        """When all that was sent so far will have arrived."""
        return self._when(self.queued)

    @property
    def rate(self) -> float:
        """Bytes a second that its users take it to carry from now on."""
        if isinstance(self.believed, Estimate):
            return self.believed.rate
        if self._steady is not None:
            return self.believed * self._steady
        return self.believed * self.line.average(self.now, max(self.until, self.now + 1e-9))

    def _work(self, now: float) -> float:
        if self._steady is not None:
            return now * self._steady
        return float(self.line.work(np.array([now]))[0])

    def _when(self, work: float) -> float:
        if self._steady is not None:
            return work / self._steady
        return float(self.line.when(np.array([work]))[0])
