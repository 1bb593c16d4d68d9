"""What a node sends before its slices end: the `EarlySender`, cache sizes, evictions, optima.

Nothing here reads a clock or opens a connection.
"""

from catchment.flush.policy import CachePolicy, Policy, parse, register_policy
from catchment.flush.settings import Flush, read

__all__ = ["CachePolicy", "Flush", "Policy", "parse", "read", "register_policy"]
