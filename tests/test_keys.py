"""Keys as codes: very many whole numbers are sorted, few are looked up, with the same result."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import catchment as ct
from catchment.engine.keys import encode

MANY = 50_000


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (np.int32, -(2**31), 2**31 - 1),
        (np.uint32, 0, 2**32 - 1),
        (np.int64, -(10**12), 10**12),
        (np.uint64, 2**63, 2**63 + 10**9),
        (np.int64, -(2**63), 2**63 - 1),
        (np.uint64, 0, 2**64 - 1),
    ],
)
def test_each_of_very_many_numbers_has_one_code(kind: type, low: int, high: int) -> None:
    drawn = np.random.default_rng(1).integers(low, high, MANY, dtype=kind, endpoint=True)
    ends = np.array([low, high], kind)
    values = np.concatenate([drawn, ends, drawn[:1000], ends])
    keys = encode([pa.array(values)])
    (known,) = keys.parts
    assert keys.codes is not None
    assert known.type == pa.array(values).type
    assert len(known) == len(np.unique(values))
    assert np.array_equal(known.to_numpy()[keys.codes], values)


def test_very_many_keys_have_the_windows_that_duckdb_finds() -> None:
    random = np.random.default_rng(2)
    seconds = np.sort(random.integers(0, 150, 2 * MANY))
    events = pa.table(
        {
            "ts": pa.array(seconds * 1_000_000, pa.timestamp("us")),
            "k": random.integers(-(10**9), 10**9, MANY).repeat(2)[random.permutation(2 * MANY)],
            "v": random.integers(0, 100, 2 * MANY),
        }
    )
    query = ct.Query(
        "many", ct.sum("v").alias("total"), ct.count().alias("n"), by="k", window=ct.tumbling("60s")
    )
    mine = ct.run(events, query, time="ts", spark=False)["many"]
    minute = "epoch_us(ts) // 60000000"
    text = f"SELECT k, {minute}, sum(v)::BIGINT, count(*) FROM events GROUP BY k, {minute}"
    theirs = duckdb.sql(text).fetchall()
    minutes = np.asarray(mine.column("window_start").cast(pa.int64())) // 60_000_000
    rows = zip(
        mine.column("k").to_pylist(),
        minutes.tolist(),
        mine.column("total").to_pylist(),
        mine.column("n").to_pylist(),
        strict=True,
    )
    assert sorted(rows) == sorted(theirs)
