"""How full a buffer, cache or log is, how full it may get, and what happens then.

Components give `Capacity` records; `status` of every runtime shows them. So whatever grows in the
system can be looked at while it runs, with the limit that stops it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from catchment.model.settings import positive

CapacityUnit = Literal["bytes", "rows", "files", "entries"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """One thing that grows: how much of it there is, the limit, and what happens at the limit.

    >>> Capacity("outbox", 512, 1024, "bytes", "nothing more is read").share
    0.5
    """

    name: str
    used: int
    limit: int
    unit: CapacityUnit
    when_reached: str

    @property
    def share(self) -> float:
        """How much of the limit is used: 1.0 is full."""
        return self.used / max(self.limit, 1)

    @property
    def line(self) -> str:
        """How full it is, and what happens when it is full.

        >>> Capacity("outbox", 512, 1024, "bytes", "nothing more is read").line
        'outbox: 512 of 1,024 bytes; when full, nothing more is read'
        """
        used = f"{self.used:,} of {self.limit:,} {self.unit}"
        return f"{self.name}: {used}; when full, {self.when_reached}"


KEY_BYTES = 4 << 30
"""What keys may take unless it is said otherwise: enough for some ten million."""
ASIDE_BYTES = 64 << 20
"""What rows that were set aside may take before somebody takes them."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """How much memory a part of the pipeline may take; `of` checks what a user gave."""

    state_bytes: int
    """Limit for open windows and their keys; past it there is a StateError."""
    key_bytes: int = KEY_BYTES
    """Limit for keys that are all needed; past it there is a LimitError."""
    aside_bytes: int = ASIDE_BYTES
    """Limit for late and bad rows that were not taken; past it they are spilled or dropped."""

    @classmethod
    def of(
        cls,
        state_bytes: int | None = None,
        key_bytes: int | None = None,
        aside_bytes: int = ASIDE_BYTES,
    ) -> MemoryLimits:
        """The limits as a user gives them; the state may take the machine's memory by default."""
        return cls(
            machine_memory() if state_bytes is None else state_bytes,
            KEY_BYTES if key_bytes is None else positive(key_bytes, "key_bytes"),
            aside_bytes,
        )


def machine_memory() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def largest(capacities: Iterable[Capacity]) -> list[Capacity]:
    """One record for each name, the fullest: tasks and buckets each have a buffer of their own.

    >>> [c.used for c in largest(Capacity("b", used, 9, "rows", "") for used in (1, 5, 2))]
    [5]
    """
    found: dict[str, Capacity] = {}
    for capacity in capacities:
        known = found.get(capacity.name)
        if known is None or capacity.share > known.share:
            found[capacity.name] = capacity
    return list(found.values())
