"""The demo on Spark: generated events stream through local mode, results go to Parquet."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from catchment.cli import demo
from catchment.cli.demo import DemoOutcome
from catchment.cli.live import Voice
from catchment.cli.needs import need_spark
from catchment.cli.run import spark_session
from catchment.job import load_job
from catchment.sinks.memory import Memory
from catchment.sinks.parquet import ParquetSink
from catchment.sources.generated import Generated

PER_BATCH = 300_000
"""Large enough that a batch is more work than overhead, small enough that the line moves."""


def run(events: int, voice: Voice) -> DemoOutcome:
    """Streams the events through all queries at once, then compares one engine with many."""
    need_spark()
    asked = demo.queries()
    outcome = demo.nothing_yet(asked)
    folder = Path(tempfile.mkdtemp(prefix="catchment-demo-"))
    outcome.folder = str(folder / "results")
    with tempfile.TemporaryDirectory(prefix="catchment-") as state:
        memory = Memory()
        _stream(outcome, events, voice, (ParquetSink(path=outcome.folder), memory), state)
    demo.keep(outcome, {query.name: memory.results(query.name) for query in asked})
    voice.phase("the same again as separate queries, on a sample")
    demo.compare(outcome, asked)
    return outcome


def _stream(
    outcome: DemoOutcome, events: int, voice: Voice, sinks: tuple[ParquetSink, Memory], state: str
) -> None:
    from catchment.spark.stream import start

    began = time.perf_counter()
    source = Generated(**demo.SETTINGS, events=events, per_batch=PER_BATCH)
    job = load_job(
        {
            "name": "demo",
            "queries": demo.queries(),
            "source": source,
            "sinks": sinks,
            "lateness": demo.LATE_BY,
            "checkpoint": state,
            "rate": demo.RATE,
        }
    )
    with spark_session(None, voice, brief=True) as spark:
        handle = start(job, spark)
        handle.watch(voice.heard)
        voice.phase("Spark makes ready for the first batch")
        outcome.started = time.perf_counter() - began
        status = handle.wait()
    outcome.seconds = time.perf_counter() - began - outcome.started
    outcome.events, outcome.late = status.events, status.late
