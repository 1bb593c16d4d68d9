"""Lazy, as `optimistic`; but no more keys can be new than keys are likely to come at all.

Where the link carries less than all arrivals, the others see nothing but misses, keep nothing back,
and so make them come true. The bound is what the slice before tells of the rest of it.
"""

from __future__ import annotations

from catchment.flush.policy import CachePolicy, register_policy
from catchment.flush.sizes import SizeInputs


def bounded(now: SizeInputs) -> float:
    misses = now.misses * now.rate * now.left
    if now.past is not None:
        misses = min(misses, float(((1.0 - now.done**now.past.often) * now.past.many).sum()))
    return now.room(misses)


register_policy("bounded", CachePolicy(lazy=bounded))
