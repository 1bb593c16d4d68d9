"""The format `catchment`: results of a query of a job file, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import catchment as ct
from catchment.errors import JobError, QueryError, StateError
from catchment.generator import Generator
from catchment.spark.job_results import JobResults, result_schema, results_of_step
from catchment.spark.types import for_spark, spark_schema
from catchment.testing.compare import assert_same, rows_of

EVENTS = Generator(seed=8, keys=5, rate=500).table(6_000)
QUERY = ct.Query(
    "speed", ct.count(), ct.avg("v").alias("mean"), by="player", window=ct.tumbling("2s")
)
JOB = """
name: game
source: {{type: parquet, path: {events}, max_files_per_batch: 1}}
checkpoint: {checkpoint}
lateness: 1s
queries:
  - {{name: speed, select: [count(*), avg(v) AS mean], by: player, window: {window}}}
"""


def job_file(place: Path, window: str = "tumbling(2s)", checkpoint: str = "state") -> str:
    path = place / "job.yaml"
    path.write_text(
        JOB.format(events=place / "events", checkpoint=place / checkpoint, window=window)
    )
    return str(path)


def write_events(place: Path, number: int, table: pa.Table) -> None:
    (place / "events").mkdir(exist_ok=True)
    pq.write_table(table, place / "events" / f"{number}.parquet")


@pytest.fixture
def options(tmp_path: Path) -> dict[str, str]:
    for number in range(3):
        write_events(tmp_path, number, EVENTS.slice(number * 2000, 2000))
    return {"job": job_file(tmp_path), "query": "speed"}


def rows(options: dict[str, str], steps: range) -> pa.Table:
    found = [batch for step in steps for batch in results_of_step(options, step)]
    return pa.Table.from_batches(found)


def complete(table: pa.Table, query: ct.Query = QUERY) -> pa.Table:
    """What is complete a second before the newest event."""
    engine = ct.Engine([query], lateness="1s")
    engine.push(table)
    newest = max(table["ts"].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist())
    return engine.advance(newest)["speed"]


def test_each_step_gives_what_is_complete_and_no_row_twice(options: dict[str, str]) -> None:
    results = JobResults(options)
    steps = 0
    while (after := results.after(steps)) > steps:
        steps = after
    assert steps >= 1
    wanted = complete(EVENTS)
    assert_same(rows_of(wanted), rows(options, range(1, steps + 1)), keys=["player"])
    assert result_schema(options) == spark_schema(wanted.schema)
    assert rows(options, range(1, 2)).schema.types == for_spark(wanted.schema).types
    results.close()


def test_a_step_that_was_never_written_down_is_made_again(
    options: dict[str, str], tmp_path: Path
) -> None:
    first = JobResults(options)
    assert (first.after(0), first.after(1)) == (1, 2)
    first.close()
    again = JobResults(options)
    assert again.after(1) == 2, "Spark wrote down the first step only"
    assert (again.after(2), again.after(3)) == (3, 3)
    assert_same(rows_of(complete(EVENTS)), rows(options, range(1, 4)), keys=["player"])
    for number in range(3, 6):
        write_events(tmp_path, number, EVENTS.slice(5999))
        assert again.after(number) == number + 1
        again.forget(number)
    again.close()
    names = sorted(path.name for path in (tmp_path / "state").rglob("rows/*"))
    assert names == ["000000003", "000000004", "000000005", "000000006"], "old ones are removed"


def test_what_is_wrong_is_said(options: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(JobError, match="needs a job and a query"):
        result_schema({"job": options["job"]})
    with pytest.raises(QueryError, match="did you mean 'speed'"):
        result_schema({"job": options["job"], "query": "sped"})
    held = JobResults(options)
    assert held.after(0) == 1
    with pytest.raises(StateError, match="another process works in this folder"):
        JobResults(options)
    held.close()
    job_file(tmp_path, "tumbling(3s)")
    with pytest.raises(StateError, match="another query of this name"):
        JobResults(options).after(1)
    with pytest.raises(StateError, match="results of a step are missing"):
        list(results_of_step(options, 99))


def test_what_is_late_or_bad_is_told(
    options: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    results = JobResults(options)
    assert [results.after(step) for step in range(3)] == [1, 2, 3]
    assert not caplog.text
    write_events(tmp_path, 3, EVENTS.slice(0, 7))
    assert results.after(3) == 4
    assert "query speed: 7 late and 0 bad rows are left out, in all 7 and 0" in caplog.text
    results.close()


@pytest.mark.spark
def test_as_a_source_of_spark(spark: Any, options: dict[str, str], tmp_path: Path) -> None:
    """Spark finds the format by the name of its package."""

    def drain() -> None:
        frame = spark.readStream.format("catchment").options(**options).load()
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "spark"))
        writer.trigger(availableNow=True).start().awaitTermination()

    drain()
    write_events(tmp_path, 3, Generator(seed=9, keys=5, rate=500).table(100))
    drain()
    wanted = complete(EVENTS)
    assert_same(rows_of(wanted), pq.read_table(tmp_path / "out"), keys=["player"])
