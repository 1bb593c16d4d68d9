"""How full a buffer, cache or log is, how full it may get, and what happens then.

Components give `Capacity` records; `status` of every runtime shows them. So whatever grows in the
system can be looked at while it runs, with the limit that stops it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Unit = Literal["bytes", "rows", "files", "entries"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """One thing that grows: how much of it there is, the limit, and what happens at the limit.

    >>> Capacity("outbox", 512, 1024, "bytes", "nothing more is read").share
    0.5
    """

    name: str
    used: int
    limit: int
    unit: Unit
    when_reached: str

    @property
    def share(self) -> float:
        """How much of the limit is used: 1.0 is full."""
        return self.used / max(self.limit, 1)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


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
