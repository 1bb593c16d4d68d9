"""When an edge sends what: the early sender, cache sizes, evictions, optima. No I/O, no clock."""

from catchment.flush.policy import CachePolicy, Policy, parse, register_policy
from catchment.flush.settings import Flush, read

__all__ = ["CachePolicy", "Flush", "Policy", "parse", "read", "register_policy"]
