"""Streaming on a real Spark: files that come, queries that change, restarts, what goes wrong."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import catchment as ct
from catchment.errors import CatchmentError, JobError, SchemaError, SinkError, StateError
from catchment.generator import Generator
from catchment.sinks.memory import Memory
from catchment.sinks.parquet import ParquetSink
from catchment.sinks.spark_format import SparkFormat
from catchment.sources.parquet_file import Parquet
from catchment.spark.batch_commit import refuse_in_server
from catchment.spark.batch_job import run_bounded
from catchment.spark.format_sink import write_frame
from catchment.spark.handle import Handle
from catchment.spark.planning import Progress
from catchment.testing.compare import assert_same, rows_of
from numbered_files import write_numbered
from patience import wait_for

pytestmark = pytest.mark.spark

EVENTS = Generator(seed=5, keys=5, rate=100, markers=0.01).table(6_000)
"""A minute of events."""
QUERIES = [
    ct.Query("five", ct.count(), ct.max("v"), by="player", window=ct.tumbling("5s")),
    ct.Query("bursts", ct.count(), by="player", window=ct.session("100ms")),
    ct.Query("all", ct.median("v"), window=ct.sliding("8s", "2s")),
]


def write(folder: Path, number: int, start: int, stop: int, events: pa.Table = EVENTS) -> None:
    write_numbered(folder, number, events.slice(start, stop - start))


def job(tmp: Path, **options: Any) -> ct.Job:
    given = {
        "name": "files",
        "queries": QUERIES,
        "trigger": "available-now",
        "buckets": 2,
        "source": Parquet(path=str(tmp / "in")),
        "checkpoint": str(tmp / "state"),
        "sinks": [ParquetSink(path=str(tmp / "out"))],
    }
    return ct.Job(**(given | options))


def complete(frontier: int, queries: list[ct.Query] = QUERIES) -> ct.Results:
    engine = ct.Engine(queries)
    engine.push(EVENTS)
    return engine.advance(frontier)


def newest(events: pa.Table) -> int:
    return int(max(events.column("ts").cast(pa.int64()).to_pylist()))


def same(tmp: Path, frontier: int, queries: list[ct.Query] = QUERIES) -> None:
    """The sink holds all windows complete at a frontier, each once."""
    truth = complete(frontier, queries)
    for query in queries:
        rows = ParquetSink(path=str(tmp / "out")).read(query.name)
        assert_same(rows_of(truth[query.name]), rows, query.name)


def test_files_come_and_the_job_restarts(spark: SparkSession, tmp_path: Path) -> None:
    bounds = [0, 1000, 2500, 2600, 6000]
    for number, (start, stop) in enumerate(pairwise(bounds)):
        write(tmp_path / "in", number, start, stop)
        status = job(tmp_path).start(spark).wait()
        assert (status.batch, status.events) == (number, stop)
        assert status.accepted + status.late + status.bad + status.duplicates == stop
    same(tmp_path, newest(EVENTS))
    again = job(tmp_path).start(spark).wait()
    assert again.state == "stopped"
    same(tmp_path, newest(EVENTS))


def test_a_streaming_frame(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "in", number, number * 2000, (number + 1) * 2000)
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    frame = reader.parquet(str(tmp_path / "in"))
    handle = job(tmp_path, source=None).start(spark, events=frame)
    status = handle.wait()
    assert status.events == EVENTS.num_rows
    same(tmp_path, newest(EVENTS))


def test_what_commits_batches_is_plain_data(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Spark Connect it travels to a process of the server: no handle, no lock is in it."""
    given: list[Any] = []
    foreach = DataStreamWriter.foreachBatch

    def kept(writer: Any, function: Any) -> Any:
        given.append(function)
        return foreach(writer, function)

    monkeypatch.setattr(DataStreamWriter, "foreachBatch", kept)
    write(tmp_path / "in", 0, 0, 2000)
    handle = job(tmp_path, sinks=[]).start(spark)
    handle.wait()
    assert handle.results["five"].num_rows  # it was committed through the handle all the same
    assert pickle.loads(pickle.dumps(given[0])) == given[0]


def test_a_frame_whose_column_has_another_type(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, 0, 2000)
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    frame = spark.readStream.schema(schema).parquet(str(tmp_path / "in"))
    job(tmp_path, source=None).start(spark, events=frame).wait()
    other = frame.withColumn("player", frame["player"].cast("binary"))
    with pytest.raises(StateError, match="column 'player' of the events has another type"):
        job(tmp_path, source=None).start(spark, events=other)
    with pytest.raises(SchemaError, match="player"):
        job(tmp_path, source=None).start(spark, events=frame.drop("player"))
    unused = frame.withColumn("x", frame["x"].cast("string"))  # which no query needs
    job(tmp_path, source=None).start(spark, events=unused).wait()


def test_queries_change_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, 0, 2000)
    handle = job(tmp_path, trigger="continuous").start(spark)
    with handle:
        until(handle, lambda: handle.status.events == 2000)
        handle.add_query(
            ct.Query("new", ct.count(), ct.max("v"), by="player", window=ct.tumbling("10s"))
        )
        handle.remove_query("bursts")
        with pytest.raises(CatchmentError, match="two queries"):
            handle.add_query(QUERIES[0])
        with pytest.raises(CatchmentError, match="no such column"):
            handle.add_query(ct.Query("bad", ct.sum("w"), window=ct.tumbling("1s")))
        for named in ("FROM files GROUP BY window(v, '1s')", "FROM fils GROUP BY count_window(3)"):
            with pytest.raises(ct.QueryError, match=r"names the column 'v'|did you mean 'files'"):
                handle.add_query(ct.sql(f"SELECT count(*) {named}", "bad"))
        (tmp_path / "state/catchment/queries/broken.yaml").write_text("name: [")
        until(handle, lambda: "broken.yaml" in handle.status.rejected)
        write(tmp_path / "in", 1, 2000, 6000)
        until(handle, lambda: handle.status.events == 6000)
        assert sorted(handle.queries()) == ["all", "five", "new"]
    same(tmp_path, newest(EVENTS), [QUERIES[0], QUERIES[2]])
    new = ParquetSink(path=str(tmp_path / "out")).read("new")
    # Five-second slices were kept and serve: the window that was open at the change is answered.
    truth = complete(newest(EVENTS), [handle.queries()["new"]])["new"]
    got = {(row["player"], row["window_start"]): row for row in rows_of(new)}
    for row in rows_of(truth):
        key = (row["player"], row["window_start"])
        if key in got:
            assert got[key] == row
    begun = int(EVENTS.column("ts")[2000].as_py().timestamp())
    assert any(start <= begun * 1_000_000 < start + 10_000_000 for _, start in got)
    restarted = job(tmp_path).start(spark)
    assert sorted(restarted.queries()) == ["all", "five", "new"]
    restarted.wait()


def until(handle: Handle, met: Callable[[], bool]) -> None:
    def met_while_it_runs() -> bool:
        assert handle.status.state in ("starting", "running"), handle.status
        return met()

    wait_for(met_while_it_runs, 0.1, lambda: handle.status)


def test_late_bad_and_far_ahead(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, 1000, 3000)
    options = {"late": "collect", "max_ahead": "1h", "sinks": [Memory()]}
    job(tmp_path, **options).start(spark).wait()
    late = EVENTS.slice(0, 700)
    times = late.column("ts").to_pylist()
    times[0], times[1] = None, times[1].replace(year=2400)
    odd = late.set_column(0, "ts", pa.array(times, pa.timestamp("us", "UTC")))
    write(tmp_path / "in", 1, 0, 700, odd)
    status = job(tmp_path, **options).start(spark).wait()
    assert (status.late, status.bad, status.accepted) == (698, 2, 2000)
    aside = tmp_path / "state/catchment/aside"
    assert pq.read_table(aside / "late").num_rows == 698
    kept = pq.read_table(aside / "late").column("seq").to_pylist()
    assert sorted(kept) == late.column("seq").to_pylist()[2:]
    assert pq.read_table(aside / "bad").num_rows == 2


def test_a_half_written_file_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, 0, 2000)
    write(tmp_path / "in", 1, 2000, 6000)
    path = tmp_path / "in/1.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    status = job(tmp_path).start(spark).wait()
    assert status.events == 2000
    path.write_bytes(whole)
    assert job(tmp_path).start(spark).wait().events == 6000
    same(tmp_path, newest(EVENTS))


def test_a_sink_that_refuses(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, 0, 6000)
    (tmp_path / "out").write_text("a file where a folder should be")
    with pytest.raises(CatchmentError):
        job(tmp_path).start(spark).wait()
    (tmp_path / "out").unlink()
    started = job(tmp_path).start(spark)
    assert started.wait().events == 6000
    same(tmp_path, newest(EVENTS))


def test_a_checkpoint_of_another_job(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0, 0, 2000)
    job(tmp_path).start(spark).wait()
    with pytest.raises(StateError, match="another name"):
        job(tmp_path, name="other").start(spark)
    note = tmp_path / "state/catchment/job.json"
    held = json.loads(note.read_text())
    note.write_text(json.dumps(held | {"format": 99}))
    with pytest.raises(StateError, match="newer version"):
        job(tmp_path).start(spark)


def test_a_job_without_a_source(spark: SparkSession) -> None:
    with pytest.raises(JobError, match="no source"):
        ct.Job(queries=QUERIES).start(spark)
    with pytest.raises(JobError, match="did you mean"):
        ct.Job(queries=QUERIES, souce=None)


def test_buckets_have_partitions_of_their_own(spark: SparkSession) -> None:
    from catchment.spark.bucket_keys import labels, place

    chosen = labels(7)
    frame = spark.createDataFrame([(key,) for key in chosen], "key int")
    rows = frame.selectExpr("key", "pmod(hash(key), 7) AS place").collect()
    assert [row["place"] for row in rows] == [place(key, 7) for key in chosen] == list(range(7))


@pytest.mark.connect
def test_a_job_leaves_the_session_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """And on Spark Connect, where batches are committed in a process of the server."""
    write(tmp_path / "in", 0, 0, 3_000)
    before = dict(spark.conf.getAll)
    first = job(tmp_path).start(spark).wait()
    assert dict(spark.conf.getAll) == before
    assert (first.events, first.accepted, first.batch) == (3_000, 3_000, first.batch)
    write(tmp_path / "in", 1, 3_000, 6_000)
    handle = job(tmp_path).start(spark)
    assert handle.wait().events == 6_000
    newest = max(EVENTS["ts"].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist())
    for name, table in complete(newest).items():
        keys = table.schema.names[: table.schema.get_field_index("window_start")]
        found = pq.read_table(tmp_path / "out" / name, partitioning=None)
        assert_same(rows_of(table), found, name, keys=keys)


def test_what_cannot_be_on_spark_connect() -> None:
    with pytest.raises(JobError, match="the memory of the server"):
        refuse_in_server((Memory(),))
    refuse_in_server((ParquetSink(path="out"),))


def test_results_in_a_format_of_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that was written, but not committed, is written again and is there once."""
    sink = SparkFormat(format="orc", path=str(tmp_path / "orc"))
    options = {"sinks": [sink], "source": Parquet(path=str(tmp_path / "in"), max_files_per_batch=1)}
    for number in range(2):
        write(tmp_path / "in", number, 3_000 * number, 3_000 * (number + 1))
    save, tried = Progress.save, list[int]()

    def failing(progress: Progress, spec: Any) -> None:
        tried.append(progress.batch)
        if tried.count(1) == 1 and progress.batch == 1:
            raise OSError("the disk is gone")
        save(progress, spec)

    monkeypatch.setattr(Progress, "save", failing)
    with pytest.raises(CatchmentError, match="the disk is gone"):
        job(tmp_path, **options).start(spark).wait()
    job(tmp_path, **options).start(spark).wait()
    assert tried.count(1) == 2
    newest = max(EVENTS["ts"].cast(pa.timestamp("us")).cast(pa.int64()).to_pylist())
    for name, table in complete(newest).items():
        keys = table.schema.names[: table.schema.get_field_index("window_start")]
        found = spark.read.orc(str(tmp_path / "orc" / name)).drop("batch").toArrow()
        assert_same(rows_of(table), found, name, keys=keys)


def test_two_jobs_do_not_replace_each_others_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Nor does one that begins anew, without its checkpoint."""
    folder = tmp_path / "out" / "q"
    sink = SparkFormat(format="orc", path=str(folder.parent))
    for batch in range(2):
        write_frame(sink, spark.range(3), "q", "one", batch)
    before = sorted(spark.read.orc(str(folder)).collect())
    assert len(before) == 6
    told = f"the folder holds results of another job (given: {folder}: one)"
    with pytest.raises(SinkError, match=re.escape(told)):
        write_frame(sink, spark.range(4), "q", "two", 0)
    assert sorted(spark.read.orc(str(folder)).collect()) == before
    # By another name the folder is one that the process does not know yet, as after a restart.
    again = SparkFormat(format="orc", path=f"file:{folder.parent}")
    write_frame(again, spark.range(2), "q", "one", 1)
    assert spark.read.orc(str(folder)).count() == 5


class Written:
    """Stands for a frame and its writer: notes what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "write":
            return self

        def note(*given: Any, **options: Any) -> Written:
            self.told[name] = options or given
            return self

        return note


def test_delta_is_told_the_job_and_the_batch() -> None:
    frame: Any = Written()
    write_frame(SparkFormat(format="delta", path="out/{query}"), frame, "five", "job-x", 7)
    assert frame.told["options"] == {"txnAppId": "job-x five", "txnVersion": "7"}
    assert (frame.told["mode"], frame.told["save"]) == (("append",), ("out/five",))
    table: Any = Written()
    sink = SparkFormat(format="iceberg", table="lake.{query}", options={"a": "b"})
    write_frame(sink, table, "five", "job-x", 7)
    assert table.told["options"] == {"a": "b"} and table.told["saveAsTable"] == ("lake.five",)


def test_a_format_of_spark_needs_a_place_and_a_stream(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="a path or to a table"):
        SparkFormat(format="orc").check()
    with pytest.raises(SinkError, match=r"as in results_\{query\}"):
        SparkFormat(format="orc", table="results").check()
    made = job(tmp_path, sinks=[SparkFormat(format="orc", path="out")], trigger="batch")
    with pytest.raises(JobError, match="available-now"):
        run_bounded(made, None, lambda *_: None)  # type: ignore[arg-type]
