"""How many random schedules the tests draw.

CATCHMENT_SCHEDULES says how many `test_simulate.py` does; other tests, whose schedules take longer,
do their share of that number. What takes minutes is for the soak alone (`in_soak`).
"""

from __future__ import annotations

import os

import pytest

SCHEDULES = int(os.environ.get("CATCHMENT_SCHEDULES", "5000"))


def share(one_in: int, least: int = 1) -> int:
    """One schedule for so many of all of them, and at least so many."""
    return max(SCHEDULES // one_in, least)


in_soak = pytest.mark.skipif(
    "CATCHMENT_SOAK" not in os.environ, reason="runs in `make soak`: it takes minutes"
)
