"""Results as DataFrames: lazy, typed, one pass for all of them, and the same rows as everywhere."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import TimestampType

import catchment as ct
from catchment.errors import JobError, QueryError, SchemaError, SourceError
from catchment.generator import Generator
from catchment.spark import batch
from catchment.spark.types import for_spark, spark_schema
from catchment.testing import strategies
from catchment.testing.compare import assert_same, rows_of
from catchment.testing.oracle import oracle

pytestmark = pytest.mark.spark

EXAMPLES = max(3, settings.default.max_examples // 25)
EVENTS = Generator(seed=3, keys=7, rate=500, markers=0.01).table(10_000)
QUERIES = [
    ct.Query("speed", ct.count(), ct.max("v"), by="player", window=ct.sliding("10s", "5s")),
    ct.Query("medians", ct.median("v"), by="player", where="v > 1", window=ct.tumbling("7s")),
    ct.Query("bursts", ct.count(), by="player", window=ct.session("20ms")),
    ct.Query("hundred", ct.last("seq"), ct.min("x"), window=ct.count_tumbling(100)),
    ct.Query("plays", ct.count(), window=ct.cut("event = 'start'")),
    ct.Query("never", ct.sum("v"), window=ct.tumbling("1s"), where="v < -1e9"),
]


def check(frames: Any, queries: list[ct.Query], events: pa.Table, **options: Any) -> None:
    """Every frame has the rows and types of what is computed without Spark."""
    wanted = ct.run(events, queries, spark=False, **options)
    assert list(frames) == [query.name for query in queries]
    for query in queries:
        table, frame = wanted[query.name], frames[query.name]
        keys = table.schema.names[: table.schema.get_field_index("window_start")]
        assert frame.schema == spark_schema(table.schema), query.name
        assert_same(rows_of(table), frame.toArrow(), query.name, keys=keys)


def as_parquet(folder: Path) -> str:
    for number in range(4):
        part = EVENTS.slice(number * 2500, 2500)
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=1000)
    return str(folder)


def watched(frame: DataFrame, folder: Path) -> DataFrame:
    """The same rows; each time that a task reads some, a file appears in the folder."""
    place = str(folder)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in batches:
            Path(place, uuid.uuid4().hex).write_text(str(len(some)))
            yield some

    return frame.mapInArrow(read, frame.schema)


def rows_read(folder: Path) -> int:
    return sum(int(path.read_text()) for path in folder.iterdir())


@contextmanager
def configured(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """A user's session with a setting of its own."""
    before = spark.conf.get(name, None)
    try:
        spark.conf.set(name, value)
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


# -- the same rows --------------------------------------------------------------------------------


@pytest.mark.connect
def test_frames_of_a_path(spark: SparkSession, tmp_path: Path) -> None:
    check(ct.windows(as_parquet(tmp_path), QUERIES, spark=spark), QUERIES, EVENTS)


@pytest.mark.connect
def test_frames_of_a_table_and_open_windows(spark: SparkSession) -> None:
    before = set(batch._FOLDERS)
    frames = ct.windows(EVENTS, QUERIES, spark=spark, incomplete="emit")
    check(frames, QUERIES, EVENTS, incomplete="emit")
    assert frames["hundred"].where("NOT complete").count() == 0  # 10,000 are full hundreds
    assert frames["plays"].where("NOT complete").count() == 1
    frames.unpersist()
    assert before == batch._FOLDERS


@pytest.mark.connect
def test_frames_of_a_frame(spark: SparkSession) -> None:
    frame = spark.createDataFrame(EVENTS).coalesce(1)
    check(ct.windows(frame, QUERIES), QUERIES, EVENTS)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[ct.Query], list[dict[str, Any]]]:
    unit = draw(st.sampled_from(strategies.UNITS[1:]))
    base = draw(st.sampled_from(strategies.BASES))
    return draw(strategies.queries(unit, base, 6)), draw(strategies.events(unit, base, 40))


@given(cases())
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def test_frames_give_what_the_oracle_gives(spark: SparkSession, case: Any) -> None:
    queries, rows = case
    frames = ct.windows(strategies.to_table(rows), queries, spark=spark, buckets=3)
    for name, wanted in oracle(queries, rows).items():
        assert_same(wanted, frames[name].toArrow(), name)
    frames.unpersist()


@pytest.mark.connect
def test_one_query_in_a_chain(spark: SparkSession) -> None:
    frame = spark.createDataFrame(EVENTS).where("v > 2")
    found = frame.transform(ct.window(QUERIES[0], time="ts")).where("player IS NOT NULL")
    few = EVENTS.filter(pc.greater(EVENTS["v"], 2.0))
    assert_same(rows_of(ct.run(few, QUERIES[0], spark=False)["speed"]), found.toArrow())


@pytest.mark.connect
def test_count_windows_of_a_cluster(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples say where their edges are, on the executors too: nothing runs before an action."""
    monkeypatch.setattr(batch, "is_local", lambda _: False)
    query = ct.Query("many", ct.sum("seq"), ct.count(), window=ct.count_sliding(6000, 2500))
    frame = watched(spark.createDataFrame(EVENTS).repartition(3), tmp_path)
    frames = ct.windows(frame, query)
    assert rows_read(tmp_path) == 0
    check(frames, [query], EVENTS)
    assert rows_read(tmp_path) == EVENTS.num_rows, "what tasks read is kept while edges are found"
    frames.unpersist()


# -- one lazy pass --------------------------------------------------------------------------------


def test_one_pass_for_all_frames_and_none_before_an_action(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = watched(spark.createDataFrame(EVENTS).repartition(2), tmp_path)
    some = [query for query in QUERIES if query.name != "speed"][:2] + QUERIES[:1]
    frames = ct.windows(frame, some)
    used = [frames[name].where("window_start IS NOT NULL") for name in frames]
    assert rows_read(tmp_path) == 0
    counts = [one.count() for one in used]
    assert rows_read(tmp_path) == EVENTS.num_rows
    assert [frames[name].count() for name in frames] == counts
    assert used[0].unionByName(frames["bursts"], allowMissingColumns=True).count() > counts[0]
    assert rows_read(tmp_path) == EVENTS.num_rows
    frames.unpersist()
    assert ct.windows(frame, some)["speed"].count() == counts[2]
    assert rows_read(tmp_path) == 2 * EVENTS.num_rows


def test_one_query_is_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    frame = watched(spark.createDataFrame(EVENTS), tmp_path)
    speed = ct.windows(frame, QUERIES[0])["speed"]
    assert speed.count() == speed.count()
    assert rows_read(tmp_path) == 2 * EVENTS.num_rows


def test_a_frame_is_written_by_the_executors(spark: SparkSession, tmp_path: Path) -> None:
    frames = ct.windows(as_parquet(tmp_path), QUERIES[:2], spark=spark)
    frames["speed"].write.parquet(str(tmp_path / "out"))
    wanted = ct.run(EVENTS, QUERIES[:2], spark=False)["speed"]
    assert_same(rows_of(wanted), pq.read_table(tmp_path / "out"))


# -- ct.run is built on it ------------------------------------------------------------------------


def test_many_results_stay_on_the_executors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no room for results beside the counts: they are collected, or read, when asked for."""
    monkeypatch.setattr(batch, "_WITH_COUNTS", 0)
    kept: list[DataFrame] = []
    real = type(spark.range(1))
    persist = real.persist

    def noting(frame: DataFrame, *level: Any) -> DataFrame:
        kept.append(frame)
        return persist(frame, *level)

    monkeypatch.setattr(real, "persist", noting)
    frame = watched(spark.createDataFrame(EVENTS).coalesce(1), tmp_path)
    queries = QUERIES[1:5]  # all sliced in Python, so that the frame is read once
    results = ct.run(frame, queries, spark=spark)
    wanted = ct.run(EVENTS, queries, spark=False)
    assert results.rows() == wanted.rows() > 0
    assert results.counts == wanted.counts
    for name, table in wanted.items():
        assert results[name].schema == table.schema
        assert_same(rows_of(table), results[name], name, keys=table.schema.names[:1])
    assert rows_read(tmp_path) == EVENTS.num_rows
    assert len(kept) == 1 and kept[0].storageLevel.useDisk
    del results
    gc.collect()
    assert not kept[0].storageLevel.useDisk, "nobody can ask for these results any more"
    again = ct.run(frame, queries, spark=spark)
    bursts = again.frame("bursts")
    del again
    gc.collect()
    assert kept[1].storageLevel.useDisk, "a frame may still be used"
    assert_same(rows_of(wanted["bursts"]), bursts.toArrow())
    assert rows_read(tmp_path) == 2 * EVENTS.num_rows
    kept[1].unpersist()


@pytest.mark.connect
def test_few_results_are_a_frame_too(spark: SparkSession) -> None:
    results = ct.run(EVENTS, QUERIES, spark=spark)
    wanted = ct.run(EVENTS, QUERIES, spark=False)
    for name in ("speed", "plays", "never"):
        assert results.frame(name).schema == spark_schema(wanted[name].schema)
        assert results.frame(name).count() == wanted[name].num_rows
    results.unpersist()
    with pytest.raises(QueryError, match="did you mean 'speed'"):
        results.frame("sped")


@pytest.mark.connect
def test_an_order_and_a_limit_hold_for_all_keys(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = ct.sql(
        "SELECT player, max(v) AS most FROM events GROUP BY player, window(ts, '5 seconds') "
        "ORDER BY most DESC LIMIT 2",
        "top",
    )
    queries = [QUERIES[0], top]
    check(ct.windows(EVENTS, queries, spark=spark, buckets=3), queries, EVENTS)
    wanted = ct.run(EVENTS, queries, spark=False)
    for room in (batch._WITH_COUNTS, 0):
        monkeypatch.setattr(batch, "_WITH_COUNTS", room)
        results = ct.run(EVENTS, queries, spark=spark, buckets=3)
        assert results["top"].equals(wanted["top"]), "in the order that the query asked for"
        assert results.rows() == wanted.rows()


# -- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("local", [True, False])
def test_types_that_spark_has_not(
    spark: SparkSession, local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "is_local", lambda _: local)
    big = 2**64 - 1
    events = pa.table(
        {
            "ts": pa.array([0, 1, 2], pa.timestamp("ms", "UTC")),
            "small": pa.array([255, 0, 1], pa.uint8()),
            "large": pa.array([big, 0, 1], pa.uint64()),
            "text": pa.array(["a", "b", "a"]).dictionary_encode(),
        }
    )
    by = ["small", "large", "text"]
    query = ct.Query("q", ct.max("large").alias("most"), by=by, window=ct.tumbling("1s"))
    frame = ct.windows(events, query, spark=spark)["q"]
    assert [field.dataType.simpleString() for field in frame.schema] == [
        "smallint",
        "decimal(20,0)",
        "string",
        "timestamp",
        "timestamp",
        "decimal(20,0)",
    ]
    rows = frame.orderBy("large").collect()
    assert len(rows) == 3
    assert (rows[-1]["small"], int(rows[-1]["most"])) == (255, big)
    results = ct.run(events, query, spark=spark)
    kind = pa.uint64() if local else pa.decimal128(20, 0)
    assert results["q"].schema.field("most").type == kind
    assert results.frame("q").schema == frame.schema


def test_nested_types_are_spelled_as_spark_has_them() -> None:
    schema = pa.schema([("a", pa.list_(pa.struct([("x", pa.uint16()), ("t", pa.time32("s"))])))])
    made = for_spark(schema).field("a").type
    assert made == pa.list_(pa.struct([("x", pa.int32()), ("t", pa.time64("ns"))]))
    with pytest.raises(SchemaError, match="of a type that Spark has not"):
        spark_schema(pa.schema([("x", pa.month_day_nano_interval())]))


def test_columns_that_no_query_needs(spark: SparkSession) -> None:
    frame = spark.createDataFrame(EVENTS).selectExpr(
        "*",
        "named_struct('a', 1, 'b', 'x') AS s",
        "map('k', v) AS m",
        "array(map(1, 2)) AS l",
        "make_interval(1) AS odd",
    )
    check(ct.windows(frame.coalesce(1), QUERIES[:3]), QUERIES[:3], EVENTS)


def test_names_that_differ_by_case(spark: SparkSession) -> None:
    queries = [
        ct.Query("speed", ct.max("v").alias("PLAYER"), by="player", window=ct.tumbling("10s")),
        ct.Query("Speed", ct.min("v"), by="player", window=ct.tumbling("10s")),
    ]
    frames = ct.windows(EVENTS, queries, spark=spark)
    check(frames, queries, EVENTS)
    assert "SPEED" not in frames
    with pytest.raises(QueryError, match="no such query"):
        frames["SPEED"]


def test_names_that_sql_would_not_take_as_they_are(spark: SparkSession) -> None:
    names = ["a`b", "with space", "dotted.name", "max(`v`) -- no comment"]
    queries = [
        ct.Query(f"q{n}", ct.max("v").alias(name), by="player", window=ct.tumbling("10s"))
        for n, name in enumerate(names)
    ]
    frames = ct.windows(EVENTS, queries, spark=spark)
    check(frames, queries, EVENTS)
    assert set(names) < set(frames.union().columns)


# -- a user's own session -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.session.timeZone", "America/New_York"),
        ("spark.sql.ansi.enabled", "false"),
        ("spark.sql.execution.arrow.pyspark.enabled", "false"),
        ("spark.sql.caseSensitive", "true"),
        ("spark.sql.adaptive.enabled", "false"),
        ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
    ],
)
def test_any_session_will_do(spark: SparkSession, name: str, value: str) -> None:
    frame = spark.createDataFrame(EVENTS).coalesce(1)
    queries = QUERIES[:4]
    with configured(spark, name, value):
        before = dict(spark.conf.getAll)
        frames = ct.windows(frame, queries)
        assert isinstance(frames["speed"].schema["window_start"].dataType, TimestampType)
        check(frames, queries, EVENTS)
        first = frames["speed"].selectExpr("min(unix_micros(window_start))").first()
        starts = ct.run(EVENTS, queries, spark=False)["speed"]["window_start"]
        assert first is not None
        assert first[0] == pc.min(starts.cast(pa.int64())).as_py()
        frames.unpersist()
        assert dict(spark.conf.getAll) == before, "the session is left as it was"


# -- bad input ------------------------------------------------------------------------------------


def test_what_is_wrong_is_said_before_anything_is_computed(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = watched(spark.createDataFrame(EVENTS), tmp_path)
    query = QUERIES[0]
    with pytest.raises(SchemaError, match="no such time column"):
        ct.windows(frame, query, time="when")
    with pytest.raises(SchemaError, match="no such time column"):
        frame.transform(ct.window(query, time="when"))
    with pytest.raises(SchemaError, match="did you mean 'player'"):
        ct.windows(frame, ct.Query("q", ct.count(), by="playr", window=ct.tumbling("1s")))
    with pytest.raises(QueryError, match="did you mean 'speed'"):
        ct.windows(frame, query)["sped"]
    with pytest.raises(QueryError, match="speed"):
        ct.windows(frame, [query, query])
    with pytest.raises(SourceError, match="no events"):
        ct.windows(42, query, spark=spark)
    with pytest.raises(JobError, match="made by Spark"):
        ct.windows(frame, query, spark=False)
    with pytest.raises(SourceError, match="nowhere"):
        ct.windows(tmp_path / "nowhere.parquet", query, spark=spark)
    with pytest.raises(JobError, match="are one batch, and no stream"):
        ct.windows(frame, query).foreachBatch(lambda frames, batch: None)
    assert rows_read(tmp_path) == 0


def test_rows_that_cannot_be_read_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    folder = as_parquet(tmp_path)
    frames = ct.windows(folder, QUERIES[:2], spark=spark)
    (tmp_path / "1.parquet").write_bytes(b"no parquet any more")
    assert frames["speed"].count() > 0
    counts = frames.counts()
    assert (counts["accepted"], counts["bad"]) == (7500, 1)
    frames.unpersist()


def test_a_task_that_fails_says_why(spark: SparkSession) -> None:
    query = ct.Query("q", ct.sum("v"), by="player", window=ct.session("1ms"))
    frame = ct.windows(EVENTS, query, spark=spark, key_bytes=1)["q"]
    with pytest.raises(PySparkException, match="raise key_bytes"):
        frame.count()


# -- all queries in one DataFrame -----------------------------------------------------------------


@pytest.mark.connect
def test_all_queries_in_one_frame(spark: SparkSession, tmp_path: Path) -> None:
    """By name of query and column; a name may be in another place of the rows in each query."""
    a, b, c = ct.max("v").alias("a"), ct.min("x").alias("b"), ct.sum("v").alias("c")
    queries = [
        *QUERIES,
        ct.Query("turned", a, b, window=ct.tumbling("9s")),
        ct.Query("again", b, a, window=ct.tumbling("8s")),
        ct.Query("others", b, c, window=ct.tumbling("8s")),
    ]
    frames = ct.windows(EVENTS, queries, spark=spark)
    whole = frames.union()
    names = dict.fromkeys(name for query in queries for name in frames[query.name].columns)
    assert whole.columns == ["query", *names]
    whole.write.partitionBy("query").parquet(str(tmp_path / "all"))
    wanted = ct.run(EVENTS, queries, spark=False)
    folders = {path.name for path in (tmp_path / "all").iterdir() if path.is_dir()}
    assert folders == {f"query={name}" for name in wanted if wanted[name].num_rows}
    for name, table in wanted.items():
        mine = whole.where(whole["query"] == name).toArrow()
        keys = table.schema.names[: table.schema.get_field_index("window_start")]
        assert_same(rows_of(table), mine.select(table.schema.names), name, keys=keys)
        for other in set(names) - set(table.schema.names):
            assert mine[other].null_count == mine.num_rows, (name, other)
    frames.unpersist()


def test_columns_of_one_name_and_two_types(spark: SparkSession) -> None:
    n = ct.Query("n", ct.count().alias("found"), window=ct.tumbling("10s"))
    v = ct.Query("v", ct.max("v").alias("found"), window=ct.tumbling("10s"))
    with pytest.raises(SchemaError, match=r"one column 'found' only.*int64 in 'n'.*alias"):
        ct.windows(EVENTS, [n, v], spark=spark).union()
    own = ct.Query("q", ct.count().alias("query"), window=ct.tumbling("10s"))
    with pytest.raises(SchemaError, match="one column 'query' only"):
        ct.windows(EVENTS, own, spark=spark).union()
