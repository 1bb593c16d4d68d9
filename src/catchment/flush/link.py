"""A link as its sender sees it: what is on its way, what it carries, and how much it still may."""

from __future__ import annotations

import math
from dataclasses import replace

from catchment.flush.bandwidth import Estimate
from catchment.flush.learnt import NOTHING, Learnt
from catchment.flush.settings import Flush
from catchment.flush.sharing import Meter

_TELLING = 16 * 1024
"""Bytes that must go together to tell what a link carries..."""
_SLOW, _OFTEN = 1.0, 3
"""...unless they take so many seconds, time and again: once may have any reason."""
_ENOUGH = 0.25
"""Seconds that a message should have taken for a link to be faster than it was thought to be."""
_SMALL = 2048
"""Messages up to this size tell how long an acknowledgement takes at least."""
_AT_ONCE = 0.5
"""Seconds that a message should take at most: it is acknowledged as a whole..."""
_AHEAD = 2
"""...and so many of them may be on their way: who hands a link more waits for it."""
_SHORTEST, _USUAL, _LONGEST = 1 << 14, 1 << 16, 1 << 23


class LinkEstimate:
    """Learns from acknowledgements; times are in seconds."""

    def __init__(self, flush: Flush, known: Learnt = NOTHING) -> None:
        """`known` is what was learnt before a crash."""
        begun = Estimate.begun(flush.bandwidth)
        self.estimate = begun if known.estimate is None else replace(known.estimate)
        self.meter = None if flush.meter is None else Meter.full(flush.meter, -math.inf)
        if self.meter is not None and known.left is not None:
            self.meter.left, self.meter.at = known.left, known.at
        self.heard = -math.inf
        """When something was last acknowledged."""
        self._waiting: dict[int, int] = {}
        self._flying: dict[int, tuple[int, float]] = {}
        self._fastest = math.inf
        self._stalls = 0
        """Small messages in a row that took long."""

    def learnt(self) -> Learnt:
        """What should outlive a crash."""
        estimate = None if self.estimate == Estimate() else replace(self.estimate)
        if self.meter is None:
            return Learnt(estimate)
        return Learnt(estimate, self.meter.left, self.meter.at)

    # -- what happens -----------------------------------------------------------------------------

    def open(self, now: float) -> bool:
        """Whether the link takes rows: its meter allows some, and not too much is on its way."""
        if self._flying and self.flying >= _AHEAD * self.largest:
            return False
        return self.meter is None or self.meter.allowance(now) > 0

    def wrote(self, seq: int, size: int) -> None:
        """A message waits for the link."""
        self._waiting[seq] = size

    def sent(self, seq: int, size: int, now: float) -> None:
        """A message was handed to the link; it may not be the first time."""
        self._waiting.pop(seq, None)
        self._flying[seq] = (size, now)
        if self.meter is not None:
            self.meter.spend(size, now)

    def acknowledged(self, seq: int, now: float) -> None:
        """All messages up to this one have arrived."""
        self._waiting = {number: size for number, size in self._waiting.items() if number > seq}
        arrived = [number for number in self._flying if number <= seq]
        if not arrived:
            return
        parts = [self._flying.pop(number) for number in arrived]
        total, began = sum(size for size, _ in parts), min(at for _, at in parts)
        took = now - max(began, self.heard)
        if began >= self.heard and total <= _SMALL:
            self._fastest = min(self._fastest, now - began)
        if began >= self.heard and self._fastest < math.inf:
            took -= self._fastest
        self.heard = now
        if took > 0 and self._tells(total, took):
            self.estimate.measured(total, took)

    def _tells(self, total: int, took: float) -> bool:
        """Whether a measurement says what the link carries in the long run.

        Many links let a little pass at once: who is quick with it need not be quick with more.
        """
        if total >= _TELLING:
            self._stalls = 0
        else:
            self._stalls = self._stalls + 1 if took > _SLOW else 0
        if total / took < self.estimate.rate:
            return total >= _TELLING or self._stalls >= _OFTEN
        return total >= _ENOUGH * self.estimate.rate

    def lost(self) -> None:
        """What was on its way will go out again."""
        self._waiting |= {seq: size for seq, (size, _) in self._flying.items()}
        self._flying.clear()

    def shown(self) -> dict[str, float | int | None]:
        """What the link is taken to carry in bytes a second, and how wrong that was, on average."""
        rate, error = self.estimate.rate, self.estimate.error
        return {
            "bandwidth": None if math.isinf(rate) else round(rate),
            "error": None if math.isinf(error) else round(error, 3),
        }

    # -- what follows -----------------------------------------------------------------------------

    @property
    def rate(self) -> float:
        """Bytes a second that may be counted on."""
        metered = math.inf if self.meter is None else self.meter.rate
        return min(self.estimate.rate, metered)

    @property
    def flying(self) -> int:
        """Bytes that are not acknowledged yet."""
        return sum(size for size, _ in self._flying.values())

    @property
    def ahead(self) -> int:
        """Bytes that will arrive before whatever is written next."""
        return self.flying + sum(self._waiting.values())

    @property
    def largest(self) -> int:
        """How large a message should be at most."""
        if not self.estimate.seen:
            return _USUAL
        return int(min(max(_AT_ONCE * self.estimate.rate, _SHORTEST), _LONGEST))
