"""Decides when the root repeats its last order, because an order or an answer seems to be lost."""

from __future__ import annotations

from msgspec import Struct


class Retransmit(Struct, array_like=True):
    """Says that something seems lost after so long without progress; None: messages do not get
    lost."""

    longest: int | None
    said: int = 0
    """When the root last said something."""
    whole: tuple[int, int] = (0, 0)
    """When all pieces up to one more edge were here, and which edge that was."""

    def lost(self, now: int, complete: int, over: bool, known: bool) -> bool:
        """Whether something is known to be lost, or seems so: all is silent, or what is said leads
        to no more pieces."""
        if complete > self.whole[1]:
            self.whole = (now, complete)
        if self.longest is None or over:
            return False
        lacking = now - self.whole[0] > self.longest
        if lacking:
            self.whole = (now, complete)
        return known or lacking or now - self.said > self.longest
