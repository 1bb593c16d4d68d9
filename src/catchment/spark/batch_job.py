"""A job file as a batch: all there is is read, and the results are delivered once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from catchment.durable.folder import Folder
from catchment.durable.lock import Lock
from catchment.engine import codec
from catchment.errors import JobError
from catchment.job.model import JobModel
from catchment.model import records
from catchment.model.definition import Definition, next_definitions, output_name, version_texts
from catchment.model.rules import EventRules
from catchment.sinks.base import Delivery, Sink
from catchment.sinks.spark_format import SparkFormat
from catchment.sources.aside_files import AsideFiles, AsidePlace
from catchment.sources.base import NeverRead
from catchment.spark.batch import prepared
from catchment.spark.handle import Status
from catchment.spark.job_folder import DONE, ended_batch, home_of
from catchment.spark.profile import Profile
from catchment.spark.records import JobCounts
from catchment.spark.session import cores_of, is_connect
from catchment.spark.stream import job_identity, lock_checkpoint

log = logging.getLogger("catchment.queries")

DEFINITIONS = "definitions.json"
"""The last definition of every query that has delivered results from here."""

Tell = Callable[[str, int, int], None]
"""Told what is being done, and how much of how much is done."""


class ComputedRecord(msgspec.Struct, frozen=True):
    """What is written down with the results of a batch job before any sink sees them."""

    counts: JobCounts
    keys: dict[str, tuple[str, ...]]
    """The columns that identify a row, by the name under which results are delivered."""
    never_read: tuple[NeverRead, ...]


def run_bounded(
    job: JobModel,
    spark: SparkSession,
    tell: Tell,
    lock: Lock | None = None,
    profiled: Callable[[Profile], None] | None = None,
) -> Status:
    """Runs the job as a batch. Run once more, it delivers once more, as the next batch.

    Results are written down before any sink sees them. If delivering breaks off, the next run
    delivers the same ones again, which sinks know how to take, whatever the source holds by then.
    `profiled` is told what it cost to compute and deliver them, if they were computed now.
    """
    if job.source is None or job.checkpoint is None:
        raise JobError("a batch job needs a source and a checkpoint")
    for sink in job.sinks:
        if isinstance(sink, SparkFormat):
            raise JobError(
                "a batch job does not write through Spark's formats",
                given=f"format: {sink.format}",
                hint="say trigger: available-now, or write frames: ct.windows(events, queries)",
            )
    home = home_of(job.checkpoint)
    with lock or lock_checkpoint(home) as mine:
        return _run(job, spark, tell, home, mine, profiled or (lambda _: None))


def _run(
    job: JobModel,
    spark: SparkSession,
    tell: Tell,
    home: Folder,
    lock: Lock,
    profiled: Callable[[Profile], None],
) -> Status:
    began, cost = perf_counter(), None
    identity = job_identity(home, job, spark)
    before = ended_batch(home)
    batch = 0 if before is None else before.batch + 1
    kept = home.sub("bounded")
    body = kept.read(f"{batch:09d}")
    if body is None:
        body, cost = _computed(job, spark, outputs_of(home, job), tell, home.sub("aside"), batch)
        kept.write(f"{batch:09d}", body)
    lock.check()
    delivering = perf_counter()
    status = _delivered(job, identity.job, batch, body, tell)
    sinks = perf_counter() - delivering
    _settle(home, status)
    kept.remove(f"{batch:09d}")
    if cost is not None:
        profiled(cost.delivered(perf_counter() - began, sinks))
    return status


def outputs_of(home: Folder, job: JobModel) -> dict[str, str]:
    """Under which name each query's results are delivered, by what the folder knows of it."""
    held = home.read(DEFINITIONS) or b"{}"
    known = records.decode(dict[str, Definition], held, f"{home.shown}/{DEFINITIONS}")
    found = next_definitions(known, {query.name: query for query in job.build()})
    for text in version_texts(known, found):
        log.warning("%s", text)
    home.write(DEFINITIONS, records.encode(found))
    return {name: output_name(name, found[name].version) for name in found}


def _computed(
    job: JobModel,
    spark: SparkSession,
    outputs: dict[str, str],
    tell: Tell,
    aside: Folder,
    batch: int,
) -> tuple[bytes, Profile | None]:
    tell("planning", 0, 0)
    with _stages(spark, tell):
        tasks = cores_of(spark)
        rules = EventRules.of(job.time, incomplete=job.incomplete)
        place = AsidePlace(aside, batch, job.aside_bytes // tasks, job.aside_disk_bytes // tasks)
        work = prepared(
            job.source,
            job.build(),
            rules,
            spark,
            job.buckets,
            job.state_bytes,
            job.key_bytes,
            place,
        )
        results = work.run()
    AsideFiles(aside, job.aside_disk_bytes).keep(batch, {}, results.aside)
    tell("collecting results", 0, 0)
    made = results.counts | {"results": results.rows()}
    counts = records.convert(JobCounts, made, "what the batch counted")
    keys = {outputs[query.name]: query.keys for query in job.build()}
    record = ComputedRecord(counts, keys, tuple(results.never_read))
    body = codec.pack(record, {outputs[name]: table for name, table in results.items()})
    return body, results.profile


def _delivered(job: JobModel, name: str, batch: int, body: bytes, tell: Tell) -> Status:
    record, tables = codec.unpack(body, ComputedRecord)
    delivery = Delivery(name, batch, 0, tables, record.keys)
    sinks: tuple[Sink, ...] = job.sinks
    for number, sink in enumerate(sinks):
        tell("writing results", number, len(sinks))
        sink.write(delivery)
        sink.finish()
        sink.close()
    ended = Status.counted("ended", name, batch, record.counts)
    return replace(ended, queries=len(tables), never_read=record.never_read)


def _settle(home: Folder, status: Status) -> None:
    home.write(DONE, records.encode(status))


@contextmanager
def _stages(spark: SparkSession, tell: Tell) -> Iterator[None]:
    """Tells of Spark's stages as they go: the first reads splits, the next assembles windows."""
    watching = _told_by_server if is_connect(spark) else _watched
    with watching(spark, tell):
        yield


@contextmanager
def _told_by_server(spark: SparkSession, tell: Tell) -> Iterator[None]:
    def heard(stages: Iterable[Any] | None, **_: Any) -> None:
        for number, stage in enumerate(stages or ()):
            if stage.num_completed_tasks < stage.num_tasks:
                tell(_doing(number), stage.num_completed_tasks, stage.num_tasks)

    handler: Any = heard  # a function will do; the type asks for a class
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)


@contextmanager
def _watched(spark: SparkSession, tell: Tell) -> Iterator[None]:
    done = threading.Event()
    watch = threading.Thread(target=_watch, args=(spark, tell, done), daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()


def _watch(spark: SparkSession, tell: Tell, done: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    first: int | None = None
    while not done.wait(0.2):
        for stage in sorted(tracker.getActiveStageIds()):
            first = stage if first is None else first
            info = tracker.getStageInfo(stage)
            if info is not None:
                tell(_doing(stage - first), info.numCompletedTasks, info.numTasks)


def _doing(stage: int) -> str:
    return "reading splits" if stage == 0 else "assembling windows"
