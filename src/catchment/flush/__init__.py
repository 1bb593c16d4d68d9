"""When an edge sends what: cache sizes, evictions, offline optima. No I/O, and no clock."""

from catchment.flush.policy import Policy, parse
from catchment.flush.settings import Flush, read

__all__ = ["Flush", "Policy", "parse", "read"]
