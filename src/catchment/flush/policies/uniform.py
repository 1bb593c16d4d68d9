"""Eager: as if all keys were equally frequent."""

from __future__ import annotations

import numpy as np

from catchment.flush.policy import CachePolicy, register_policy
from catchment.flush.sizes import SizeInputs, SliceHistory, waiting


def uniform(now: SizeInputs, past: SliceHistory) -> float:
    often = past.arrivals / max(past.keys, 1)
    return past.keys * now.each * float(waiting(now.done, np.array([often]))[0])


register_policy("uniform", CachePolicy(eager=uniform))
