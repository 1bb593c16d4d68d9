"""When an edge sends what: the early sender, cache sizes, evictions, optima. No I/O, no clock."""

from catchment.flush.policy import Policy, parse
from catchment.flush.settings import Flush, read

__all__ = ["Flush", "Policy", "parse", "read"]
