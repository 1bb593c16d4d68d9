"""What each window costs on a link, and how stale it is when it has come: as a parent sees it.

Traffic and staleness are what flushing trades against each other (Heintz et al.): the rows that
come from a child for windows of a type, and the time from the end of a window to the message by
which the child has passed it. Neither outlives the process.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from catchment.model.plan import Plan
from catchment.model.window import Period
from catchment.planner.edges import EARLIEST, LATEST, Series

_WINDOWS = 64
"""Window types that are told apart; of others nothing is known."""
_ENDS = 64
"""Windows of a type that may end with one message and be looked at one by one."""


class WindowTraffic(Struct, frozen=True):
    """What has come from a child for windows of one type."""

    rows: int = 0
    """Rows of slices; windows that share slices share these."""
    nbytes: int = 0
    """The share of these rows in the bytes of their messages."""
    windows: int = 0
    """Windows that have ended since, where their ends are known ahead."""
    staleness_seconds: float = 0.0
    """Seconds from the end of the last of them to the message that passed it."""
    staleness_seconds_total: float = 0.0
    """The sum of these seconds over all of them."""


class _PlanWindows:
    """The window types of a plan: the groups that serve each, and their ends."""

    def __init__(self, plan: Plan) -> None:
        self.groups: dict[str, set[int]] = {}
        periods: list[Period] = []
        self.kinds: list[str] = []
        """The window type of each series of ends."""
        for group in plan.groups:
            for window in group.windows:
                name = window.describe()
                if name not in self.groups and len(self.groups) < _WINDOWS:
                    periods += window.periods
                    self.kinds += [name] * len(window.periods)
                    self.groups[name] = set()
                if name in self.groups:
                    self.groups[name].add(group.id)
        self.ends = Series(periods) if periods else None

    def passed(self, low: int, high: int) -> dict[str, list[int]]:
        """The ends that a frontier passes, by window type; the last ones where they are many."""
        found: dict[str, list[int]] = {}
        if self.ends is None or low <= EARLIEST or high >= LATEST or low >= high:
            return found
        first, after = self.ends.ending_after(low), self.ends.ending_after(high)
        for kind, name in enumerate(self.kinds):
            begin, end = int(first[kind]), min(int(after[kind]), int(self.ends.last[kind]) + 1)
            numbers = np.arange(max(begin, end - _ENDS), end, dtype=np.int64)
            if len(numbers):
                ends = self.ends.end_of(np.full(len(numbers), kind, np.int64), numbers)
                found.setdefault(name, []).extend(ends.tolist())
        return found


class ChildTraffic:
    """What comes from one child, by window type."""

    def __init__(self) -> None:
        self.windows: dict[str, WindowTraffic] = {}
        self._plan: tuple[int, _PlanWindows] | None = None
        self._frontier: int = EARLIEST

    def came(
        self,
        version: int,
        plan: Plan,
        rows: Mapping[int, int],
        nbytes: int,
        frontier: int | None,
        now: int,
    ) -> None:
        """A message by a version of the plan, with so many rows of each group."""
        if self._plan is None or self._plan[0] != version:
            self._plan = version, _PlanWindows(plan)
        known, every = self._plan[1], sum(rows.values())
        high = self._frontier if frontier is None else max(self._frontier, frontier)
        passed = known.passed(self._frontier, high)
        self._frontier = high
        self.windows = {name: found for name, found in self.windows.items() if name in known.groups}
        for name, groups in known.groups.items():
            some, ends = sum(rows.get(id, 0) for id in groups), passed.get(name, [])
            if not some and not ends:
                continue
            held = self.windows.get(name, WindowTraffic())
            late = [(now - end) / 1e6 for end in ends]
            self.windows[name] = replace(
                held,
                rows=held.rows + some,
                nbytes=held.nbytes + (nbytes * some // every if every else 0),
                windows=held.windows + len(ends),
                staleness_seconds=(now - max(ends)) / 1e6 if ends else held.staleness_seconds,
                staleness_seconds_total=held.staleness_seconds_total + sum(late),
            )
