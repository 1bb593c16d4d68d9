"""`ct.run` in this process: the same results as an engine's, without Spark."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catchment as ct
from catchment.errors import CatchmentError, JobError, SchemaError, UnreachableError
from catchment.generator import Generator
from catchment.testing.compare import assert_same, rows_of

EVENTS = Generator(seed=3, keys=4, rate=200, markers=0.02, late_share=0.2).table(4_000)
TIME = datetime(2026, 1, 1)
QUERIES = [
    ct.Query("mean", ct.avg("v"), ct.first("x"), by="player", window=ct.sliding("4s", "2s")),
    ct.Query("middle", ct.median("v"), window=ct.tumbling("5s")),
    ct.Query("visits", ct.count(), by="player", window=ct.session("20ms")),
    ct.Query("hundreds", ct.sum("v"), by="player", window=ct.count_tumbling(300)),
    ct.Query("laps", ct.count(), by="player", window=ct.cut("event = 'start'")),
    ct.Query("fast", ct.count(), where="v > 5", window=ct.tumbling("1s")),
]


def expected() -> dict[str, pa.Table]:
    engine = ct.Engine(QUERIES)
    engine.push(EVENTS)
    return dict(engine.close().items())


def check(results: Any) -> None:
    wanted = expected()
    for query in QUERIES:
        assert_same(rows_of(wanted[query.name]), results[query.name], query.name, keys=query.keys)


@pytest.mark.parametrize("form", ["table", "batch", "polars", "pandas", "columns"])
def test_tables_and_frames_of_all_kinds(form: str) -> None:
    given: Any = {
        "table": EVENTS,
        "batch": EVENTS.combine_chunks().to_batches()[0],
        "polars": pl.DataFrame(EVENTS),
        "pandas": EVENTS.to_pandas(),
        "columns": dict(zip(EVENTS.column_names, EVENTS.columns, strict=True)),
    }[form]
    results = ct.run(given, QUERIES, spark=False)
    check(results)
    assert results.counts["events"] == results.counts["accepted"] == EVENTS.num_rows
    engine = ct.Engine(QUERIES)
    engine.push(given)
    check(dict(engine.close().items()))


def test_a_folder_of_files(tmp_path: Path) -> None:
    for number in range(4):
        pq.write_table(EVENTS.slice(number * 1_000, 1_000), tmp_path / f"{number}.parquet")
    results = ct.run(tmp_path, QUERIES, spark=False)
    check(results)
    assert not results.never_read and not results.unread


def test_rows_that_cannot_be_read_are_counted_and_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"ts": "2026-01-01T00:00:00Z", "v": 1}\n{broken\n{"ts": null, "v": 2}\n'
    )
    results = ct.run(
        tmp_path / "a.jsonl",
        ct.Query("n", ct.count().alias("n"), window=ct.tumbling("1s")),
        spark=False,
    )
    assert results["n"]["n"].to_pylist() == [1]
    told = {name: results.counts[name] for name in ("events", "accepted", "bad", "aside_dropped")}
    assert told == {"events": 3, "accepted": 1, "bad": 2, "aside_dropped": 2}
    (row,) = results.unread
    assert row["origin"].endswith("a.jsonl") and row["reason"]


def test_windows_that_are_open_at_the_end() -> None:
    query = ct.Query("tens", ct.count(), window=ct.count_tumbling(3_000))
    counted = ct.run(EVENTS, query, spark=False)
    assert (counted.counts["open_windows"], counted.counts["open_events"]) == (1, 1_000)
    emitted = ct.run(EVENTS, query, spark=False, incomplete="emit")
    assert [row["complete"] for row in rows_of(emitted["tens"])] == [True, False]


def test_it_needs_no_spark(tmp_path: Path) -> None:
    pq.write_table(EVENTS, tmp_path / "a.parquet")
    script = f"""
import sys
sys.modules["pyspark"] = None
import catchment as ct
query = ct.Query("n", ct.count().alias("n"), window=ct.tumbling("1s"))
results = ct.run({str(tmp_path)!r}, query, spark=False)
assert sum(results["n"]["n"].to_pylist()) == {EVENTS.num_rows}
"""
    subprocess.run([sys.executable, "-c", script], check=True)


class FromSpark:
    """Looks like a DataFrame of Spark."""

    sparkSession = None  # noqa: N815


@pytest.mark.parametrize(
    ("events", "error", "text"),
    [
        (FromSpark(), JobError, "computed by Spark"),
        ({"ts": [TIME, TIME], "v": [1]}, SchemaError, "cannot become an Arrow table"),
        ("/no/such/file.parquet", UnreachableError, "no such file"),
        ({"ts": [TIME], "w": [1]}, CatchmentError, "'v'|column v|no such column"),
    ],
)
def test_what_is_wrong_is_said(events: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ct.run(events, ct.Query("s", ct.sum("v"), window=ct.tumbling("1s")), spark=False)


def test_results_without_spark_are_no_dataframe() -> None:
    results = ct.run(EVENTS, QUERIES[0], spark=False)
    with pytest.raises(JobError, match="without Spark"):
        results.spark("mean")


def test_an_engine_says_what_it_takes() -> None:
    with pytest.raises(SchemaError, match=r"ct\.run"):
        ct.Engine(QUERIES).push("events.parquet")
