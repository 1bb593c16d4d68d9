"""Lazy: what can still be sent, if as many arrivals as of late are of new keys."""

from __future__ import annotations

from catchment.flush.policy import CachePolicy, register_policy
from catchment.flush.sizes import SizeInputs


def optimistic(now: SizeInputs) -> float:
    return now.room(now.misses * now.rate * now.left)


register_policy("optimistic", CachePolicy(lazy=optimistic))
