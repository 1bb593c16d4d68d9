"""Looking at a job before it runs: what it reads and writes, and whether that is there.

A job file goes in (`inspect`); a report of everything that keeps the job from running comes out:
the mistakes of the file, those of its queries, and, where a source can be reached, all that does
not fit the columns of its events, and results that a sink never takes. A source that cannot be
reached is a warning: nothing is known of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from catchment.durable.folder import Folder
from catchment.engine.binding import bind_types, misfits
from catchment.engine.bound import BoundPlan
from catchment.engine.times import timed_schema
from catchment.errors import (
    CatchmentError,
    JobError,
    QueryError,
    SchemaError,
    SinkError,
    UnreachableError,
)
from catchment.job import JobModel, Mistake, examine
from catchment.job.topology import node_mistakes, sink_mistakes
from catchment.model.duration import micros, show
from catchment.model.plan import Plan
from catchment.model.query import Query
from catchment.model.rules import EventRules
from catchment.model.time_column import time_name
from catchment.planner import plan
from catchment.sinks import Sink, SparkFormat
from catchment.sources import Source

_SHOWN = ("path", "topic", "servers", "namespace", "prefix", "url", "host", "events")
"""Options that say which source or sink it is. Others may hold secrets."""
_PATIENCE = "5s"
"""How long a source that does not answer is waited for, where it need not answer."""


@dataclass(frozen=True)
class Report:
    """What was found out about a job."""

    job: JobModel | None
    """Without the parts that are wrong; None where nothing is left of it."""
    queries: int = 0
    columns: int | None = None
    """How many columns the events have, where a source could be asked."""
    mistakes: tuple[Mistake, ...] = ()
    warnings: tuple[Mistake, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "fine": not self.mistakes,
            "queries": self.queries,
            "columns": self.columns,
            "mistakes": [mistake.to_dict() for mistake in self.mistakes],
            "warnings": [warning.to_dict() for warning in self.warnings],
        }

    @property
    def code(self) -> int:
        """The exit code: 2 when what was given is wrong, 1 when it cannot be done now."""
        wrong = (JobError, QueryError, SchemaError)
        return 2 if any(isinstance(m.error, wrong) for m in self.mistakes) else 1


def inspect(path: Path, *, connect: bool = False, offline: bool = False) -> Report:
    """All that is wrong with a job, as far as its file and its sources tell.

    With `connect`, sources and sinks must answer; `offline`, none of them is asked.
    """
    found = examine(path)
    mistakes: list[Mistake] = list(found.mistakes)
    warnings: list[Mistake] = []
    if found.job is None:
        return Report(None, mistakes=tuple(mistakes))
    job = found.job
    if job.nodes and "nodes" not in found.left_out:
        mistakes += [Mistake("nodes", error) for error in _nodes(job)]
    numbers = found.numbers.get("sinks", ())
    mistakes += _unwritable(job, numbers)
    plans: dict[str, Plan] = {}
    for number, query in sorted({**found.queries, **found.mistimed}.items()):
        try:
            plans[f"queries[{number}]"] = plan([query])
        except CatchmentError as error:
            mistakes.append(Mistake(f"queries[{number}]", error))
    if connect and job.source is None and not job.nodes and "source" not in found.left_out:
        mistakes.append(Mistake("source", _no_source()))
    asked = [] if offline else list(sources(job, found.numbers.get("nodes", ())))
    looks = [_look(place, source, connect) for place, source in asked]
    for one in looks:
        (mistakes if connect or one.wrong else warnings).extend(one.mistakes)
    time = "time" in {mistake.place for mistake in mistakes}
    mistakes += _misfits(job, plans, [one for one in looks if one.schema is not None], time)
    fitting = [
        (plans[place], [query])
        for number, query in found.queries.items()
        if (place := f"queries[{number}]") in plans
    ]
    schemas = [one.schema for one in looks if one.schema is not None]
    mistakes += _unfit_for_sinks(job, numbers, fitting, schemas)
    if connect and not offline:
        mistakes += _sinks(job)
    known = [len(one.schema) for one in looks if one.schema is not None]
    columns = known[0] if known else None
    return Report(job, len(found.queries), columns, tuple(mistakes), tuple(warnings))


def sources(job: JobModel, numbers: Sequence[int]) -> Iterator[tuple[str, Source]]:
    """The sources of a job or of the nodes of its tree, by their places in the job file."""
    if job.source is not None:
        yield "source", job.source
    for number, node in zip(numbers, job.nodes, strict=True):
        if node.source is not None:
            yield f"nodes[{number}].source", node.source


def _nodes(job: JobModel) -> Iterator[JobError]:
    """What keeps the nodes of a job file from being a tree.

    A file may hold some nodes of a tree whose others are on other hosts: these have an address for
    a parent, and the root is elsewhere.
    """
    apart = any(node.parent is not None and ":" in node.parent for node in job.nodes)
    if not apart:
        yield from node_mistakes(job.nodes)
    for node in job.nodes:
        if job.checkpoint is None and node.home is None:
            hint = "add checkpoint: folder/ to the job file"
            yield JobError("a node needs a folder", given=node.id, hint=hint)


@dataclass(frozen=True)
class _ExaminedSource:
    """What a source tells without its events being read."""

    place: str
    schema: pa.Schema | None
    mistakes: tuple[Mistake, ...] = ()
    """Why it cannot be used now."""
    wrong: bool = False
    """Whether it is there, and wrong."""


def _look(place: str, source: Source, connect: bool) -> _ExaminedSource:
    """Asks a source for its columns; where these are given in the file, it need not answer."""
    if not connect and "timeout" in type(source).model_fields:
        source = source.model_copy(update={"timeout": _PATIENCE})
    try:
        source.check()
        return _ExaminedSource(place, source.event_schema())
    except CatchmentError as error:
        mistakes = (Mistake(place, error),)
        wrong = not isinstance(error, UnreachableError)
    try:
        return _ExaminedSource(place, source.event_schema(), mistakes, wrong)
    except CatchmentError:
        return _ExaminedSource(place, None, mistakes, wrong)


def _misfits(
    job: JobModel, plans: dict[str, Plan], looks: list[_ExaminedSource], time: bool
) -> Iterator[Mistake]:
    """What does not fit the columns of the events. What is wrong over every source is told once."""
    found: dict[tuple[str, str, str], tuple[CatchmentError, list[str]]] = {}
    for one in looks:
        assert one.schema is not None
        for place, error in _over(job, plans, one.schema, time):
            same = (place, error.what, str(error.given))  # hints may differ
            found.setdefault(same, (error, []))[1].append(one.place)
    for (place, *_), (error, where) in found.items():
        some = "" if len(where) == len(looks) else f", over {', '.join(where)}"
        yield Mistake(place + some, error)


def _over(
    job: JobModel, plans: dict[str, Plan], schema: pa.Schema, time: bool
) -> Iterator[tuple[str, CatchmentError]]:
    if not time:
        try:
            schema = timed_schema(schema, job.time)
        except CatchmentError as error:
            yield "time", error
    for place, made in plans.items():
        yield from ((place, misfit) for misfit in misfits(made, schema))


def _unwritable(job: JobModel, numbers: Sequence[int]) -> Iterator[Mistake]:
    """Sinks to which a job of this kind does not write, whatever its results are."""
    for number, error in zip(numbers, sink_mistakes(job.nodes, job.sinks), strict=True):
        if error is not None:
            yield Mistake(f"sinks[{number}]", error)
    for number, sink in zip(numbers, job.sinks, strict=True):
        if isinstance(sink, SparkFormat) and job.trigger == "batch" and not job.nodes:
            error = JobError(
                "a batch job does not write through Spark's formats",
                given=f"format: {sink.format}",
                hint="say trigger: available-now, or write frames: ct.windows(events, queries)",
            )
            yield Mistake(f"sinks[{number}]", error)


def _unfit_for_sinks(
    job: JobModel,
    numbers: Sequence[int],
    fitting: Sequence[tuple[Plan, Sequence[Query]]],
    schemas: Sequence[pa.Schema],
) -> Iterator[Mistake]:
    """Results that sinks never take; what is so over several sources is told once."""
    sinks: tuple[Sink, ...] = job.sinks
    keys = {query.name: query.keys for _, queries in fitting for query in queries}
    told: set[tuple[int, str]] = set()
    for schema in schemas:
        results: dict[str, pa.Schema] = {}
        for made, queries in fitting if any(map(_judges, sinks)) else ():
            results |= _result_schemas(job, made, queries, schema)
        for number, sink in zip(numbers, sinks, strict=True):
            for error in _refused(sink, results, keys):
                if (number, str(error)) not in told:
                    told.add((number, str(error)))
                    wrong = JobError(error.what, given=error.given, hint=error.hint)
                    yield Mistake(f"sinks[{number}]", wrong)


def _judges(sink: Sink) -> bool:
    """Whether a sink does not take whatever results there are."""
    return isinstance(sink, SparkFormat) or type(sink).misfits is not Sink.misfits


def _result_schemas(
    job: JobModel, made: Plan, queries: Sequence[Query], schema: pa.Schema
) -> dict[str, pa.Schema]:
    """The columns of results, by query; none where a plan does not fit the events: that is told."""
    try:
        shapes = BoundPlan(made, EventRules(job.time), schema).shapes
        places = [(query.name, *made.names[query.name]) for query in queries]
        return {name: shapes[group].result_schema(answer) for name, group, answer in places}
    except CatchmentError:
        return {}


def _refused(
    sink: Sink, results: Mapping[str, pa.Schema], keys: Mapping[str, tuple[str, ...]]
) -> Iterable[SinkError]:
    from catchment.cli.needs import has_spark

    yield from sink.misfits(results, keys)
    if isinstance(sink, SparkFormat) and has_spark():
        from catchment.spark.format_sink import taken_columns

        for name, schema in results.items():
            yield from taken_columns(sink, name, schema.names)


def _sinks(job: JobModel) -> Iterator[Mistake]:
    sinks: tuple[Sink, ...] = job.sinks
    for number, sink in enumerate(sinks):
        try:
            sink.check()
        except CatchmentError as error:
            yield Mistake(f"sinks[{number}]", error)


def connect(job: JobModel) -> pa.Schema:
    """Asks source and sinks whether they can be used, and fits the queries to the events."""
    source = source_of(job)
    source.check()
    sinks: tuple[Sink, ...] = job.sinks
    for sink in sinks:
        sink.check()
    schema = source.event_schema()
    queries = job.build()
    made = plan(queries)
    bind_types(made, schema, job.time, job.late)
    for mistake in _unfit_for_sinks(job, range(len(sinks)), [(made, queries)], [schema]):
        raise mistake.error
    return schema


def source_of(job: JobModel) -> Source:
    """The job's source, which a job that runs must have."""
    if job.source is None:
        raise _no_source()
    source: Source = job.source
    return source


def _no_source() -> JobError:
    return JobError("the job has no source", hint="add source: {type: parquet, path: events/}")


def summary(part: Source | Sink) -> str:
    """A source or sink in a few words.

    >>> from catchment.sinks.parquet import ParquetSink
    >>> summary(ParquetSink(path="results/"))
    'parquet: path results/'
    """
    kind: Any = part
    named = ((name, getattr(part, name, None)) for name in _SHOWN)
    words = [f"{name} {_plain(value)}" for name, value in named if value not in (None, "", ())]
    return f"{kind.type}: {', '.join(words)}" if words else str(kind.type)


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


@dataclass
class ReachedSource:
    """What could be learnt of a source without reading its events."""

    schema: pa.Schema | None = None
    partitions: list[str] = field(default_factory=list)
    why: str = ""
    """Why nothing is known."""


def look(source: Source) -> ReachedSource:
    """The columns and partitions of a source, if it can be reached."""
    found = ReachedSource()
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


def runtime(job: JobModel) -> str:
    """How the job will run, in plain words; empty where it says nothing of events."""
    if job.source is None:
        return ""
    source = source_of(job)
    reach = look(source)
    sinks: tuple[Sink, ...] = job.sinks
    lines = [
        f"source: {summary(source)}{_partitions(reach)}",
        *_columns(job, reach),
        _trigger(job),
        f"late events: {_late(job)}",
        f"keys are shared out over {job.buckets or 'as many'} buckets"
        + ("" if job.buckets else " as there are cores"),
        _state(job),
        *(f"sink: {summary(sink)}" for sink in sinks or ()),
        *([] if sinks else ["no sink: results are only printed"]),
    ]
    marks = ["├─"] * (len(lines) - 1) + ["└─"]
    branches = [f"  {mark} {line}" for mark, line in zip(marks, lines, strict=True)]
    return "\n".join(["runtime: Apache Spark", *branches])


def _partitions(reach: ReachedSource) -> str:
    if reach.why:
        return f" (it cannot be read now: {reach.why})"
    if not reach.partitions:
        return "; its partitions become known as events come"
    return f"; {len(reach.partitions)} partition(s) known"


def _columns(job: JobModel, reach: ReachedSource) -> list[str]:
    from catchment.cli.needs import has_spark

    if reach.schema is None or not has_spark():
        return []
    from catchment.spark.batch import common_condition, needed

    made = plan(job.build())
    every = reach.schema.names
    batch = job.trigger == "batch"
    names = (
        every
        if job.late == "collect" and not batch
        else needed(made, time_name(job.time), reach.schema)
    )
    lines = [f"columns read: {', '.join(names)} ({len(names)} of {len(every)})"]
    condition = common_condition(made)
    if not batch:
        lines.append("every event is read and counted, whatever the queries select")
    elif condition is None:
        lines.append("every event is read: some query takes them all")
    else:
        lines.append(f"left out while reading, where the source can: all but {condition}")
    return lines


def _trigger(job: JobModel) -> str:
    if job.trigger == "batch":
        return "trigger batch: everything is read at once, then every window is complete"
    if job.trigger == "available-now":
        return "trigger available-now: reads what there is, keeps the open windows, and stops"
    if job.trigger == "continuous":
        return "trigger continuous: the next batch begins when one is done"
    return f"trigger {job.trigger}: a batch every {show(micros(job.trigger))}"


def _late(job: JobModel) -> str:
    words = {"drop": "dropped and counted", "collect": "set aside", "update": "correct results"}
    wait = f", after {job.lateness} of patience" if micros(job.lateness) else ""
    return words.get(job.late, str(job.late)) + wait


def _state(job: JobModel) -> str:
    where = job.checkpoint or "a folder that is not kept"
    if job.trigger == "batch":
        return f"state: none but a note in {where} that results were delivered"
    return f"state: open windows as partials in Spark's store, in {where}"
