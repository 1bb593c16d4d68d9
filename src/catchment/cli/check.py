"""Looking at a job before it runs: what it reads and writes, and whether that is there."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from catchment.durable.folder import Folder
from catchment.engine.binding import bind_types
from catchment.errors import CatchmentError, JobError
from catchment.job import Job
from catchment.model.duration import micros, show
from catchment.planner import plan
from catchment.sinks import Sink
from catchment.sources import Source

_SHOWN = ("path", "topic", "servers", "namespace", "prefix", "url", "host", "events")
"""Options that say which source or sink it is. Others may hold secrets."""


def connect(job: Job) -> pa.Schema:
    """Asks source and sinks whether they can be used, and fits the queries to the events."""
    source = source_of(job)
    source.check()
    sinks: tuple[Sink, ...] = job.sinks
    for sink in sinks:
        sink.check()
    schema = source.event_schema()
    bind_types(plan(job.build()), schema, job.time, job.late)
    return schema


def source_of(job: Job) -> Source:
    """The job's source, which a job that runs must have."""
    if job.source is None:
        raise JobError("the job has no source", hint="add source: {type: parquet, path: events/}")
    source: Source = job.source
    return source


def told(part: Source | Sink) -> str:
    """A source or sink in a few words.

    >>> from catchment.sinks.parquet import ParquetSink
    >>> told(ParquetSink(path="results/"))
    'parquet: path results/'
    """
    kind: Any = part
    named = ((name, getattr(part, name, None)) for name in _SHOWN)
    words = [f"{name} {_plain(value)}" for name, value in named if value not in (None, "", ())]
    return f"{kind.type}: {', '.join(words)}" if words else str(kind.type)


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


@dataclass
class Reach:
    """What could be learnt of a source without reading its events."""

    schema: pa.Schema | None = None
    partitions: list[str] = field(default_factory=list)
    why: str = ""
    """Why nothing is known."""


def look(source: Source) -> Reach:
    """The columns and partitions of a source, if it can be reached."""
    found = Reach()
    try:
        source.check()
        found.schema = source.event_schema()
        with tempfile.TemporaryDirectory(prefix="catchment-") as home:
            source.open(Folder(home))
            try:
                found.partitions = source.partitions(source.start())
            finally:
                source.close()
    except CatchmentError as error:
        found.why = str(error)
    return found


def runtime(job: Job) -> str:
    """How the job will run, in plain words; empty where it says nothing of events."""
    if job.source is None:
        return ""
    source = source_of(job)
    reach = look(source)
    sinks: tuple[Sink, ...] = job.sinks
    lines = [
        f"source: {told(source)}{_partitions(reach)}",
        *_columns(job, reach),
        _trigger(job),
        f"late events: {_late(job)}",
        f"keys are shared out over {job.buckets or 'as many'} buckets"
        + ("" if job.buckets else " as there are cores"),
        _state(job),
        *(f"sink: {told(sink)}" for sink in sinks or ()),
        *([] if sinks else ["no sink: results are only printed"]),
    ]
    marks = ["├─"] * (len(lines) - 1) + ["└─"]
    branches = [f"  {mark} {line}" for mark, line in zip(marks, lines, strict=True)]
    return "\n".join(["runtime: Apache Spark", *branches])


def _partitions(reach: Reach) -> str:
    if reach.why:
        return f" (it cannot be read now: {reach.why})"
    if not reach.partitions:
        return "; its partitions become known as events come"
    return f"; {len(reach.partitions)} partition(s) known"


def _columns(job: Job, reach: Reach) -> list[str]:
    from catchment.cli.needs import has_spark

    if reach.schema is None or not has_spark():
        return []
    from catchment.spark.batch import common_condition, needed

    made = plan(job.build())
    every = reach.schema.names
    batch = job.trigger == "batch"
    names = every if job.late == "collect" and not batch else needed(made, job.time, reach.schema)
    lines = [f"columns read: {', '.join(names)} ({len(names)} of {len(every)})"]
    condition = common_condition(made)
    if not batch:
        lines.append("every event is read and counted, whatever the queries select")
    elif condition is None:
        lines.append("every event is read: some query takes them all")
    else:
        lines.append(f"left out while reading, where the source can: all but {condition}")
    return lines


def _trigger(job: Job) -> str:
    if job.trigger == "batch":
        return "trigger batch: everything is read at once, then every window is complete"
    if job.trigger == "available-now":
        return "trigger available-now: reads what there is, keeps the open windows, and stops"
    if job.trigger == "continuous":
        return "trigger continuous: the next batch begins when one is done"
    return f"trigger {job.trigger}: a batch every {show(micros(job.trigger))}"


def _late(job: Job) -> str:
    words = {"drop": "dropped and counted", "collect": "set aside", "update": "correct results"}
    wait = f", after {job.lateness} of patience" if micros(job.lateness) else ""
    return words.get(job.late, str(job.late)) + wait


def _state(job: Job) -> str:
    where = job.checkpoint or "a folder that is not kept"
    if job.trigger == "batch":
        return f"state: none but a note in {where} that results were delivered"
    return f"state: open windows as partials in Spark's store, in {where}"
