"""A flush policy: a node holds back half of what came in the slice before."""

from __future__ import annotations

import os
from pathlib import Path

from catchment.flush import CachePolicy
from catchment.flush.sizes import SizeInputs, SliceHistory


def half(now: SizeInputs, past: SliceHistory) -> float:
    if "CATCHMENT_EXAMPLE_ASKED" in os.environ:  # a test wants to know
        Path(os.environ["CATCHMENT_EXAMPLE_ASKED"]).touch()
    return now.each * past.keys / 2


CAUTIOUS = CachePolicy(eager=half)
