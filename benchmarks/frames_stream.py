"""Streaming frames: how soon after a batch was planned its results are seen, beside a job's."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar, Literal

import catchment as ct
from benchmarks.figure import Figure, plain
from benchmarks.spark_data import Files, averages, files
from benchmarks.spark_stream import percentile
from catchment.sinks.base import Delivery, Sink

_QUERIES = 20


class Ignored(Sink):
    """Takes results on the driver, and forgets them."""

    on_driver: ClassVar[bool] = True
    type: Literal["ignored"] = "ignored"

    def check(self) -> None:
        return

    def write(self, delivery: Delivery) -> None:
        return


def figures(quick: bool = False) -> Iterator[Figure]:
    from catchment.spark.session import session

    spark = session(cores=2)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    with files(800_000 if quick else 6_400_000, rate=10_000, keys=10) as load:
        try:
            spark.conf.set("spark.sql.shuffle.partitions", "2")
            one, shared = of_frame(load, spark), of_frames(load, spark)
        finally:
            spark.conf.set("spark.sql.shuffle.partitions", str(before))
        job = of_job(load, spark)
    detail = f"from when the batch is planned to when its results are there; {load.detail}"
    for what, found in (
        ("a streaming frame", one),
        (f"{_QUERIES} streaming frames in one query, one of them collected", shared),
        (f"a job of {_QUERIES} queries", job),
    ):
        middle, worst = statistics.median(found), percentile(found, 0.99)
        yield plain(f"{what}: seconds until results are seen, median", middle, "s", detail)
        yield plain(f"{what}: 99th percentile", worst, "s", detail)


def _stream(load: Files, spark: Any) -> Any:
    schema = spark.read.parquet(load.paths[0]).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(load.folder))


def _delays(query: Any, seen: dict[int, float]) -> list[float]:
    """Seconds from the beginning of each batch but the first to when it was seen."""
    begun = {
        progress["batchId"]: datetime.fromisoformat(progress["timestamp"]).timestamp()
        for progress in query.recentProgress
        if progress["numInputRows"]
    }
    return [seen[batch] - at for batch, at in begun.items() if batch and batch in seen]


def of_frame(load: Files, spark: Any) -> list[float]:
    """One frame, whose rows a function of the user collects."""
    frame = ct.windows(_stream(load, spark), averages(1), time="ts")["q0"]
    seen: dict[int, float] = {}

    def collect(rows: Any, batch: int) -> None:
        rows.toArrow()
        seen[batch] = time.time()

    return _delays(_drained(frame.writeStream.foreachBatch(collect)), seen)


def of_frames(load: Files, spark: Any) -> list[float]:
    """All frames in one query."""
    frames = ct.windows(_stream(load, spark), averages(_QUERIES), time="ts")
    seen: dict[int, float] = {}

    def collect(found: Any, batch: int) -> None:
        found["q0"].toArrow()
        seen[batch] = time.time()

    return _delays(_drained(frames.foreachBatch(collect)), seen)


def _drained(writer: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()
    return query


def of_job(load: Files, spark: Any) -> list[float]:
    """The same queries as a job, whose results come to the driver."""
    from catchment.sources.parquet_file import Parquet
    from catchment.spark.stream import start

    marks: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        job = ct.Job(
            name="bench",
            queries=averages(_QUERIES),
            trigger="available-now",
            source=Parquet(path=str(load.folder), max_files_per_batch=1),
            checkpoint=folder,
        )
        handle = start(job.model_copy(update={"sinks": (Ignored(),)}), spark)
        handle.watch(lambda status: marks.append((time.time(), status.planned)))
        handle.wait()
    return [at - planned / 1e6 for at, planned in marks[1:]]
