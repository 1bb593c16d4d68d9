"""Starting a streaming job: the checkpoint is found or made, and Spark wired up."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from catchment.engine.binding import bind_types
from catchment.errors import JobError, StateError
from catchment.folder import Folder
from catchment.job.model import TRIGGERS, period
from catchment.job.model import Job as JobModel
from catchment.model.duration import micros
from catchment.model.query import Query
from catchment.planner import plan as make_plan
from catchment.sinks.base import Sink
from catchment.sinks.memory import Memory
from catchment.spark.datasource import NAME, PartialsSource
from catchment.spark.framed import Framed, parcels_of
from catchment.spark.handle import Handle
from catchment.spark.labels import labels
from catchment.spark.planning import first_plan
from catchment.spark.queries import QueryFolder
from catchment.spark.rows import OUTPUT
from catchment.spark.session import cores_of, session, ship, streaming
from catchment.spark.spec import Spec, forget_plans
from catchment.spark.state import Bucket

FORMAT = 1
"""Of the job's folder. A newer one is refused."""


def start(
    job: JobModel, spark: SparkSession | None = None, events: DataFrame | None = None
) -> Handle:
    """Starts a job, or goes on with it where its checkpoint stands.

    `events` is a streaming DataFrame, instead of the job's source.
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
    identity = _identity(home, job, spark)
    buckets = identity["buckets"]
    spec = Spec(
        job=identity["job"], home=home, source=source, sinks=sinks, schema=schema, time=job.time,
        late=job.late, keep=None if job.keep is None else micros(job.keep),
        lateness=micros(job.lateness),
        idle=None if job.idle_timeout is None else micros(job.idle_timeout),
        ahead=None if job.max_ahead is None else micros(job.max_ahead),
        buckets=buckets, labels=labels(buckets), parallel=cores_of(spark), rate=job.rate,
        count=job.counted if events is None else "central", incomplete=job.incomplete,
        aside_bytes=job.aside_bytes, aside_disk_bytes=job.aside_disk_bytes,
        state_bytes=job.state_bytes,
    )  # fmt: skip
    _queries(spec, queries)
    return _started(spec, job, spark, _absolute(checkpoint), events)


def _absolute(path: str) -> str:
    return path if "://" in path or path.startswith("file:") else os.path.abspath(path)


def _identity(home: Folder, job: JobModel, spark: SparkSession) -> dict[str, Any]:
    """Who this job is, as its folder says; a new folder is given to this job."""
    assert job.source is not None
    held = home.read("job.json")
    if held is None:
        made = {
            "format": FORMAT, "job": job.new_identity(),
            "name": job.name, "source": job.source.type, "time": job.time,
            "late": job.late, "buckets": job.buckets or cores_of(spark),
        }  # fmt: skip
        home.write("job.json", json.dumps(made).encode())
        return made
    found: dict[str, Any] = json.loads(held)
    if found["format"] > FORMAT:
        raise StateError(
            "the checkpoint was written by a newer version", given=f"format {found['format']}",
            hint=f"this version reads up to format {FORMAT}: upgrade it",
        )  # fmt: skip
    for key, value in {
        "name": job.name, "source": job.source.type, "time": job.time, "late": job.late,
    }.items():  # fmt: skip
        if found[key] != value:
            raise StateError(
                f"the checkpoint is of a job with another {key}",
                given=f"{found[key]!r} there, {value!r} here",
                hint="use another checkpoint, or the job file it was made with",
            )
    return found


def _queries(spec: Spec, queries: list[Query]) -> None:
    """The job file's queries join those in the folder; what left the file leaves the job."""
    folder = QueryFolder(spec.home)
    given = [query.to_dict() for query in queries]
    if spec.home.read("given.json") is None:
        folder.write_all(queries)
        first_plan(spec, queries)
        forget_plans()
    else:
        before = json.loads(spec.home.read("given.json") or b"[]")
        if before != given:
            _change(folder, [Query.from_dict(query) for query in before], queries)
    spec.home.write("given.json", json.dumps(given).encode())


def _change(folder: QueryFolder, before: list[Query], after: list[Query]) -> None:
    known = folder.read()[0]
    for query in before:
        if query not in after and query.name in known:
            folder.remove(query.name)
    known = folder.read()[0]
    for query in after:
        if query.name not in known:
            folder.add(query)


def _started(
    spec: Spec, job: JobModel, spark: SparkSession, checkpoint: str, events: DataFrame | None
) -> Handle:
    text = spec.to_text()
    handle = Handle(spec, spark, job)
    if events is None:
        spark.dataSource.register(PartialsSource)
        parcels = spark.readStream.format(NAME).option("spec", text).load()
    else:
        parcels = parcels_of(events, spec)
    spark.conf.set("spark.sql.shuffle.partitions", str(spec.buckets))
    rows = parcels.groupBy("bucket").transformWithState(
        Bucket(text), OUTPUT, outputMode="Update", timeMode="None"
    )
    writer = rows.writeStream.foreachBatch(handle.steward).outputMode("update")
    writer = writer.option("checkpointLocation", f"{checkpoint}/spark").queryName(spec.job)
    if job.trigger == "available-now":
        writer = writer.trigger(availableNow=True)
    elif job.trigger in TRIGGERS:
        writer = writer.trigger(processingTime="0 seconds")
    else:
        writer = writer.trigger(processingTime=f"{period(job.trigger) // 1000} milliseconds")
    handle.attach(writer.start())
    return handle
