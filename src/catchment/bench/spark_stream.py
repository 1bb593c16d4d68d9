"""Streaming on Spark: the rate that is sustained, and how soon a result is seen."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pydantic import PrivateAttr

import catchment as ct
from catchment.bench.figure import Figure, at_least, below, plain
from catchment.bench.spark_data import Files, averages, files
from catchment.sinks.base import Delivery, Sink

WINDOWS = 1000
SOME = 20


def figures(quick: bool, spark: Any) -> Iterator[Figure]:
    events = 8_000_000 if quick else 64_000_000
    with files(events, rate=100_000, keys=10) as load:
        ours, delays, batches = streamed(load, spark)
        native = native_rate(load, spark)
    detail = f"avg by key over tumbling windows of 1 to 10 s; {load.detail}; a file a batch"
    yield at_least(
        f"streaming {WINDOWS} windows against Spark's {SOME}", ours / native, "times as fast", 10,
        f"{detail}; after the first batch {ours / 1e6:.1f} M events/s, Spark {native / 1e6:.2f}",
    )  # fmt: skip
    yield below(
        "micro-batches until a result is seen", max(batches), "batches", 2.01,
        f"from the batch that brings the first event past a window's end; {detail}",
    )  # fmt: skip
    yield plain(
        "seconds until a result is seen, median", statistics.median(delays), "s",
        "from when the batch is planned to when its results are in the sink",
    )  # fmt: skip
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
            ends.update(times.to_numpy().tolist())

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
            name="bench", queries=averages(WINDOWS), trigger="available-now",
            source=Parquet(path=str(load.folder), max_files_per_batch=1), checkpoint=folder,
        )  # fmt: skip
        marks: list[tuple[float, Any]] = []
        handle = start(job.model_copy(update={"sinks": (seen,)}), spark)
        handle.watch(lambda status: marks.append((time.time(), status)))
        handle.wait()
    delays = [at - status.planned / 1e6 for at, status in marks[1:]]
    (t0, first), (t1, last) = marks[0], marks[-1]
    rate = (last.events - first.events) / (t1 - t0)
    return rate, delays, seen.batches([status.frontier for _, status in marks])


def native_rate(load: Files, spark: Any) -> float:
    """Spark's own streaming of some of the windows: each event once per window, in one query."""
    from pyspark.sql import functions as sf

    schema = spark.read.parquet(load.paths[0]).schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    events = rows.parquet(str(load.folder)).withWatermark("ts", "0 seconds")
    lengths = sf.explode(sf.array(*(sf.lit(1 + n % 10) for n in range(SOME)))).alias("length")
    numbered = events.select("ts", "k", "v", lengths)
    micros = sf.unix_micros("ts")
    start = sf.timestamp_micros(micros - sf.pmod(micros, sf.col("length") * 1_000_000))
    placed = numbered.withColumn("start", start)
    averaged = placed.groupBy("length", "k", "start").agg(sf.avg("v"))
    marks: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        writer = averaged.writeStream.format("noop").outputMode("update")
        query = writer.option("checkpointLocation", str(Path(folder) / "c")).start()
        seen = 0
        begin = time.time()
        while seen < load.events // 4 and time.time() - begin < 300:
            time.sleep(0.1)
            done = [p for p in query.recentProgress if p["numInputRows"]]
            if len(done) > len(marks):
                seen = sum(p["numInputRows"] for p in done)
                marks.append((time.time(), seen))
        query.stop()
    (t0, n0), (t1, n1) = marks[0], marks[-1]
    return (n1 - n0) / max(t1 - t0, 1e-9)
