"""The ranks at which count windows start or end: events between two of them share all windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from catchment.model.window import Counted


class RankEdges:
    """The ranks where any of some count windows starts or ends, one after the other."""

    def __init__(self, windows: Sequence[Counted]) -> None:
        self.windows = tuple(windows)
        series = {(w.step, 0) for w in windows} | {(w.step, w.size) for w in windows}
        self._series = sorted(series)
        self.stride = min(min(w.size, w.step) for w in windows)
        """The number of events over which rates are measured; edges may be closer."""
        self.longest = min(w.step for w in windows)
        """The most events that can be between two neighbouring edges."""

    def after(self, rank: int) -> int:
        """The first edge past a rank.

        >>> from catchment.windows.count import count_sliding
        >>> [RankEdges([count_sliding(10, 4)]).after(rank) for rank in (0, 4, 8, 10, 14)]
        [4, 8, 10, 12, 16]
        """
        return min(
            first + max(0, (rank - first) // step + 1) * step for step, first in self._series
        )

    def full(self, low: int, high: int) -> Iterator[tuple[int, int, int, int]]:
        """The windows that end after `low` and at most at `high`: the place of the window type, the
        number of the window, and the ranks at which it starts and ends."""
        for kind, window in enumerate(self.windows):
            number = max(0, (low - window.size) // window.step + 1)
            while number * window.step + window.size <= high:
                start = number * window.step
                yield kind, number, start, start + window.size
                number += 1

    def needed(self, rank: int) -> int:
        """The first rank that a window that is not full at `rank` may hold."""
        return min(max(0, (rank - w.size) // w.step + 1) * w.step for w in self.windows)
