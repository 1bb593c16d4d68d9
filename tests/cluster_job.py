"""What tests run on a real cluster, in a process of its own: Spark has one session in each.

python -m tests.cluster_job PART FOLDER
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import catchment as ct
from benchmarks.spark_cluster import cluster
from catchment.generator import Generator
from catchment.job import JobModel
from catchment.measure.ports import free_port
from catchment.model.query import Query
from catchment.nodes import spark_execution
from catchment.planner.edges import LATEST
from catchment.sinks.memory import Memory
from catchment.sinks.parquet import ParquetSink
from catchment.sources.generated import Generated
from catchment.sources.parquet_file import Parquet
from catchment.testing.compare import assert_same, rows_of
from numbered_files import write_numbered
from patience import wait_for
from runtimes import running

EVENTS = Generator(seed=9, keys=6, rate=200).table(12_000)
QUERIES = [
    ct.Query("ten", ct.count(), ct.max("v"), by="player", window=ct.tumbling("10s")),
    ct.Query("bursts", ct.count(), by="player", window=ct.session("50ms")),
    ct.Query("thousand", ct.median("v"), window=ct.count_tumbling(1000)),
]


def check(queries: list[Query], wanted: Any, found: Callable[[str], pa.Table]) -> None:
    """Every query has the rows that are computed without Spark."""
    for query in queries:
        assert_same(rows_of(wanted[query.name]), found(query.name), query.name)


def kill_own_executor(marker: Path) -> bool:
    """Kills the executor that this task runs on, the first time that any task asks for it."""
    with suppress(FileExistsError):
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        daemon = os.getppid()
        executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
        assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
        os.kill(executor, signal.SIGKILL)
        return True
    return False


def killing(frame: DataFrame, marker: Path, after: int) -> DataFrame:
    """The same rows; the first task that has read one past a number kills its executor."""
    place = str(marker)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in batches:
            yield some
            if (pc.max(some["seq"]).as_py() or 0) > after:
                kill_own_executor(Path(place))

    return frame.mapInArrow(read, frame.schema)


def jobs(folder: Path) -> None:
    """Batches of files and of a table, and a streaming job."""
    (folder / "in").mkdir()
    for number in range(4):
        pq.write_table(EVENTS.slice(number * 3000, 3000), folder / f"in/{number}.parquet")
    engine = ct.Engine(QUERIES)
    engine.push(EVENTS)
    last = int(EVENTS.column("ts").cast("int64").to_numpy().max())
    streamed, whole = engine.advance(last), engine.close()
    with cluster(workers=2, cores=1) as spark:
        assert spark.sparkContext.master.startswith("spark://")
        from_files = ct.run(folder / "in", QUERIES, spark=spark)
        from_memory = ct.run(EVENTS, QUERIES, spark=spark)
        assert shipped(spark), "executors have this package from us"
        job = ct.Job(
            name="cluster",
            queries=QUERIES,
            trigger="available-now",
            source=Parquet(path=str(folder / "in"), max_files_per_batch=2),
            sinks=[ParquetSink(path=str(folder / "out"))],
            checkpoint=str(folder / "state"),
        )
        status = job.start(spark).wait()
    assert status.accepted == EVENTS.num_rows
    for query in QUERIES:
        rows = rows_of(streamed[query.name])
        assert_same(rows, ParquetSink(path=str(folder / "out")).read(query.name), query.name)
        rows += rows_of(whole[query.name])
        assert_same(rows, from_files[query.name], query.name)
        assert_same(rows, from_memory[query.name], query.name)


def shipped(spark: SparkSession) -> bool:
    """Whether executors import this package from an archive."""

    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import catchment

        yield from (pa.record_batch({"at": [catchment.__file__]}) for _ in batches)

    places = spark.range(2).mapInArrow(where, "at string").toArrow()["at"].to_pylist()
    return all(".zip/" in place for place in places)


norm = ct.function(
    "cluster_norm", lift=lambda v: v * v, combine=lambda a, b: a + b, lower=lambda s: s**0.5
)
"""A user's own function, which executors are sent."""


def load(folder: Path) -> None:
    """A thousand queries, one hot key, no key, a user's function; an executor dies meanwhile."""
    hot = pc.if_else(pc.equal(pc.bit_wise_and(EVENTS["seq"], 15), 0), EVENTS["player"], "hot")
    place = EVENTS.schema.get_field_index("player")
    events = EVENTS.set_column(place, "player", hot)
    made = [
        ct.Query(
            f"q{n}",
            ct.count(),
            ct.avg("v"),
            by=["player"] if n % 4 else [],
            window=ct.tumbling(f"{5000 + 7 * n}ms") if n % 10 else ct.session(f"{1 + n}ms"),
        )
        for n in range(1000)
    ]
    made.append(ct.Query("own", norm("v").alias("norm"), window=ct.tumbling("5s")))
    wanted = ct.run(events, made, spark=False)
    for workers in (1, 2):
        with cluster(workers, cores=1) as spark:
            frame = spark.createDataFrame(events).repartition(4)
            frame = killing(frame, folder / f"killed-{workers}", 6000)
            results = ct.run(frame, made, spark=spark)
            check(made, wanted, results.__getitem__)
        assert (folder / f"killed-{workers}").exists()


def an_hour_later() -> pa.Table:
    """One event."""
    row = EVENTS.slice(EVENTS.num_rows - 1)
    moved = pc.add(row["ts"], pa.scalar(3600, pa.duration("s")))
    return row.set_column(row.schema.get_field_index("ts"), EVENTS.schema.field("ts"), moved)


def frames(folder: Path) -> None:
    """Streaming frames with state on executors, one of which dies."""
    for number in range(6):
        write_numbered(folder / "in", number, EVENTS.slice(number * 2000, 2000))
    write_numbered(folder / "in", 6, an_hour_later())  # everything before is complete
    wanted = ct.run(EVENTS, QUERIES, spark=False)
    with cluster(workers=2, cores=1, **{"spark.sql.shuffle.partitions": "2"}) as spark:
        schema = spark.read.parquet(str(folder / "in")).schema
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        stream = stream.parquet(str(folder / "in"))
        all_of = ct.windows(killing(stream, folder / "killed", 6000), QUERIES)
        one = ct.windows(stream, QUERIES[0])["ten"]
        for name, frame in (("all", all_of.union()), ("one", one)):
            writer = frame.writeStream.format("parquet").option("path", str(folder / name))
            writer = writer.option("checkpointLocation", str(folder / f"state-{name}"))
            writer.trigger(availableNow=True).start().awaitTermination()
    assert (folder / "killed").exists()
    rows = pq.read_table(folder / "all")
    for query in QUERIES:
        names = wanted[query.name].schema.names
        found = rows.filter(pc.field("query") == query.name).select(names)
        assert_same(rows_of(wanted[query.name]), found, query.name)
    assert_same(rows_of(wanted["ten"]), pq.read_table(folder / "one"), "ten")


def allocation(folder: Path) -> None:
    """Executors that come and go: what they had kept is computed again, and is the same."""
    wanted = ct.run(EVENTS, QUERIES, spark=False)
    options = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.cachedExecutorIdleTimeout": "1s",
    }
    with cluster(workers=2, cores=1, **options) as spark:
        found = ct.windows(spark.createDataFrame(EVENTS).repartition(4), QUERIES)
        for query in QUERIES:
            rows = found[query.name].toArrow()
            assert_same(rows_of(wanted[query.name]), rows, query.name)
            told: Any = spark.sparkContext._jsc.sc().statusTracker()
            wait_for(lambda told=told: len(told.getExecutorInfos()) == 1)  # the driver


def tree(folder: Path) -> None:
    """A root and a site whose work executors do, and a site without Spark."""
    spark_execution.FEW_BYTES = -1
    root = f"127.0.0.1:{free_port()}"
    read = {"type": "generator", "rate": 1000, "keys": 5, "events": 4000, "per_batch": 1000}
    memory = Memory()
    job = JobModel(
        name="cluster",
        queries=[
            {"name": "mean", "select": ["avg(v)"], "by": "player", "window": "tumbling(1s)"},
            {"name": "visits", "select": ["count(*)"], "by": "player", "window": "session(300ms)"},
            {"name": "lots", "select": ["sum(seq)"], "window": "count_tumbling(1000)"},
        ],
        nodes=[
            {"id": "root", "listen": root, "engine": "spark"},
            {"id": "e1", "parent": "root", "engine": "spark", "source": read | {"seed": 1}},
            {"id": "e2", "parent": "root", "engine": "embedded", "source": read | {"seed": 2}},
        ],
        checkpoint=str(folder / "state"),
        sinks=[memory],
    )
    with cluster(workers=2, cores=1), running(job) as nodes:
        nodes.wait(lambda: nodes.frontier >= LATEST)
    queries = job.build()
    engine = ct.Engine(queries)
    options = {name: value for name, value in read.items() if name != "type"}
    made = [Generated(**options, seed=seed).generator(0).table(4000) for seed in (1, 2)]
    engine.push(pa.concat_tables(made))
    wanted = engine.close()
    for query in queries:
        found = memory.results(query.name)
        assert all(found["complete"].to_pylist())
        plain = found.drop_columns(["complete", "missing"])
        assert_same(rows_of(wanted[query.name]), plain, query.name, keys=query.keys)


PARTS = {part.__name__: part for part in (jobs, load, frames, allocation, tree)}


if __name__ == "__main__":
    PARTS[sys.argv[1]](Path(sys.argv[2]))
