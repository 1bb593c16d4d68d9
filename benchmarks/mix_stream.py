"""The demo's mix as a streaming job: against a batch of the same, and Spark's own streaming."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import catchment as ct
from benchmarks import mix_sql
from benchmarks.figure import Figure, at_least, at_most
from benchmarks.mix_files import demo_files, few_partitions
from benchmarks.progress import tell
from benchmarks.spark_data import Files
from benchmarks.spark_stream import BATCH, native_rate
from benchmarks.timing import seconds
from catchment.cli import demo
from catchment.cli.demo_queries import mix

STREAMED = (
    "speed",
    "speed_1s",
    "speed_1m",
    "coach",
    "sprints",
    "walking",
    "possession",
    "left",
    "right",
    "energy",
)
"""What Spark's streaming can express: windows in time, and functions of constant size."""


RUNS = 2
"""The first also warms up, on both sides."""


class Streamed(NamedTuple):
    """A job that has read all files."""

    seconds: float
    """From its start to its end."""
    rate: float
    """Events a second after the first micro-batch, however many it takes until the end."""
    batches: int
    empty: int
    """Micro-batches that brought no event."""


def figures(quick: bool = False) -> Iterator[Figure]:
    """All queries in one streaming job; ten of them side by side in Spark."""
    from catchment.spark.session import session

    spark = session(cores=2)
    asked = mix()
    with demo_files(1_000_000 if quick else 8_000_000) as load:
        batches, streams = [], []
        for number in range(1, RUNS + 1):
            tell("streaming the demo's queries, beside a batch", number, RUNS)
            batches.append(seconds(lambda: _batch(spark, load, asked)))
            streams.append(streamed(spark, load, asked))
        batch, mine = min(batches), min(streams)
        tell("streaming the demo's queries, Spark's own", 1, 1)
        with few_partitions(spark):
            theirs = native_rate(_native(spark, load))
    detail = f"{load.detail}; {BATCH} files a micro-batch, all there is is read"
    yield at_least(
        f"streaming the demo's {len(asked)} queries, against a batch of them",
        batch / mine.seconds,
        "of the batch's speed",
        0.5,
        f"{detail}; from start to end {mine.seconds:.1f} s in {mine.batches} micro-batches, "
        f"the batch {batch:.1f} s; best of {RUNS} runs",
    )
    yield at_most(
        "micro-batches that have no input",
        max(one.empty for one in streams),
        "micro-batches",
        0,
        f"as above; {detail}",
    )
    yield at_least(
        f"streaming the demo's {len(asked)} queries, against {len(STREAMED)} in Spark's streaming",
        mine.rate / theirs,
        "times as fast",
        10,
        f"{detail}; after the first micro-batch {mine.rate / 1e6:.2g} M events/s, Spark, its "
        f"queries side by side, {theirs / 1e6:.2g}",
    )


def streamed(spark: Any, load: Files, queries: Sequence[ct.Query]) -> Streamed:
    """Reads all files as a stream, and stops."""
    from catchment.sources.parquet_file import Parquet

    marks: list[tuple[float, int]] = []
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="catchment-bench-") as folder:
        job = ct.Job(
            name="mix",
            queries=list(queries),
            trigger="available-now",
            lateness=demo.LATE_BY,
            source=Parquet(path=str(load.folder), max_files_per_batch=BATCH),
            checkpoint=folder,
        )
        handle = job.start(spark)
        handle.watch(lambda status: marks.append((time.perf_counter(), status.events)))
        batches = handle.wait().batch + 1
        took = time.perf_counter() - begin
    full = len({events for _, events in marks if events})
    (t0, n0), (t1, n1) = marks[0], marks[-1]
    return Streamed(took, (n1 - n0) / (t1 - t0), batches, batches - full)


def _batch(spark: Any, load: Files, queries: Sequence[ct.Query]) -> int:
    return ct.run(str(load.folder), queries, time="ts", spark=spark).rows()


def _native(spark: Any, load: Files) -> list[Any]:
    """Each query as Spark's streaming has it."""
    schema = spark.read.parquet(load.paths[0]).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", BATCH)
    events = rows.parquet(str(load.folder)).withWatermark("ts", "2 seconds")
    events.createOrReplaceTempView("events")
    texts = mix_sql.for_spark()
    try:
        return [spark.sql(texts[name]) for name in STREAMED]
    finally:
        spark.catalog.dropTempView("events")
