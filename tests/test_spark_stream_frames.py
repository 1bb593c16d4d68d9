"""Results of a streaming DataFrame as streaming DataFrames: final, each once, and the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import catchment as ct
from catchment.errors import JobError, QueryError, SchemaError, SourceError, StateError
from catchment.generator import Generator
from catchment.spark.stream_frames import StreamingFrames
from catchment.spark.window_stream import checked
from catchment.testing.compare import assert_same, rows_of
from numbered_files import write_numbered

pytestmark = pytest.mark.spark

HOUR = 3_600_000_000
EVENTS = Generator(seed=5, keys=7, rate=500, markers=0.01).table(8_000)
QUERIES = [
    ct.Query("speed", ct.count(), ct.max("v"), by="player", window=ct.sliding("3s", "1s")),
    ct.Query("medians", ct.median("v"), by="player", where="v > 1", window=ct.tumbling("2s")),
    ct.Query("bursts", ct.count(), by="player", window=ct.session("20ms")),
    ct.Query("hundred", ct.last("seq"), ct.min("x"), window=ct.count_tumbling(100)),
    ct.Query("plays", ct.count(), window=ct.cut("event = 'start'")),
    ct.Query("once", ct.count(), window=ct.tumbling("2s"), distinct_on=["player", "event"]),
]


def later(by: int) -> pa.Table:
    """One event, so much later than all others: everything before is complete."""
    row = EVENTS.slice(EVENTS.num_rows - 1)
    moment = pc.max(EVENTS["ts"]).cast(pa.int64()).as_py() + by
    moved = pa.array([moment]).cast(EVENTS.schema.field("ts").type)
    row = row.set_column(row.schema.get_field_index("ts"), EVENTS.schema.field("ts"), moved)
    return row.set_column(row.schema.get_field_index("event"), "event", pa.array(["end"]))


def write(folder: Path, number: int, table: pa.Table) -> None:
    write_numbered(folder, number, table.cast(_plain(table.schema)))


def _plain(schema: pa.Schema) -> pa.Schema:
    kinds = [pa.timestamp("us", "UTC") if pa.types.is_timestamp(f.type) else f.type for f in schema]
    return pa.schema(list(zip(schema.names, kinds, strict=True)))


def stream_of(spark: SparkSession, folder: Path) -> DataFrame:
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "events"
    for number in range(3):
        write(place, number, EVENTS.slice(number * 2000, 2000))
    return place


def drained(frame: DataFrame, home: Path) -> StreamingQuery:
    """Writes what there is to a folder beside its checkpoint."""
    writer = frame.writeStream.format("parquet").option("path", str(home / "rows"))
    query = writer.option("checkpointLocation", str(home / "state")).trigger(availableNow=True)
    started = query.start()
    started.awaitTermination()
    return started


@pytest.mark.connect
def test_a_frame_is_final_and_goes_on_where_it_stood(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    wanted = ct.run(EVENTS, QUERIES[0], spark=False)["speed"]
    stream = stream_of(spark, folder).withWatermark("ts", "1 second").where("seq >= 0")
    frame = stream.transform(ct.window(QUERIES[0], time="ts"))
    assert frame.isStreaming
    counts = ct.windows(stream, QUERIES[0]).counts(drained(frame, tmp_path))
    given = pq.read_table(tmp_path / "rows")
    assert (counts["events"], counts["accepted"], counts["late"]) == (6000, 6000, 0)
    assert 0 < given.num_rows == counts["rows"] < wanted.num_rows
    write(folder, 3, EVENTS.slice(6000))
    write(folder, 4, later(HOUR))
    drained(frame, tmp_path)
    assert_same(rows_of(wanted), pq.read_table(tmp_path / "rows"), keys=["player"])


@pytest.mark.connect
def test_one_pass_for_all_frames(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """With `foreachBatch`; the first try of a batch fails after some frames were written."""
    write(folder, 3, EVENTS.slice(6000))
    write(folder, 4, later(HOUR))
    frames = ct.windows(stream_of(spark, folder), QUERIES, lateness="1s")
    assert isinstance(frames, StreamingFrames) and list(frames) == [q.name for q in QUERIES]
    place = str(tmp_path)

    def save(batch_frames: Any, batch: int) -> None:
        for number, (name, frame) in enumerate(batch_frames.items()):
            frame.write.mode("overwrite").parquet(f"{place}/rows/{name}/batch={batch}")
            tried = Path(place, "tried")
            if (batch, number) == (2, 1) and not tried.exists():
                tried.touch()
                raise RuntimeError("the sink is gone")

    home = str(tmp_path / "state")
    writer = frames.foreachBatch(save).option("checkpointLocation", home)
    with pytest.raises(PySparkException, match="the sink is gone"):
        writer.trigger(availableNow=True).start().awaitTermination()
    again = writer.trigger(availableNow=True).start()
    again.awaitTermination()
    wanted = ct.run(EVENTS, QUERIES, spark=False)
    for name, table in wanted.items():
        keys = table.schema.names[: table.schema.get_field_index("window_start")]
        found = pq.read_table(tmp_path / "rows" / name, partitioning=None)
        assert_same(rows_of(table), found, name, keys=keys)
    assert frames.counts(again)["events"] == EVENTS.num_rows + 1 - 2 * 2000


def test_all_queries_in_one_stream(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """One streaming query, one pass, one checkpoint, and any sink; it goes on where it stood."""
    frames = ct.windows(stream_of(spark, folder), QUERIES, lateness="1s")
    first = drained(frames.union(), tmp_path)
    assert frames.counts(first)["events"] == 6000, "each event is read once"
    write(folder, 3, EVENTS.slice(6000))
    write(folder, 4, later(HOUR))
    drained(frames.union(), tmp_path)
    found = pq.read_table(tmp_path / "rows")
    for name, table in ct.run(EVENTS, QUERIES, spark=False).items():
        keys = table.schema.names[: table.schema.get_field_index("window_start")]
        mine = found.filter(pc.field("query") == name).select(table.schema.names)
        assert_same(rows_of(table), mine, name, keys=keys)


def test_frames_of_one_call_have_checkpoints_of_their_own(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    """Started beside each other with different checkpoints, each is whole; one checkpoint for two
    frames is refused."""
    write(folder, 3, EVENTS.slice(6000))
    write(folder, 4, later(HOUR))
    frames = ct.windows(stream_of(spark, folder), QUERIES[:2], lateness="1s")
    for query in QUERIES[:2]:
        drained(frames[query.name], tmp_path / query.name)
    for query in QUERIES[:2]:
        wanted = ct.run(EVENTS, query, spark=False)[query.name]
        found = pq.read_table(tmp_path / query.name / "rows")
        assert_same(rows_of(wanted), found, query.name, keys=["player"])
    write(folder, 5, later(2 * HOUR))
    with pytest.raises(PySparkException, match="the checkpoint is of other queries"):
        drained(frames[QUERIES[1].name], tmp_path / QUERIES[0].name)


def test_what_comes_too_late_is_left_out_and_counted(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    late = EVENTS.slice(0, 300)
    write(folder, 3, EVENTS.slice(6000))
    write(folder, 4, later(HOUR))
    write(folder, 5, pa.concat_tables([late, later(2 * HOUR)]))
    query = QUERIES[2]
    frames = ct.windows(stream_of(spark, folder), query, lateness="1s")
    counts = frames.counts(drained(frames["bursts"], tmp_path))
    assert (counts["events"], counts["late"]) == (EVENTS.num_rows + 302, 300)
    with_last = pa.concat_tables([EVENTS, later(HOUR)])
    wanted = ct.run(with_last, query, spark=False)["bursts"]
    assert_same(rows_of(wanted), pq.read_table(tmp_path / "rows"), keys=["player"])


def test_windows_by_the_clock(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    query = ct.Query("seen", ct.count(), window=ct.tumbling("1ms"), measure="processing")
    frame = ct.windows(stream_of(spark, folder), query)["seen"]
    drained(frame, tmp_path)
    found = pq.read_table(tmp_path / "rows")
    assert found["count(*)"].to_pylist() == [2000, 2000], "the window of the last batch is open"


# -- bad input ------------------------------------------------------------------------------------


def test_what_is_wrong_is_said_before_anything_starts(spark: SparkSession, folder: Path) -> None:
    stream, query = stream_of(spark, folder), QUERIES[0]
    with pytest.raises(SchemaError, match="no such time column"):
        ct.windows(stream, query, time="when")
    with pytest.raises(SchemaError, match="no such time column"):
        ct.windows(
            spark.readStream.format("rate").load(),
            ct.Query("n", ct.count(), window=ct.tumbling("1s")),
        )
    with pytest.raises(SchemaError, match="did you mean 'player'"):
        ct.windows(stream, ct.Query("q", ct.count(), by="playr", window=ct.tumbling("1s")))
    with pytest.raises(QueryError, match="did you mean 'speed'"):
        ct.windows(stream, query)["sped"]
    with pytest.raises(JobError, match="has no end"):
        ct.windows(stream, query, incomplete="emit")
    with pytest.raises(JobError, match=r"frames\.counts"):
        ct.windows(stream, query).counts()
    with pytest.raises(SourceError, match=r"has no end.*ct.windows\(frame, queries\)"):
        ct.run(stream, query, spark=spark)
    with pytest.raises(QueryError, match="must not be negative"):
        ct.windows(stream, query, lateness="-1s")
    name = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(name)
    assert before is not None
    try:
        spark.conf.set(name, before.replace("RocksDB", "HDFSBacked"))
        with pytest.raises(JobError, match="RocksDB"):
            ct.windows(stream, query)
    finally:
        spark.conf.set(name, before)


def test_too_many_tasks_are_told(
    spark: SparkSession, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream, name = stream_of(spark, folder), "spark.sql.shuffle.partitions"
    before = str(spark.conf.get(name))
    try:
        spark.conf.set(name, "200")
        ct.windows(stream, QUERIES[0])
    finally:
        spark.conf.set(name, before)
    assert "200 tasks on 2 cores" in caplog.text
    caplog.clear()
    ct.windows(stream, QUERIES[0])
    assert not caplog.text


def test_a_checkpoint_of_another_query_or_other_columns_is_refused(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    stream = stream_of(spark, folder)
    drained(ct.windows(stream, QUERIES[3])["hundred"], tmp_path)
    write(folder, 3, EVENTS.slice(6000))
    other = ct.Query("hundred", ct.last("seq"), ct.min("x"), window=ct.count_tumbling(50))
    with pytest.raises(PySparkException, match="the checkpoint is of other queries"):
        drained(ct.windows(stream, other)["hundred"], tmp_path)
    narrower = stream.withColumn("x", stream["x"].cast("float"))
    with pytest.raises(PySparkException, match="other columns"):
        drained(ct.windows(narrower, QUERIES[3])["hundred"], tmp_path)
    # What changes nothing that the query reads may change.
    write(folder, 4, later(HOUR))
    more = stream.where("seq >= 0").withColumn("more", stream["v"] + 1).drop("player")
    drained(ct.windows(more, QUERIES[3])["hundred"], tmp_path)
    wanted = ct.run(EVENTS, QUERIES[3], spark=False)["hundred"]
    assert_same(rows_of(wanted), pq.read_table(tmp_path / "rows"))


def test_what_a_checkpoint_was_made_for() -> None:
    checked("2 abc", None)
    checked("2 abc", "2 abc")
    with pytest.raises(StateError, match=r"say buckets=3"):
        checked("2 abc", "3 abc")
    with pytest.raises(StateError, match="other queries"):
        checked("2 abc", "2 def")


def test_columns_and_settings_that_no_query_needs(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    """Structs, maps, names that differ by case alone; another time zone, no ANSI, no Arrow."""
    write(folder, 3, EVENTS.slice(6000))
    write(folder, 4, later(HOUR))
    settings = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "false",
        "spark.sql.caseSensitive": "true",
    }
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        odd = stream_of(spark, folder).selectExpr(
            "*", "named_struct('a', 1) AS s", "map('k', v) AS m", "v + 1 AS V", "seq AS `a.b`"
        )
        query = ct.Query(
            "speed", ct.max("V"), ct.max("`a.b`").alias("n"), by="player", window=ct.tumbling("3s")
        )
        now = dict(spark.conf.getAll)
        drained(ct.windows(odd, query)["speed"], tmp_path)
        assert dict(spark.conf.getAll) == now, "the session is left as it was"
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
    table = EVENTS.append_column("V", pc.add(EVENTS["v"], 1)).append_column("a.b", EVENTS["seq"])
    wanted = ct.run(table, query, spark=False)["speed"]
    assert_same(rows_of(wanted), pq.read_table(tmp_path / "rows"), keys=["player"])
