"""What is noticed of a slice while it fills: how fast keys come, and how many are new."""

from __future__ import annotations

import math

from catchment.flush.sizes import SizeInputs, SliceHistory

_SPAN = 0.05
"""The share of a slice's arrivals over which misses are averaged."""
_FEWEST = 200.0


class SliceWatch:
    """Follows one slice, from when it begins until it ends; times are in seconds."""

    def __init__(self, begin: float, end: float, past: SliceHistory | None) -> None:
        self.begin, self.end, self.past = begin, end, past
        self.arrivals = 0
        self.misses = 1.0
        expected = past.arrivals if past is not None else 0
        self._span = max(_FEWEST, _SPAN * expected)

    def arrived(self, count: int, misses: int) -> None:
        """Some arrivals, and how many of their keys were not there."""
        if count:
            self.arrivals += count
            fresh = 1.0 - math.exp(-count / self._span)
            self.misses += fresh * (misses / count - self.misses)

    def moment(self, now: float, bandwidth: float, each: float) -> SizeInputs:
        """How the slice stands; `each` is the size of an update."""
        length = max(self.end - self.begin, 1e-9)
        passed = min(max(now - self.begin, 0.0), length)
        rate = self.arrivals / passed if passed > 0 else 0.0
        if self.past is not None and passed < 0.02 * length:
            rate = self.past.arrivals / length  # too little has come to tell
        left = max(self.end - now, 0.0)
        return SizeInputs(passed / length, left, rate, self.misses, bandwidth, each, self.past)
