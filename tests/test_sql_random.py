"""Random SQL, ours against DuckDB's: every query that both can express gives the same rows.

The queries about one table run together in one engine, so that they share what can be shared.
CATCHMENT_SQL says how many queries there are; `make soak` asks for a hundred thousand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catchment as ct
from catchment.testing.compare import assert_same

duckdb = pytest.importorskip("duckdb")

from sql_questions import ROOMS, Peer, Question, Questions, connect, events  # noqa: E402

QUERIES = int(os.environ.get("CATCHMENT_SQL", "10000"))
TOGETHER = 50
"""Queries about one table."""
PARTS = 10
"""Tests among which they are divided, so that workers share them."""


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of the table that queries join."""
    path: Path = tmp_path_factory.mktemp("rooms") / "rooms.parquet"
    pq.write_table(ROOMS, path)
    return str(path)


@pytest.fixture(scope="module")
def connection() -> Iterator[object]:
    with connect() as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_same_rows_as_duckdb(
    part: int, rooms: str, connection: object, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("randomly_seed", 0)
    tables = max(QUERIES // TOGETHER, 1)
    for number in range(part, tables, PARTS):
        check(f"{seed} {number}", rooms, connection)


def check(seed: str, rooms: str, connection: object) -> None:
    """Asks both the questions of a seed."""
    dice = Random(seed)
    table = events(dice)
    draw = Questions(dice)
    asked = {f"q{n}": draw.question() for n in range(TOGETHER)}
    queries = [ct.sql(one.sql, name, {"rooms": rooms}) for name, one in asked.items()]
    found = ct.run(table, queries, spark=False)
    peer = Peer(connection, table)
    for name, one in asked.items():
        assert_same(peer.answers(one.duckdb), plain(found[name]), told(seed, one), keys=one.keys)


def plain(table: pa.Table) -> pa.Table:
    """Decimals as doubles: DuckDB makes decimals of other numbers than we, as Spark does."""
    for place, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.float64()))
    return table


def told(seed: str, one: Question) -> str:
    return f"seed {seed}\n{one.sql}\n{one.duckdb}\n"
