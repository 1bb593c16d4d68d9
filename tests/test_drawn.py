"""What Catchment has, the property tests draw, and the oracle defines: nothing is left out."""

from __future__ import annotations

import random

import pytest

import catchment as ct
from catchment.functions import FUNCTIONS, built_in
from catchment.testing import oracle
from catchment.testing.oracle_functions import aggregate
from catchment.testing.strategies import APPROXIMATE, EXACT, PARAMS, SERIES, drawn_window
from catchment.windows import BUILDERS

BUILT_IN = sorted(name for name in FUNCTIONS.registered() if hasattr(built_in, name))
WINDOWS = sorted(name for name in BUILDERS.registered() if hasattr(ct, name))


def test_there_is_something_to_compare() -> None:
    assert {"tumbling", "count_sliding"} <= set(WINDOWS)
    assert {"avg", "max_by"} <= set(BUILT_IN)


@pytest.mark.parametrize("name", WINDOWS)
def test_every_window_is_drawn_and_has_its_definition(name: str) -> None:
    window = drawn_window(random.Random(1), [name])
    rows = [{"ts": time, "k": "a", "v": 1.0, "n": 1, "m": True} for time in range(5)]
    assert list(oracle([ct.Query("q", ct.count(), by="k", window=window)], rows)) == ["q"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_function_is_drawn_and_has_its_definition(name: str) -> None:
    assert name in EXACT or name in APPROXIMATE or name in SERIES
    usual = (0.5,) if "quantile" in name else ()
    aggregate(name, [], PARAMS.get(name, (usual,))[0], [])
