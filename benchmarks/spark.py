"""The Spark suite: batch, streaming, cores, a cluster; ratios inside one run, on the same files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import spark_batch, spark_stream
from benchmarks.figure import Figure
from benchmarks.spark_data import averages, files
from benchmarks.timing import seconds


def figures(quick: bool = False) -> Iterator[Figure]:
    """All figures; the session is ours and is stopped between the parts that need another."""
    from benchmarks.spark_cluster import cluster
    from catchment.spark.session import session

    spark = session(cores=2)
    yield from spark_batch.figures(quick, spark)
    yield from spark_stream.figures(quick, spark)
    with files(8_000_000 if quick else 64_000_000, rate=100_000, keys=10) as load:
        yield from spark_batch.by_cores(load, _on_cores)
        two = _on_cores(2)
        run = spark_batch.ours(load, averages(spark_batch.WINDOWS), two)
        run()
        local = min(seconds(run) for _ in range(2))
        two.stop()
        with cluster(workers=2, cores=1) as remote:
            run = spark_batch.ours(load, averages(spark_batch.WINDOWS), remote)
            run()
            spread = min(seconds(run) for _ in range(2))
        yield spark_batch.against_cluster(load, local, spread)


def _on_cores(cores: int) -> Any:
    from pyspark.sql import SparkSession

    from catchment.spark.session import session

    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()
    return session(cores=cores)
