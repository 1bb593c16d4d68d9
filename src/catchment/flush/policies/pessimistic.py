"""Lazy: what can still be sent, if every arrival to come is of a new key."""

from __future__ import annotations

from catchment.flush.policy import CachePolicy, register_policy
from catchment.flush.sizes import SizeInputs


def pessimistic(now: SizeInputs) -> float:
    return now.room(now.rate * now.left)


register_policy("pessimistic", CachePolicy(lazy=pessimistic))
