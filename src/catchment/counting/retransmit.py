"""Decides when the root repeats its last order, because an order or an answer seems to be lost."""

from __future__ import annotations

from typing import Any


class Retransmit:
    """Says that something seems lost after so long without progress; None: messages do not get
    lost."""

    def __init__(self, longest: int | None) -> None:
        self.longest = longest
        self.said = 0
        """When the root last said something."""
        self._whole = (0, 0)
        """When all pieces up to the last edge were here, or more of them came, and how far."""

    def lost(self, now: int, complete: int, edge: int, over: bool) -> bool:
        """Whether something seems lost: all is silent, or pieces lack though edges are found."""
        if complete == edge or complete > self._whole[1]:
            self._whole = (now, complete)
        if self.longest is None or over:
            return False
        lacking = now - self._whole[0] > self.longest
        if lacking:
            self._whole = (now, complete)
        return lacking or now - self.said > self.longest

    def to_plain(self) -> list[Any]:
        return [self.longest, self.said, self._whole]

    @classmethod
    def from_plain(cls, data: list[Any]) -> Retransmit:
        made = cls(data[0])
        made.said, made._whole = data[1:]
        return made
