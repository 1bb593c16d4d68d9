"""When an edge sends what: cache sizes, evictions, offline optima. No I/O, and no clock."""

from catchment.flush.policy import CachePolicy, Policy, parse, register_policy
from catchment.flush.settings import Flush, read

__all__ = ["CachePolicy", "Flush", "Policy", "parse", "read", "register_policy"]
