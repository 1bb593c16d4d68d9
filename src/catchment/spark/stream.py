"""Starting a streaming job: the checkpoint is found or made, and Spark wired up."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from catchment.durable.folder import Folder
from catchment.durable.lock import Lock, hold
from catchment.engine.binding import bind_types
from catchment.errors import JobError, StateError
from catchment.job.model import TRIGGERS, period
from catchment.job.model import Job as JobModel
from catchment.model.definition import file_changes, removed_told
from catchment.model.duration import micros
from catchment.model.query import Query
from catchment.planner import plan as make_plan
from catchment.sinks.base import Sink
from catchment.sinks.memory import Memory
from catchment.spark.bucket import Bucket
from catchment.spark.bucket_keys import labels
from catchment.spark.datasource import NAME, PartialsSource
from catchment.spark.handle import Handle
from catchment.spark.job_folder import SCHEMA
from catchment.spark.planning import first_plan
from catchment.spark.queries import QueryFolder
from catchment.spark.rows import OUTPUT
from catchment.spark.session import cores_of, session, ship, streaming
from catchment.spark.spec import Spec, forget_plans
from catchment.spark.streaming_frame import Framed, parcels_of

log = logging.getLogger("catchment.queries")

FORMAT = 1
"""Of the job's folder. A newer one is refused."""


_handles: dict[str, Handle] = {}
"""The last job of this process in each checkpoint."""


def held(home: Folder) -> Lock:
    """Holds a checkpoint for this process; a job of it that is over lets go of it."""
    before = _handles.pop(home.uri, None)
    if before is not None:
        before.release_if_over()
    return hold(home)


def start(
    job: JobModel,
    spark: SparkSession | None = None,
    events: DataFrame | None = None,
    lock: Lock | None = None,
) -> Handle:
    """Starts a job, or goes on with it where its checkpoint stands.

    `events` is a streaming DataFrame, instead of the job's source. `lock` is the checkpoint's, if
    it is held already; it is released when the job is over.
    """
    if events is not None:
        if job.source is not None:
            raise JobError("the job has two sources", hint="leave out source, or events")
        job = job.model_copy(update={"source": Framed.of(events)})
        spark = spark or events.sparkSession
    if job.source is None:
        raise JobError("the job has no source", hint="add source: {type: parquet, path: events/}")
    queries = job.build()
    sinks: tuple[Sink, ...] = job.sinks or (Memory(),)
    source = job.source
    source.check()
    for sink in sinks:
        sink.check()
    schema = source.event_schema()
    bind_types(make_plan(queries), schema, job.time, job.late)
    spark = spark or session()
    ship(spark)
    for key, value in streaming().items():
        spark.conf.set(key, value)
    checkpoint = job.checkpoint or tempfile.mkdtemp(prefix="catchment-")
    home = Folder(_absolute(checkpoint)).sub("catchment")
    lock = lock or held(home)
    try:
        return _begun(job, spark, events, sinks, schema, queries, checkpoint, lock)
    except BaseException:
        lock.release()
        raise


def _begun(
    job: JobModel,
    spark: SparkSession,
    events: DataFrame | None,
    sinks: tuple[Sink, ...],
    schema: pa.Schema,
    queries: list[Query],
    checkpoint: str,
    lock: Lock,
) -> Handle:
    home, source = Folder(_absolute(checkpoint)).sub("catchment"), job.source
    assert source is not None
    identity = job_identity(home, job, spark)
    # For commands that check a query against the events while the job runs.
    home.write(SCHEMA, schema.serialize().to_pybytes())
    buckets = identity["buckets"]
    spec = Spec(
        job=identity["job"],
        home=home,
        source=source,
        sinks=sinks,
        schema=schema,
        time=job.time,
        late=job.late,
        keep=None if job.keep is None else micros(job.keep),
        lateness=micros(job.lateness),
        idle=None if job.idle_timeout is None else micros(job.idle_timeout),
        ahead=None if job.max_ahead is None else micros(job.max_ahead),
        buckets=buckets,
        labels=labels(buckets),
        parallel=cores_of(spark),
        rate=job.rate,
        incomplete=job.incomplete,
        aside_bytes=job.aside_bytes,
        aside_disk_bytes=job.aside_disk_bytes,
        state_bytes=job.state_bytes,
        key_bytes=job.key_bytes,
    )
    said = take_up(spec, queries)
    handle = Handle(spec, spark, job, lock)
    _started(handle, job, spark, _absolute(checkpoint), events)
    handle.changes = said
    _handles[home.uri] = handle
    return handle


def _absolute(path: str) -> str:
    return path if "://" in path or path.startswith("file:") else os.path.abspath(path)


def job_identity(home: Folder, job: JobModel, spark: SparkSession) -> dict[str, Any]:
    """Who this job is, as its folder says; a new folder is given to this job."""
    assert job.source is not None
    held = home.read("job.json")
    if held is None:
        made = {
            "format": FORMAT,
            "job": job.new_identity(),
            "name": job.name,
            "source": job.source.type,
            "time": job.time,
            "late": job.late,
            "buckets": job.buckets or cores_of(spark),
            "tables": list(job.tables),
        }
        home.write("job.json", json.dumps(made).encode())
        return made
    found: dict[str, Any] = json.loads(held)
    if found["format"] > FORMAT:
        raise StateError(
            "the checkpoint was written by a newer version",
            given=f"format {found['format']}",
            hint=f"this version reads up to format {FORMAT}: upgrade it",
        )
    for key, value in {
        "name": job.name,
        "source": job.source.type,
        "time": job.time,
        "late": job.late,
    }.items():
        if found[key] != value:
            raise StateError(
                f"the checkpoint is of a job with another {key}",
                given=f"{found[key]!r} there, {value!r} here",
                hint="use another checkpoint, or the job file it was made with",
            )
    if found.get("tables") != list(job.tables):
        found["tables"] = list(job.tables)
        home.write("job.json", json.dumps(found).encode())
    return found


def take_up(spec: Spec, queries: list[Query]) -> list[str]:
    """What the job file says anew counts, else what was done to the job: sentences about both."""
    folder = QueryFolder(spec.home)
    given = [query.to_dict() for query in queries]
    held = spec.home.read("given.json")
    said: list[str] = []
    if held is None:
        folder.write_all(queries)
        first_plan(spec, queries)
        forget_plans()
    else:
        before = [Query.from_dict(query) for query in json.loads(held)]
        changes = file_changes(before, queries)
        said = folder.follow(changes)
        there = folder.read()[0]
        said += [removed_told(query.name) for query in queries if query.name not in there]
    spec.home.write("given.json", json.dumps(given).encode())
    for text in said:
        log.warning(text)
    return said


def _started(
    handle: Handle, job: JobModel, spark: SparkSession, checkpoint: str, events: DataFrame | None
) -> None:
    spec = handle.spec
    text = spec.to_text()
    if events is None:
        spark.dataSource.register(PartialsSource)
        parcels = spark.readStream.format(NAME).option("spec", text).load()
    else:
        parcels = parcels_of(events, spec)
    spark.conf.set("spark.sql.shuffle.partitions", str(spec.buckets))
    rows = parcels.groupBy("bucket").transformWithState(
        Bucket(text), OUTPUT, outputMode="Update", timeMode="None"
    )
    writer = rows.writeStream.foreachBatch(handle.batch).outputMode("update")
    writer = writer.option("checkpointLocation", f"{checkpoint}/spark").queryName(spec.job)
    if job.trigger == "available-now":
        writer = writer.trigger(availableNow=True)
    elif job.trigger in TRIGGERS:
        writer = writer.trigger(processingTime="0 seconds")
    else:
        writer = writer.trigger(processingTime=f"{period(job.trigger) // 1000} milliseconds")
    handle.attach(writer.start())
