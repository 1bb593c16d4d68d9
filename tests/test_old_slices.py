"""Slices of the past are merged where no open window begins at their edges."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
import test_live_queries as live
from against_oracle import check
from catchment.engine.shapes import periodic
from catchment.testing.compare import rows_of
from catchment.testing.oracle import oracle
from catchment.testing.strategies import Scenario, Step, scenarios, to_table

SECOND = 1_000_000
Row = dict[str, Any]
EAGER = {"_FEW_SLICES": 1, "_MORE": 0.0, "_WORTH": 0.0}
"""Merges whenever there is something to merge."""


@given(scenarios())
def test_any(scenario: Scenario) -> None:
    with patch.multiple(periodic, **EAGER):
        check(scenario)


@given(scenarios())
def test_a_snapshot_between_any_two_steps_changes_nothing(scenario: Scenario) -> None:
    with patch.multiple(periodic, **EAGER):
        check(scenario, lambda engine: ct.Engine.restore(engine.snapshot()))


def window(dice: random.Random) -> ct.Window:
    """Windows from one second to a minute: of all lengths in one group."""
    length, slide, offset = dice.choice([1, 2, 5, 20, 60]), dice.choice([1, 2, 3, 7]), 0
    if dice.random() < 0.3:
        offset = dice.randrange(slide * 1000)
    if dice.random() < 0.3:
        return ct.tumbling(f"{length}s")
    return ct.sliding(f"{length}s", f"{slide}s", offset=f"{offset}ms")


@given(seed=st.integers(0, 2**32))
def test_short_and_long_windows_of_one_group(seed: int) -> None:
    dice = random.Random(seed)
    aggregates = dice.choice([[ct.sum("v")], [ct.avg("v"), ct.max("v")], [ct.median("v")]])
    queries = [
        ct.Query(f"q{n}", *aggregates, by="k", window=window(dice))
        for n in range(dice.randint(2, 4))
    ]
    late = dice.choice(["drop", "update"])
    steps: list[Step] = []
    nodes = []
    for at in range(0, 120, 6):
        pushed = [
            {"ts": (at * 1000 + dice.randrange(-3000, 6000)) * 1000, "k": dice.choice("ab"), "v": n}
            for n in range(dice.randint(0, 8))
        ]
        nodes += [0] * len(pushed)
        steps += [("push", pushed), ("advance", at * SECOND)]
    keep = dice.choice([0, 4, 30]) * SECOND if late == "update" else None
    scenario = Scenario(queries, [*steps, ("close",)], 0, late, keep, nodes)
    again = dice.random() < 0.3
    with patch.multiple(periodic, **EAGER):
        check(scenario, (lambda e: ct.Engine.restore(e.snapshot())) if again else lambda e: e)


@given(seed=st.integers(0, 2**32))
def test_windows_that_are_added_later(seed: int) -> None:
    """Those that would begin within merged slices are not given; all that are given are right."""
    dice = random.Random(seed)
    queries = [
        ct.Query(f"q{n}", ct.sum("v"), by="k", window=window(dice))
        for n in range(dice.randint(2, 6))
    ]
    running = queries[:1]
    given: dict[str, list[Row]] = {query.name: [] for query in queries}
    rows: list[Row] = []
    with patch.multiple(periodic, **EAGER):
        engine = ct.Engine(running)
        for at in range(0, 150, 6):
            pushed = [
                {"ts": (at * 1000 + dice.randrange(6000)) * 1000, "k": dice.choice("ab"), "v": n}
                for n in range(dice.randint(0, 12))
            ]
            rows += pushed
            engine.push(to_table(pushed))
            found = engine.advance(at * SECOND)
            for query in running:
                given[query.name] += rows_of(found[query.name])
            if dice.random() < 0.3 and len(running) < len(queries):
                engine.add(queries[len(running)])
                running = queries[: len(running) + 1]
    for query in running:
        wanted = oracle([query], rows)[query.name]
        assert all(row in wanted for row in given[query.name]), query
    first = [row for row in oracle(queries[:1], rows)["q0"] if row["window_end"] <= 144 * SECOND]
    assert len(given["q0"]) == len(first)


@pytest.mark.parametrize("mix", live.MIXES)
@given(seed=st.integers(0, 2**32))
def test_queries_come_and_go(mix: str, seed: int) -> None:
    with patch.multiple(periodic, **EAGER):
        live.test_an_engine.hypothesis.inner_test(mix, seed)  # type: ignore[attr-defined]


def events(hours: int) -> list[pa.Table]:
    """Two keys, an event of each in each second."""
    made = []
    for hour in range(hours):
        times = np.repeat(np.arange(hour * 3600, (hour + 1) * 3600), 2) * 1_000_000
        columns = {"ts": times.astype("M8[us]"), "k": np.tile([0, 1], 3600), "v": times % 1_000_003}
        made.append(pa.table(columns))
    return made


def held(queries: list[ct.Query], hours: int) -> int:
    engine = ct.Engine(queries)
    for table in events(hours):
        engine.push(table)
        engine.advance(table["ts"].cast(pa.int64())[-1].as_py())
    return len(engine.snapshot())


def test_long_windows_keep_no_slices_of_short_ones() -> None:
    fine = ct.Query("fine", ct.avg("v"), by="k", window=ct.tumbling("1s"))
    month = ct.Query("month", ct.avg("v"), by="k", window=ct.sliding("30d", "1min"))
    quarter = ct.Query("quarter", ct.avg("v"), by="k", window=ct.sliding("90d", "1h"))
    assert held([fine, month, quarter], 8) < 1.3 * held([month], 8)


def test_a_query_that_comes_later_is_not_answered_from_what_was_merged() -> None:
    """Its windows would begin within merged slices: the first begins where none are."""
    queries = [
        ct.Query("fine", ct.sum("v"), window=ct.tumbling("1s")),
        ct.Query("day", ct.sum("v"), window=ct.sliding("1d", "1h")),
    ]
    new = ct.Query("new", ct.sum("v"), window=ct.sliding("2h", "10min"))
    parts = events(8)
    engine = ct.Engine(queries)
    for table in parts[:5]:
        engine.push(table)
        engine.advance(table["ts"].cast(pa.int64())[-1].as_py())
    engine.add(new)
    found = []
    for table in parts[5:]:
        engine.push(table)
        found.append(engine.advance(table["ts"].cast(pa.int64())[-1].as_py())["new"])
    given = pa.concat_tables(found).to_pylist()
    wanted = ct.run(pa.concat_tables(parts), new, spark=False)["new"].to_pylist()
    assert given and all(row in wanted for row in given)
