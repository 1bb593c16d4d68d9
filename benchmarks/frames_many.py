"""Many results written to Parquet by executors: the driver's memory, and the speed for each row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import catchment as ct
from benchmarks.figure import Figure, at_least, at_most
from benchmarks.process import environment, peak_bytes, python
from benchmarks.timing import seconds

_LIMIT = 3600


def figures(quick: bool = False) -> Iterator[Figure]:
    few, many = (200_000, 4_000_000) if quick else (1_000_000, 100_000_000)
    small, large = alone(few), alone(many)
    yield at_most(
        f"driver memory, {many:,} result rows written",
        large["bytes"] / small["bytes"],
        f"of that with {few:,}",
        1.25,
        f"the most that Python and Java held, {small['bytes'] / 1e6:.0f} and "
        f"{large['bytes'] / 1e6:.0f} MB; a cluster of two workers; ct.windows, Parquet",
    )
    yield at_least(
        f"{many:,} result rows written, against Spark's own aggregation",
        large["spark"] / large["ours"],
        "times Spark's speed",
        1.0,
        f"avg by key over tumbling windows, each row a window and key; {large['ours']:.1f} and "
        f"{large['spark']:.1f} s",
    )


def alone(rows: int) -> dict[str, Any]:
    """What `measure` finds in a process of its own."""
    done = subprocess.run(
        python("benchmarks.frames_many", rows),
        env=environment(),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_LIMIT,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(rows: int) -> dict[str, float]:
    """Writes so many result rows through frames, and through Spark's own aggregation."""
    from pyspark.sql import functions as sf

    from benchmarks.spark_cluster import cluster

    query = ct.Query("many", ct.avg("v"), by="k", window=ct.tumbling("10s"))
    with cluster(workers=2, cores=1) as spark, tempfile.TemporaryDirectory() as folder:
        places = spark.range(rows)
        made = places.select(
            sf.timestamp_micros(1_767_225_600_000_000 + sf.col("id") % 1_000_000).alias("ts"),
            sf.col("id").alias("k"),
            (sf.col("id") / rows).alias("v"),
        )
        made.write.parquet(f"{folder}/events")
        events = spark.read.parquet(f"{folder}/events")
        frame = ct.windows(events, query)["many"]
        machine: Any = spark._jvm
        java = machine.java.lang.ProcessHandle.current().pid()
        ours = seconds(lambda: frame.write.parquet(f"{folder}/ours"))
        peak = peak_bytes(os.getpid()) + peak_bytes(java)
        native = events.groupBy("k", sf.window("ts", "10 seconds")).agg(sf.avg("v").alias("mean"))
        theirs = seconds(lambda: native.write.parquet(f"{folder}/theirs"))
        found = spark.read.parquet(str(Path(folder) / "ours")).count()
        assert found == rows, f"{found} result rows of {rows}"
    return {"bytes": peak, "ours": ours, "spark": theirs}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(int(sys.argv[1]))) + "\n")
