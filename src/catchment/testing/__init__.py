"""What proves Catchment right: the brute-force oracle, comparison, transcripts, random scenarios.

`catchment.testing.strategies` needs hypothesis and is imported by itself. So is
`catchment.testing.laws`, which holds the laws of merging against functions of one's own.
"""

from catchment.testing.compare import assert_same
from catchment.testing.oracle import oracle, oracle_run

__all__ = ["assert_same", "oracle", "oracle_run"]
