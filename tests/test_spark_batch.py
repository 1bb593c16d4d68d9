"""Batch on a real Spark: every kind of input gives what the engine gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import catchment as ct
from catchment.errors import QueryError, SchemaError, SourceError
from catchment.generator import Generator
from catchment.testing.compare import assert_same, rows_of

pytestmark = pytest.mark.spark

EVENTS = Generator(seed=3, keys=7, rate=500, markers=0.01).table(20_000)
QUERIES = [
    ct.Query("speed", ct.count(), ct.max("v"), by="player", window=ct.sliding("10s", "5s")),
    ct.Query("medians", ct.median("v"), by="player", where="v > 1", window=ct.tumbling("7s")),
    ct.Query("bursts", ct.count(), by="player", window=ct.session("20ms")),
    ct.Query("hundred", ct.last("seq"), ct.min("x"), window=ct.count_tumbling(100)),
    ct.Query("plays", ct.count(), window=ct.cut("event = 'start'")),
    ct.Query("thousands", ct.last("seq"), ct.median("v"), window=ct.count_sliding(6000, 2500)),
]


def wanted(queries: list[ct.Query], events: pa.Table) -> ct.Results:
    engine = ct.Engine(queries)
    engine.push(events)
    return engine.close()


def as_parquet(folder: Path) -> Any:
    for number in range(4):
        part = EVENTS.slice(number * 5000, 5000)
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=1000)
    return folder


def as_csv(folder: Path) -> Any:
    pyarrow.csv.write_csv(EVENTS, folder / "events.csv")
    return folder / "events.csv"


def as_arrow_file(folder: Path) -> Any:
    with (
        pa.OSFile(str(folder / "e.arrow"), "wb") as file,
        pa.ipc.new_file(file, EVENTS.schema) as writer,
    ):
        writer.write_table(EVENTS, max_chunksize=3000)
    return str(folder / "e.arrow")


def as_json_lines(folder: Path) -> Any:
    frame = pl.DataFrame(EVENTS).with_columns(pl.col("ts").dt.to_string("iso:strict"))
    frame.write_ndjson(folder / "e.jsonl")
    from catchment.sources.json_lines import JsonLines

    kinds = {"ts": "timestamp", "player": "string", "v": "double", "x": "double", "seq": "bigint"}
    return JsonLines(path=str(folder / "e.jsonl"), schema=kinds | {"event": "string"})


INPUTS: dict[str, Callable[[Path], Any]] = {
    "parquet": as_parquet,
    "csv": as_csv,
    "arrow file": as_arrow_file,
    "json lines": as_json_lines,
    "arrow table": lambda _: EVENTS,
    "polars": lambda _: pl.DataFrame(EVENTS),
    "pandas": lambda _: EVENTS.to_pandas(),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_every_input(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    results = ct.run(INPUTS[kind](tmp_path), QUERIES, time="ts", spark=spark)
    truth = wanted(QUERIES, EVENTS)
    assert list(results) == [query.name for query in QUERIES]
    for query in QUERIES:
        assert_same(rows_of(truth[query.name]), results[query.name], f"{kind}, {query.name}")
    assert results.counts["events"] == results.counts["accepted"] == EVENTS.num_rows


def test_results_in_other_forms(spark: SparkSession) -> None:
    results = ct.run(EVENTS, QUERIES[:1], spark=spark)
    table = results["speed"]
    assert isinstance(table, pa.Table)
    assert len(results.to_pandas("speed")) == table.num_rows
    assert results.to_polars("speed").height == table.num_rows
    assert results.spark("speed").count() == table.num_rows
    assert table.column("window_start").to_pylist() == sorted(
        table.column("window_start").to_pylist()
    )


def test_no_row_of_a_table_is_lost_on_a_cluster(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark passes over all rows that follow an empty chunk (was a bug: 2 of 5 were taken)."""
    chunks = [[0, 1], [], [2, 3, 4]]
    times = [pa.array(chunk, pa.int64()).cast(pa.timestamp("us", "UTC")) for chunk in chunks]
    events = pa.table({"ts": pa.chunked_array(times)})
    query = ct.Query("n", ct.count().alias("n"), window=ct.tumbling("1s"))
    monkeypatch.setattr("catchment.spark.batch.is_local", lambda _: False)
    assert ct.run(events, query, spark=spark)["n"]["n"].to_pylist() == [5]


def test_user_functions_reach_executors(spark: SparkSession) -> None:
    norm = ct.function(
        "l2_of_a_test", lift=lambda v: v * v, combine=lambda a, b: a + b, lower=lambda s: s**0.5
    )
    query = ct.Query("n", norm("v"), by="player", window=ct.tumbling("10s"))
    assert_same(rows_of(wanted([query], EVENTS)["n"]), ct.run(EVENTS, query, spark=spark)["n"])


def test_windows_of_equal_bounds_are_told_apart(spark: SparkSession) -> None:
    """Four marks at 0 s and one at 1 s: three windows [0, 0), and one [0, 1)."""
    times = pa.array([0, 0, 0, 0, 1_000_000], pa.timestamp("us", "UTC"))
    events = pa.table({"ts": times, "k": ["a"] * 5, "v": [1, 2, 4, 8, 16]})
    query = ct.Query("q", ct.sum("v").alias("total"), by="k", window=ct.cut("v > 0"))
    results = ct.run(events, query, spark=spark)
    found = rows_of(results["q"])
    seen = [(row["window_end"], row["window_index"], row["total"]) for row in found]
    assert seen == [(0, 0, 1), (0, 1, 2), (0, 2, 4), (1_000_000, 0, 8)]
    assert "window_index" in results.spark("q").columns


def test_no_events(spark: SparkSession) -> None:
    results = ct.run(EVENTS.slice(0, 0), QUERIES, spark=spark)
    assert results.rows() == 0
    assert results["speed"].num_rows == 0
    assert results["speed"].schema.names[0] == "player"


def test_a_duplicate_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    twice = pa.concat_tables([EVENTS, EVENTS])
    query = ct.Query(
        "once", ct.count(), window=ct.tumbling("10s"), by="player", distinct_on=["player", "seq"]
    )
    results = ct.run(twice, query, spark=spark)
    assert_same(rows_of(wanted([query], twice)["once"]), results["once"])
    assert results.counts["duplicates"] == EVENTS.num_rows
    assert results.counts["accepted"] == EVENTS.num_rows


def test_bad_input(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere"):
        ct.run(tmp_path / "nowhere.parquet", QUERIES, spark=spark)
    query = ct.Query("q", ct.count(), by="playr", window=ct.tumbling("1s"))
    with pytest.raises(SchemaError, match="did you mean 'player'"):
        ct.run(EVENTS, query, spark=spark)
    with pytest.raises(SchemaError, match="time column"):
        ct.run(EVENTS, QUERIES, time="when", spark=spark)
    with pytest.raises(SourceError, match="no events"):
        ct.run(42, QUERIES, spark=spark)
    with pytest.raises(QueryError, match="did you mean 'speed'"):
        _ = ct.run(EVENTS, QUERIES[:1], spark=spark)["sped"]


def test_a_broken_file_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    folder = as_parquet(tmp_path)
    whole = (tmp_path / "1.parquet").read_bytes()
    (tmp_path / "1.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=r"1\.parquet"):
        ct.run(folder, QUERIES, spark=spark)
    (tmp_path / "1.parquet").write_bytes(whole)
    assert ct.run(folder, QUERIES, spark=spark).counts["events"] == EVENTS.num_rows


def test_a_file_of_another_schema(spark: SparkSession, tmp_path: Path) -> None:
    folder = as_parquet(tmp_path)
    pq.write_table(EVENTS.drop_columns(["v"]), tmp_path / "9.parquet")
    with pytest.raises(SourceError, match=r"9\.parquet"):
        ct.run(folder, QUERIES, spark=spark)


def test_lines_that_do_not_parse_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    source = as_json_lines(tmp_path)
    with (tmp_path / "e.jsonl").open("a") as file:
        file.write("{not json\n")
    results = ct.run(source, QUERIES[:1], spark=spark)
    assert results.counts["events"] == EVENTS.num_rows + 1
    assert (results.counts["accepted"], results.counts["bad"]) == (EVENTS.num_rows, 1)
    assert [row["place"] for row in results.unread] == [EVENTS.num_rows + 1]
