"""Starting a streaming job: the checkpoint is found or made, and Spark wired up."""

from __future__ import annotations

import logging
import tempfile

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from catchment.durable.folder import Folder
from catchment.durable.lock import Lock, hold
from catchment.engine.binding import bind_types
from catchment.errors import JobError, StateError
from catchment.job.model import TRIGGERS, period
from catchment.job.model import JobModel as JobModel
from catchment.model import records
from catchment.model.definition import file_changes, removal_text
from catchment.model.early import emit_of
from catchment.model.query import Query, QueryRecord
from catchment.model.time_column import time_name
from catchment.planner import plan as make_plan
from catchment.sinks.base import Sink
from catchment.sinks.memory import Memory
from catchment.spark.batch import needed
from catchment.spark.batch_commit import CommitBatch, commit_here, refuse_in_server
from catchment.spark.bucket_keys import labels
from catchment.spark.handle import Handle
from catchment.spark.job_folder import GIVEN, SCHEMA, home_of, spark_checkpoint
from catchment.spark.planning import first_plan
from catchment.spark.queries import FORMAT, IDENTITY, QueryFolder, read_identity
from catchment.spark.records import JobIdentity
from catchment.spark.session import cores_of, is_connect, session, ship
from catchment.spark.spec import Spec, forget_plans
from catchment.spark.streaming_frame import columns_of, parcels_of
from catchment.spark.streaming_query import assemble_buckets, read_parcels, start_query

log = logging.getLogger("catchment.queries")

_handles: dict[str, Handle] = {}
"""The last job of this process in each checkpoint."""


def lock_checkpoint(home: Folder) -> Lock:
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
        schema = columns_of(events)
        spark = spark or events.sparkSession
    elif job.source is None:
        raise JobError("the job has no source", hint="add source: {type: parquet, path: events/}")
    queries = job.build()
    sinks: tuple[Sink, ...] = job.sinks or (Memory(),)
    if job.source is not None:
        job.source.check()
    for sink in sinks:
        sink.check()
    if job.source is not None:
        schema = job.source.event_schema()
    bind_types(make_plan(queries), schema, job.time, job.late)
    spark = spark or session()
    if is_connect(spark):
        refuse_in_server(sinks)
    ship(spark)
    checkpoint = job.checkpoint or tempfile.mkdtemp(prefix="catchment-")
    home = home_of(checkpoint)
    lock = lock or lock_checkpoint(home)
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
    home = home_of(checkpoint)
    identity = job_identity(home, job, spark)
    refuse_other_types(home, schema, needed(make_plan(queries), time_name(job.time), schema))
    # For commands that check a query against the events while the job runs.
    home.write(SCHEMA, schema.serialize().to_pybytes())
    buckets = identity.buckets
    spec = Spec(
        job=identity.job,
        home=home,
        source=job.source,
        sinks=sinks,
        schema=schema,
        **job.stream_options(),
        buckets=buckets,
        labels=labels(buckets),
        parallel=cores_of(spark),
        metered=job.metrics is not None,
    )
    said = take_up(spec, queries)
    handle = Handle(spec, spark, job, lock)
    _started(handle, job, spark, checkpoint, events)
    handle.changes = said
    _handles[home.uri] = handle
    return handle


def job_identity(home: Folder, job: JobModel, spark: SparkSession) -> JobIdentity:
    """Who this job is, as its folder says; a new folder is given to this job."""
    source = "frame" if job.source is None else job.source.type
    found = read_identity(home)
    if found is None:
        buckets = job.buckets or cores_of(spark)
        made = JobIdentity(
            FORMAT,
            job.new_identity(),
            job.name,
            source,
            job.time,
            job.late,
            buckets,
            job.tables,
            emit_of(job.emit),
        )
        home.write(IDENTITY, records.encode(made))
        return made
    for what, there, here in (
        ("name", found.name, job.name),
        ("source", found.source, source),
        ("time", found.time, job.time),
        ("late", found.late, job.late),
        ("emit", found.emit, emit_of(job.emit)),
    ):
        if there != here:
            raise StateError(
                f"the checkpoint is of a job with another {what}",
                given=f"{there!r} there, {here!r} here",
                hint="use another checkpoint, or the job file it was made with",
            )
    if found.tables != job.tables:
        found = replace(found, tables=job.tables)
        home.write(IDENTITY, records.encode(found))
    return found


def refuse_other_types(home: Folder, schema: pa.Schema, columns: list[str]) -> None:
    """Refuses events whose columns have other types than those of the run before: what is held of
    open windows has the types of then."""
    held = home.read(SCHEMA)
    before = schema if held is None else pa.ipc.read_schema(pa.py_buffer(held))
    for name in columns:
        place = before.get_field_index(name)
        if place >= 0 and before.field(place).type != schema.field(name).type:
            raise StateError(
                f"column {name!r} of the events has another type than when the job last ran",
                given=f"{before.field(place).type} there, {schema.field(name).type} here",
                hint="cast it as it was, or use another checkpoint",
            )


def take_up(spec: Spec, queries: list[Query]) -> list[str]:
    """What the job file says anew counts, else what was done to the job: sentences about both."""
    folder = QueryFolder(spec.home)
    held = spec.home.read(GIVEN)
    said: list[str] = []
    if held is None:
        folder.write_all(queries)
        first_plan(spec, queries)
        forget_plans()
    else:
        what = f"{spec.home.shown}/{GIVEN}"
        before = [Query.of(query) for query in records.decode(list[QueryRecord], held, what)]
        changes = file_changes(before, queries)
        said = folder.follow(changes)
        there = folder.read()[0]
        said += [removal_text(query.name) for query in queries if query.name not in there]
    spec.home.write(GIVEN, records.encode([query.record() for query in queries]))
    for text in said:
        log.warning(text)
    return said


def _started(
    handle: Handle, job: JobModel, spark: SparkSession, checkpoint: str, events: DataFrame | None
) -> None:
    spec = handle.spec
    parcels = read_parcels(spark, spec) if events is None else parcels_of(events, spec)
    rows = assemble_buckets(spec, parcels)
    if not is_connect(spark):
        commit_here(spec.home.uri, handle.batch)
    each = CommitBatch(spec.home.uri, spec.to_text())
    writer = rows.writeStream.foreachBatch(each).outputMode("update")
    writer = writer.option("checkpointLocation", spark_checkpoint(checkpoint)).queryName(spec.job)
    if job.trigger == "available-now":
        writer = writer.trigger(availableNow=True)
    elif job.trigger in TRIGGERS:
        writer = writer.trigger(processingTime="0 seconds")
    else:
        writer = writer.trigger(processingTime=f"{period(job.trigger) // 1000} milliseconds")
    handle.attach(start_query(spark, spec, writer))
