"""What a link carries, learnt from the bytes that were acknowledged over it."""

from __future__ import annotations

import math
from dataclasses import dataclass

_PATIENCE = 4.0
"""Measurements after which an older one counts a third."""


_ASK = 1 / 16
"""The share of a slice after which a link that matters is asked again what it carries..."""
_BIT = 1 / 256
"""...by sending this share of what is held."""
_MATTERS = 0.01
"""Of a slice: a link that takes all that is held in less time need not be asked."""


def probe(held: float, rate: float, silent: float, length: float) -> float:
    """Bytes to send early just to see how long they take; mostly none.

    Whoever waits until the last moment learns only then that a link has become slower.
    """
    if math.isinf(rate) or held < _MATTERS * rate * length or silent < _ASK * length:
        return 0.0
    return _BIT * held


@dataclass
class Estimate:
    """Bytes a second, and by how much measurements differ from it.

    A link that has never taken its time is taken to carry whatever is asked.
    """

    rate: float = math.inf
    error: float = math.inf
    """The average relative difference of a measurement from what was expected before it."""
    seen: int = 0

    @classmethod
    def begun(cls, given: float | None) -> Estimate:
        """From what a job file says, if it does; the first measurement is believed more."""
        return cls() if given is None else cls(given, math.inf, 0)

    def measured(self, count: float, seconds: float) -> None:
        """So many bytes went out together, and took that long once the link was free for them."""
        if seconds <= 0 or count <= 0:
            return
        found = count / seconds
        if self.seen == 0:
            self.error = abs(self.rate / found - 1) if math.isfinite(self.rate) else math.inf
            self.rate, self.seen = found, 1
            return
        off = abs(self.rate / found - 1)
        share = 1 - math.exp(-1 / min(self.seen, _PATIENCE))
        self.error = off if math.isinf(self.error) else self.error + share * (off - self.error)
        # Seconds a byte are averaged, not bytes a second: a link that fails is noticed at once.
        self.rate = 1 / (1 / self.rate + share * (1 / found - 1 / self.rate))
        self.seen += 1
