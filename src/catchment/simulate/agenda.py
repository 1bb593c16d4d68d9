"""A virtual clock: a queue of calls by time, which are made one after the other."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

Action = Callable[[], None]


class Agenda:
    """Things to do, each at a time; times are in microseconds."""

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self._queue: list[tuple[int, int, Action]] = []
        self._order = itertools.count()

    def after(self, delay: float, action: Action) -> None:
        """Does something later; of things at one time, what was said first comes first."""
        heapq.heappush(self._queue, (self.now + int(delay), next(self._order), action))

    def pass_time(self, end: int, over: Callable[[], bool]) -> None:
        """Calls what is due, in order of time, until `over` says so or the time `until` has
        come."""
        while self._queue and self.now < end and not over():
            self.now, _, action = heapq.heappop(self._queue)
            action()
