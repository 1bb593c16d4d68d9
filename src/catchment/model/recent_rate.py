"""How fast a count grows just now, from what it was at a few moments."""

from __future__ import annotations

from collections import deque

_MARKS = 256
"""Moments that are remembered."""


class RecentRate:
    """The growth of a count in a second, over the last seconds.

    It is taken over the last `SECONDS`, or over the last two steps where these take longer. While
    nothing more is seen, it falls, and in the end it is 0.

    >>> rate = RecentRate()
    >>> rate.at(0.0)
    >>> rate.seen(100, 10.0)
    >>> rate.seen(300, 12.0)
    >>> rate.at(12.0), rate.at(14.0), rate.at(60.0)
    (100.0, 50.0, 0.0)
    """

    SECONDS = 10.0

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=_MARKS)

    def seen(self, count: int, at: float) -> None:
        """The count at a moment, in seconds by any clock that does not go back."""
        if self._seen and (count < self._seen[-1][1] or at < self._seen[-1][0]):
            self._seen.clear()  # it counts anew
        self._seen.append((at, count))

    def at(self, now: float) -> float | None:
        """The rate at a moment; None: too little is known."""
        if not self._seen or now <= self._seen[0][0]:
            return None
        last, count = self._seen[-1]
        step = last - self._seen[-2][0] if len(self._seen) > 1 else 0.0
        since = now - max(self.SECONDS, 2 * step)
        begun, before = self._seen[0]
        for moment, held in self._seen:
            if moment > since:
                break
            begun, before = moment, held
        return (count - before) / (now - begun)
