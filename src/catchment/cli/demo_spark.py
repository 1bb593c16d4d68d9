"""The demo on Spark: generated events stream through local mode, results go to Parquet."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from catchment.cli import demo
from catchment.cli.demo import DemoOutcome
from catchment.cli.demo_queries import hundred
from catchment.cli.live import RunReporter, moment
from catchment.cli.needs import need_spark
from catchment.cli.run import spark_session
from catchment.job import load_job
from catchment.sinks.memory import Memory
from catchment.sinks.parquet import ParquetSink
from catchment.sources.generated import Generated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catchment.spark.handle import Status

PER_BATCH = 2_500_000
"""Large enough that a batch is more work than overhead, small enough that the line moves."""


def run(events: int, voice: RunReporter) -> DemoOutcome:
    """Streams the events through all queries at once; compares with Spark and with many engines."""
    need_spark()
    from catchment.cli.demo_against_spark import compare

    asked = hundred()
    outcome = demo.nothing_yet(asked)
    folder = Path(tempfile.mkdtemp(prefix="catchment-demo-"))
    outcome.folder = str(folder / "results")
    memory = Memory()
    began = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="catchment-") as state,
        spark_session(None, voice, brief=True) as spark,
    ):
        outcome.started = time.perf_counter() - began
        sinks = (ParquetSink(path=outcome.folder), memory)
        _stream(outcome, events, voice, sinks, state, spark)
        voice.phase("some of them over files, by us and by Spark itself")
        outcome.against_spark = compare(spark, events)
    demo.keep(outcome, {query.name: memory.results(query.name) for query in asked})
    voice.phase("the same again as separate queries, on a sample")
    demo.compare(outcome, asked)
    return outcome


def _stream(
    outcome: DemoOutcome,
    events: int,
    voice: RunReporter,
    sinks: tuple[ParquetSink, Memory],
    state: str,
    spark: SparkSession,
) -> None:
    from catchment.spark.stream import start

    began = time.perf_counter()
    source = Generated(**demo.SETTINGS, events=events, per_batch=PER_BATCH)
    job = load_job(
        {
            "name": "demo",
            "queries": hundred(),
            "source": source,
            "sinks": sinks,
            "lateness": demo.LATE_BY,
            "checkpoint": state,
            "rate": demo.RATE,
        }
    )
    handle = start(job, spark)
    handle.watch(lambda status: report_progress(voice, status, events))
    voice.phase(f"{outcome.queries} queries are planned; the first batch of {events:,} events")
    status = handle.wait()
    outcome.seconds = time.perf_counter() - began
    outcome.events, outcome.late = status.events, status.late


def report_progress(voice: RunReporter, status: Status, events: int) -> None:
    """Says how far the demo is. The events come last: lines of a log add how many are done."""
    parts = [f"{status.results:,} results of {status.queries} queries"]
    if status.frontier is not None:
        parts.append(f"windows done up to {moment(status.frontier)[11:19]}")
    if status.rate:
        parts.append(f"{status.rate / 1e6:.2f} M events/s")
    parts.append(f"{status.events / 1e6:.1f} M events")
    voice.phase(", ".join(parts), status.events, events)
