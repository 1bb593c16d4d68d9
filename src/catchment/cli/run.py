"""`catchment run`: a job file as a stream or as a batch, until it ends or is told to stop."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from catchment.cli import live
from catchment.cli.check import connect, summary
from catchment.cli.live import Ending, RunReporter
from catchment.cli.needs import need_spark, need_ui
from catchment.cli.ui import RECENT, on_spark, served
from catchment.errors import CatchmentError
from catchment.job import JobModel, load_job
from catchment.job.model import TRIGGERS, period
from catchment.sinks.console import Console
from catchment.sinks.memory import Memory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from catchment.durable.lock import Lock
    from catchment.spark.handle import Handle, Status
    from catchment.spark.metrics import Metrics
    from catchment.ui.spark_job import SparkJob

_PATIENCE = 60.0
"""Seconds that a batch at hand is given to end when the job is to stop."""


@dataclass(frozen=True)
class Options:
    """What the command line says besides the job file."""

    trigger: str | None = None
    checkpoint: Path | None = None
    as_json: bool = False
    quiet: bool = False
    metrics: int | None = None
    cores: int | None = None
    again: bool = False
    profile: bool = False
    ui: int | None = None
    """The port of a page that shows the job."""
    metrics_host: str = "127.0.0.1"
    """Where metrics are served, if they are."""


def run(path: Path, options: Options) -> None:
    """Runs the job to its end."""
    need_spark()
    if options.ui is not None:
        need_ui()
    job = adjusted(load_job(path), options)
    started = time.monotonic()
    voice = live.voice(options.as_json, options.quiet)
    with (
        voice,
        _checkpoint(job, voice) as (held, kept),
        _page(held, options, voice) as watched,
    ):
        if held.trigger == "batch":
            status = _batch(held, options, voice)
        else:
            status = _stream(held, options, voice, watched)
    places = [summary(sink) for sink in held.sinks]
    voice.end(Ending(status, places, kept, time.monotonic() - started))


def adjusted(job: JobModel, options: Options) -> JobModel:
    """The job, with what the command line says instead of the file."""
    changes: dict[str, Any] = {}
    if options.trigger is not None:
        if options.trigger not in TRIGGERS:
            period(options.trigger)
        changes["trigger"] = options.trigger
    if options.checkpoint is not None:
        changes["checkpoint"] = str(options.checkpoint)
    if options.metrics is not None:
        changes["metrics"] = options.metrics
    if not job.sinks:
        # A person wants to see results; a program reads JSON, and rows in between would break it.
        changes["sinks"] = (Memory() if options.as_json or options.quiet else Console(),)
    if options.ui is not None:
        sinks = changes.get("sinks", job.sinks)
        if not any(isinstance(sink, Memory) for sink in sinks):
            changes["sinks"] = (*sinks, Memory(limit=RECENT))
    return job.model_copy(update=changes)


@contextlib.contextmanager
def _checkpoint(job: JobModel, voice: RunReporter) -> Iterator[tuple[JobModel, str | None]]:
    """The job with a checkpoint, and its address if it is kept."""
    if job.checkpoint is not None:
        yield job, job.checkpoint
        return
    folder = tempfile.mkdtemp(prefix="catchment-")
    voice.note("no checkpoint is given, so nothing is kept to go on from (--checkpoint DIR)")
    try:
        yield job.model_copy(update={"checkpoint": folder}), None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _page(job: JobModel, options: Options, voice: RunReporter) -> Iterator[SparkJob | None]:
    """The page of the job, where one is wanted, and what it looks at."""
    if options.ui is None:
        yield None
        return
    silent = options.quiet or options.as_json
    say = _aloud if silent else voice.note  # nobody could open a page whose address is not said
    job_on_page = on_spark(job)
    with served([job_on_page], options.ui, say):
        yield job_on_page


def _aloud(text: str) -> None:
    typer.echo(f"catchment: {text}", err=True)


def _stream(
    job: JobModel, options: Options, voice: RunReporter, watched: SparkJob | None = None
) -> Status:
    from catchment.spark import job_folder
    from catchment.spark.stream import lock_checkpoint

    home = job_folder.home_of(str(job.checkpoint))
    job_folder.writable(home)
    with lock_checkpoint(home) as lock:  # before Spark takes its time to start
        return _streamed(job, options, voice, lock, watched)


def _streamed(
    job: JobModel, options: Options, voice: RunReporter, lock: Lock, watched: SparkJob | None
) -> Status:
    from catchment.spark import job_folder
    from catchment.spark.stream import start

    home = job_folder.home_of(str(job.checkpoint))
    job_folder.only("stream", home)
    before = job_folder.ended_stream(home)
    if before is not None:
        voice.note("this job has ended before; to run it anew, use another checkpoint")
        return before
    voice.phase("looking at source and sinks")
    connect(job)
    with (
        _metrics(job, options.metrics_host, voice) as metrics,
        spark_session(options.cores, voice) as spark,
    ):
        voice.phase("starting the job")
        handle = start(job, spark, lock=lock)
        for text in handle.changes:
            voice.note(text)
        handle.watch(voice.heard)
        if watched is not None:
            watched.handle = handle
        if metrics is not None:
            metrics.follow(handle, spark)
        if options.profile:
            handle.watch(lambda _: handle.take_profile())
        voice.phase("the first batch")
        status = _followed(handle, spark, voice)
        if options.profile:
            voice.profile(handle.profile())
        return status


def _followed(handle: Handle, spark: SparkSession, voice: RunReporter) -> Status:
    try:
        with _stopping(handle, spark, voice):
            return handle.wait()
    except CatchmentError:
        voice.end(Ending(handle.status))
        raise


@contextlib.contextmanager
def _stopping(handle: Handle, spark: SparkSession, voice: RunReporter) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop the job after the batch at hand; a second time, at once."""
    asked = threading.Event()
    hurry = threading.Event()
    threads: list[threading.Thread] = []

    def wind_up() -> None:
        voice.note("stopping after the batch at hand")
        _batch_at_hand(spark, handle.spec.job, hurry)
        handle.stop()

    def ask(*_: object) -> None:
        if asked.is_set():
            hurry.set()
            return
        asked.set()
        # Not here: a handler may not wait, nor print while the line is being drawn.
        threads.append(threading.Thread(target=wind_up))
        threads[0].start()

    with _handling(ask):
        yield
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def _handling(handler: Any) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, held in before.items():
            signal.signal(number, held)


def _batch_at_hand(spark: SparkSession, name: str, hurry: threading.Event) -> None:
    """Waits until Spark has committed the batch that runs now."""
    query = next((query for query in spark.streams.active if query.name == name), None)
    if query is None:
        return
    seen = _last(query)
    until = time.monotonic() + _PATIENCE
    while query.isActive and query.status["isTriggerActive"] and _last(query) == seen:
        if hurry.wait(0.1) or time.monotonic() > until:
            return


def _last(query: Any) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _batch(job: JobModel, options: Options, voice: RunReporter) -> Status:
    from catchment.spark import job_folder
    from catchment.spark.stream import lock_checkpoint

    home = job_folder.home_of(str(job.checkpoint))
    job_folder.writable(home)
    with lock_checkpoint(home) as lock:  # before Spark takes its time to start
        return _batched(job, options, voice, lock)


def _batched(job: JobModel, options: Options, voice: RunReporter, lock: Lock) -> Status:
    from catchment.spark import job_folder
    from catchment.spark.batch_job import run_bounded

    home = job_folder.home_of(str(job.checkpoint))
    job_folder.only("batch", home)
    before = job_folder.ended_batch(home)
    if before is not None and not options.again:
        voice.note("this job has delivered its results before; --again delivers them once more")
        return before
    voice.phase("looking at source and sinks")
    connect(job)
    if job.metrics is not None:
        voice.note("metrics are for streams; a batch job serves none")
    with (
        _handling(_interrupted),
        spark_session(options.cores, voice) as spark,
        _handling(_interrupted),
    ):
        return run_bounded(
            job, spark, voice.phase, lock, voice.profile if options.profile else None
        )


def _interrupted(*_: object) -> None:
    """Nothing is delivered before all is read: to stop a batch is to give it up."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def _metrics(job: JobModel, host: str, voice: RunReporter) -> Iterator[Metrics | None]:
    if job.metrics is None:
        yield None
        return
    from catchment.spark.metrics import Metrics

    made = Metrics(job.metrics, host)
    voice.note(f"metrics are at {made.address}")
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def spark_session(
    cores: int | None, voice: RunReporter, brief: bool = False
) -> Iterator[SparkSession]:
    """A session of our own, for long or brief; its log is kept only if something went wrong."""
    from catchment.spark.session import log_file, session, settings

    voice.phase("starting Spark")
    # A minute is too short for Java's better compiler to earn back what it takes.
    java = "spark.driver.extraJavaOptions"
    options = {java: f"{settings()[java]} -XX:TieredStopAtLevel=1"} if brief else {}
    spark = session(cores, **options)
    try:
        yield spark
    except CatchmentError as error:
        error.add_note(f"Spark's log: {log_file()}")
        raise
    else:
        log_file().unlink(missing_ok=True)
    finally:
        voice.phase("ending")
        spark.stop()
