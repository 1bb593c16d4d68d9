"""Streaming on Spark: the rate that is sustained, and how soon a result is seen."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import PrivateAttr

import catchment as ct
from benchmarks.figure import Figure, at_least, at_most, plain
from benchmarks.spark_data import Files, averages, files
from catchment.sinks.base import Delivery, Sink

WINDOWS = 1000
SOME = 20
BATCH = 2
"""Files in a micro-batch, for us and for Spark."""


def figures(quick: bool, spark: Any) -> Iterator[Figure]:
    events = 8_000_000 if quick else 64_000_000
    with files(events, rate=100_000, keys=10) as load:
        ours, delays, batches = streamed(load, spark)
        native = native_rate(_queries(load, spark))
        tricky = native_rate([_exploded(_stream(load, spark))])
    detail = f"avg by key over tumbling windows of 1 to 10 s; {load.detail}; {BATCH} files a batch"
    yield at_least(
        f"streaming {WINDOWS} windows against Spark's {SOME}",
        ours / native,
        "times as fast",
        10,
        f"{detail}; after the first batch {ours / 1e6:.1f} M events/s, Spark, a streaming query "
        f"for each window, {native / 1e6:.2f}",
    )
    yield plain(
        f"streaming {WINDOWS} windows against {SOME} by hand in one query",
        ours / tricky,
        "times as fast",
        f"{detail}; Spark over events exploded to all their windows: {tricky / 1e6:.2f} M events/s",
    )
    yield at_most(
        "micro-batches until a result is seen",
        max(batches),
        "batches",
        2,
        f"from the batch that brings the first event past a window's end; {detail}",
    )
    yield plain(
        "seconds until a result is seen, median",
        statistics.median(delays),
        "s",
        "from when the batch is planned to when its results are in the sink",
    )
    yield plain(
        "seconds until a result is seen, 99th percentile", percentile(delays, 0.99), "s", "as above"
    )


def percentile(values: list[float], share: float) -> float:
    """A value that this share of all do not exceed.

    >>> percentile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


class Seen(Sink):
    """Notes which windows each batch brought."""

    on_driver: ClassVar[bool] = True
    type: Literal["seen"] = "seen"
    _ends: dict[int, set[int]] = PrivateAttr(default_factory=dict)

    def check(self) -> None:
        return

    def write(self, delivery: Delivery) -> None:
        ends = self._ends.setdefault(delivery.batch, set())
        for table in delivery.results.values():
            times = table.column("window_end").cast(pa.timestamp("us")).cast(pa.int64())
            ends.update(np.unique(times.to_numpy()).tolist())

    def batches(self, frontiers: list[int]) -> list[int]:
        """For each window, the batches from the one whose events pass its end, that one too."""
        return [
            1 + batch - next(n for n, frontier in enumerate(frontiers) if frontier >= end)
            for batch, ends in self._ends.items()
            for end in ends
        ]


def streamed(load: Files, spark: Any) -> tuple[float, list[float], list[int]]:
    """Events a second after the first batch; seconds and batches until results are seen."""
    from catchment.sources.parquet_file import Parquet
    from catchment.spark.stream import start

    seen = Seen()
    with tempfile.TemporaryDirectory() as folder:
        job = ct.Job(
            name="bench",
            queries=averages(WINDOWS),
            trigger="available-now",
            source=Parquet(path=str(load.folder), max_files_per_batch=BATCH),
            checkpoint=folder,
        )
        marks: list[tuple[float, Any]] = []
        handle = start(job.model_copy(update={"sinks": (seen,)}), spark)
        handle.watch(lambda status: marks.append((time.time(), status)))
        handle.wait()
    delays = [at - status.planned / 1e6 for at, status in marks[1:]]
    (t0, first), (t1, last) = marks[0], marks[-1]
    rate = (last.events - first.events) / (t1 - t0)
    return rate, delays, seen.batches([status.frontier for _, status in marks])


def _stream(load: Files, spark: Any) -> Any:
    schema = spark.read.parquet(load.paths[0]).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", BATCH)
    return rows.parquet(str(load.folder)).withWatermark("ts", "0 seconds")


def _queries(load: Files, spark: Any) -> list[Any]:
    """Some of the windows as Spark has them: one in a query."""
    from pyspark.sql import functions as sf

    return [
        _stream(load, spark).groupBy("k", sf.window("ts", f"{1 + n % 10} seconds")).agg(sf.avg("v"))
        for n in range(SOME)
    ]


def _exploded(events: Any) -> Any:
    """The same windows in one query: each event once for every window."""
    from pyspark.sql import functions as sf

    lengths = sf.explode(sf.array(*(sf.lit(1 + n % 10) for n in range(SOME)))).alias("length")
    numbered = events.select("ts", "k", "v", lengths)
    micros = sf.unix_micros("ts")
    start = sf.timestamp_micros(micros - sf.pmod(micros, sf.col("length") * 1_000_000))
    return numbered.withColumn("start", start).groupBy("length", "k", "start").agg(sf.avg("v"))


def native_rate(frames: list[Any]) -> float:
    """Events a second that Spark's own streaming takes through all of these, after a first batch.

    Its queries run side by side, and each reads the events; two batches of each are enough.
    """
    begin = time.time()
    with tempfile.TemporaryDirectory() as folder:
        queries = [
            frame.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(Path(folder) / str(n)))
            .start()
            for n, frame in enumerate(frames)
        ]
        marks: list[tuple[float, int]] = []
        while len(marks) < 2 and time.time() - begin < 600:
            time.sleep(0.05)
            done = [[p for p in q.recentProgress if p["numInputRows"]] for q in queries]
            least = min(len(progress) for progress in done)
            if least > len(marks):
                read = sum(p["numInputRows"] for progress in done for p in progress)
                marks.append((time.time(), read // len(queries)))
        for query in queries:
            query.stop()
    (t0, n0), (t1, n1) = marks
    return (n1 - n0) / (t1 - t0)
