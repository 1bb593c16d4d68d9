"""Random SQL, ours against DuckDB's: every query that both can express gives the same rows.

The queries of one example run together in one engine, so that they share what can be shared.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import catchment as ct
from catchment.testing.compare import assert_same

duckdb = pytest.importorskip("duckdb")

from sql_questions import Question, answers, connect, events, question  # noqa: E402

QUERIES = 4
"""Queries of one example."""


@pytest.mark.slow
@given(seed=st.integers(0, 2**48))
@example(seed=0)
@settings(deadline=None)
def test_the_same_rows_as_duckdb(seed: int) -> None:
    dice = Random(seed)
    table = events(dice)
    asked = {f"q{n}": question(dice) for n in range(QUERIES)}
    queries = [ct.sql(one.sql, name) for name, one in asked.items()]
    found = ct.run(table, queries, spark=False)
    with connect() as connection:
        for name, one in asked.items():
            wanted = answers(connection, table, one.duckdb)
            assert_same(wanted, found[name], told(seed, one), keys=one.keys)


def told(seed: int, one: Question) -> str:
    return f"seed {seed}\n{one.sql}\n{one.duckdb}\n"
