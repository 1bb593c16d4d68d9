"""Eager or lazy: what an optimal cache would have held at this time of the slice before."""

from __future__ import annotations

from catchment.flush.policies.optimistic import optimistic
from catchment.flush.policy import CachePolicy, register_policy
from catchment.flush.sizes import GRID, SizeInputs, SliceHistory


def eager_empirical(now: SizeInputs, past: SliceHistory) -> float:
    return float(past.eager[round(now.done * (GRID - 1))])


def lazy_empirical(now: SizeInputs) -> float:
    if now.past is None:
        return optimistic(now)
    return float(now.past.lazy[round(now.done * (GRID - 1))])


register_policy("empirical", CachePolicy(eager_empirical, lazy_empirical))
