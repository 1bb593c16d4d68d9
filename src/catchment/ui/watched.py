"""What the page asks of a job, whatever it runs on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from catchment.model.query import Query
from catchment.planner.planned import Planned
from catchment.sinks.base import Sink
from catchment.ui.snapshot import Snapshot


class WatchedJob(Protocol):
    """A job that is looked at. Its methods may block, and are called from several threads."""

    @property
    def name(self) -> str: ...

    @property
    def sinks(self) -> Sequence[Sink]:
        """Where its results go."""

    def look(self) -> Snapshot:
        """How it stands now. It does not raise: what cannot be reached is said in the snapshot."""

    def planned(self) -> Planned | None:
        """The newest version of its plan; None before there is one."""

    def check(self, query: Query) -> None:
        """Raises the reason why a query could not be added."""

    def add(self, query: Query) -> None:
        """Adds a query."""

    def remove(self, name: str, drain: bool) -> None:
        """Removes a query; with `drain`, once its open windows have ended."""

    def set_aside(self, kind: str, rows: int) -> pa.Table:
        """The newest rows set aside of a kind (bad, late, unread), at most so many."""


class Speed:
    """Events a second, from counts that are seen now and then.

    >>> speed = Speed()
    >>> speed.seen(100, at=10.0)
    >>> speed.seen(300, at=12.0)
    100.0
    """

    SECONDS = 10.0
    """Over how long it is taken."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=64)

    def seen(self, events: int, at: float | None = None) -> float | None:
        """The speed, after a count was seen; None: nothing is known yet."""
        now = time.monotonic() if at is None else at
        if self._seen and events < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, events))
        while len(self._seen) > 2 and now - self._seen[0][0] > self.SECONDS:
            self._seen.popleft()
        (begun, before), (end, after) = self._seen[0], self._seen[-1]
        return None if end <= begun else (after - before) / (end - begun)
