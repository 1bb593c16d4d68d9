"""What an edge has learnt of its link and of its policy, so that it outlives a crash."""

from __future__ import annotations

from msgspec import Struct

from catchment.flush.bandwidth import Estimate
from catchment.flush.tuner import Tuner


class Learnt(Struct, frozen=True, omit_defaults=True):
    """What a link and an `EarlySender` go on with; all of it may be missing."""

    estimate: Estimate | None = None
    """What the link carries."""
    left: float | None = None
    """Where traffic is metered: the bytes that were left..."""
    at: float = 0.0
    """...and when."""
    tuner: Tuner | None = None
    each: float | None = None
    """Bytes of a row on the wire."""


NOTHING = Learnt()
