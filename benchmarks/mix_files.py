"""The demo's events as Parquet files, and Spark and DuckDB over them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.spark_data import FILES, Files
from catchment.cli import demo
from catchment.errors import CatchmentError

PARTITIONS = "spark.sql.shuffle.partitions"
TASKS = 4
"""Spark's own shuffles make so many: for two cores, its default of 200 would be unfair to it."""


@contextmanager
def demo_files(events: int) -> Iterator[Files]:
    """Files of the demo's events in order of arrival, which are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="catchment-bench-") as name:
        parts = demo.EVENTS.batches(events // FILES, events)
        for number, part in enumerate(parts):
            path = Path(name) / f"{number}.parquet"
            pq.write_table(pa.Table.from_batches([part]), path, row_group_size=1 << 20)
        yield Files(Path(name), events, demo.RATE, demo.EVENTS.keys)


@contextmanager
def few_partitions(spark: Any) -> Iterator[None]:
    """Within the block, Spark shuffles as it should on few cores."""
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, str(TASKS))
    try:
        yield
    finally:
        spark.conf.set(PARTITIONS, before)


def failures() -> tuple[type[Exception], ...]:
    """What is raised when a job of ours on Spark breaks off."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return CatchmentError, PySparkException, Py4JError


def error_line(error: Exception) -> str:
    """What went wrong, on one line: the cause that an error of Spark names last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return (causes or lines or [type(error).__name__])[-1 if causes else 0][:200]


def spark_answers(spark: Any, paths: list[str], texts: dict[str, str]) -> dict[str, pa.Table]:
    """Spark's answers, one query after the other, each as an Arrow table."""
    with few_partitions(spark):
        spark.read.parquet(*paths).createOrReplaceTempView("events")
        try:
            return {name: spark.sql(text).toArrow() for name, text in texts.items()}
        finally:
            spark.catalog.dropTempView("events")


def duckdb_answers(paths: list[str], texts: dict[str, str], threads: int) -> dict[str, pa.Table]:
    """DuckDB's answers, one query after the other, each as an Arrow table."""
    with duckdb.connect(config={"threads": threads}) as system:
        system.execute("SET TimeZone = 'UTC'")
        system.read_parquet(paths).create_view("events")
        return {name: system.sql(text).to_arrow_table() for name, text in texts.items()}
