"""How many random schedules the tests draw.

CATCHMENT_SCHEDULES says how many all tests draw together: `test_simulate.py` most of them, others,
whose schedules take longer, their share. What takes minutes is for the soak alone (`in_soak`), and
so are cases that are much like others (`soaked`).
"""

from __future__ import annotations

import os
from typing import Any

import pytest

SCHEDULES = int(os.environ.get("CATCHMENT_SCHEDULES", "5000"))
_FIRST = int(os.environ.get("CATCHMENT_FIRST_SCHEDULE", "0"))


def share(one_in: int, least: int = 1) -> int:
    """One schedule for so many of all of them, and at least so many."""
    return max(SCHEDULES // one_in, least)


def seed_range(stop: int, start: int = 0, step: int = 1) -> range:
    """The seeds of schedules: as `range` has them, from CATCHMENT_FIRST_SCHEDULE on.

    Every run of the suite draws the same, every soak others.
    """
    return range(_FIRST + start, _FIRST + stop, step)


in_soak = pytest.mark.soak


def soaked(*values: Any) -> Any:
    """A case of a parametrized test that is like the others and is for the soak alone."""
    return pytest.param(*values, marks=in_soak)
