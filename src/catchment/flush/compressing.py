"""Decides whether messages are compressed: as long as that makes them smaller."""

from __future__ import annotations

_WORTH = 0.95
"""What a message must shrink to, to be worth the work."""
_AGAIN = 16
"""Messages after which what was not worth it is tried again."""


class Compressing:
    """`on`, `off`, or `auto`: by what it has gained."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.ratio = 0.0
        """Packed over plain, as of late; 0: nothing is known."""
        self._skipped = 0

    def wanted(self) -> bool:
        """Whether to try with the next message."""
        if self.how != "auto":
            return self.how == "on"
        if self.ratio < _WORTH or self._skipped >= _AGAIN:
            self._skipped = 0
            return True
        self._skipped += 1
        return False

    def tried(self, plain: int, packed: int) -> None:
        """A message of so many bytes became one of so many."""
        found = packed / max(plain, 1)
        self.ratio = found if not self.ratio else self.ratio + 0.3 * (found - self.ratio)
