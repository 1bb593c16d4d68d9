"""Eager: as if each key came as often as it did in the slice before, at random times."""

from __future__ import annotations

from catchment.flush.policy import CachePolicy, register_policy
from catchment.flush.sizes import SizeInputs, SliceHistory, waiting


def nonuniform(now: SizeInputs, past: SliceHistory) -> float:
    return now.each * float((waiting(now.done, past.often) * past.many).sum())


register_policy("nonuniform", CachePolicy(eager=nonuniform))
