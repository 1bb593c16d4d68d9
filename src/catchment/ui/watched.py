"""What the page asks of a job, whatever it runs on."""

from __future__ import annotations

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
