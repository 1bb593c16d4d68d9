"""A user's own Spark DataFrame, sliced by Spark columns where edges are known ahead.

Groups that Spark can slice as we would become an aggregation each; all others share one stage in
Python, to which their columns are sent as Arrow batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from catchment.engine.binding import bind_types, columns_of
from catchment.engine.slicer import rank
from catchment.errors import SchemaError, SourceError
from catchment.expression import columns_read
from catchment.model.plan import Group, Plan
from catchment.model.time_column import TimeColumn, TimeSpec, time_name
from catchment.spark.catalyst import Recipe, ToPartials, aggregated, recipe
from catchment.spark.catalyst_columns import SparkField, SparkFields, UnlikeError
from catchment.spark.records import SplitRead
from catchment.spark.rows import PARCEL
from catchment.spark.tasks import Work, by_bucket, parcels, pieces, ready
from catchment.spark.types import arrow_type

_PIECE = 1 << 18
"""Rows sliced at once: Spark's own batches are too small to be worth the calls."""
_MOST_SCANS = 4
"""Aggregations that each read the DataFrame anew before one stage in Python is cheaper."""

GroupEngines = dict[int, tuple[str, str]]
"""By group: `columns` or `python`, and why."""


def sliced(
    events: DataFrame, plan: Plan, time: TimeSpec, work_of: Callable[[pa.Schema], Work]
) -> tuple[Work, DataFrame]:
    """The partials of a DataFrame's rows, by bucket."""
    if events.isStreaming:
        raise SourceError(
            "a streaming DataFrame has no end, and its results are no batch of rows",
            given="a streaming DataFrame",
            hint="take streaming DataFrames of results, ct.windows(frame, queries); run a job on "
            "it, ct.Job(queries=..., sinks=..., time=...).start(events=frame), or on its source, "
            "catchment run job.yaml; or read it as a batch: spark.read",
        )
    schema = arrow_schema(events.schema, plan, time_name(time))
    work = work_of(schema)
    work.bound()  # refuses queries that do not fit the events, before anything is read
    recipes = _recipes(plan, events.schema, schema, time)
    columns = {id: made for id, made in recipes.items() if isinstance(made, Recipe)}
    # By place, not by name: names may hold dots, or differ in case alone.
    plain = events.toDF(*(f"c{number}" for number in range(len(events.columns))))
    parts = []
    rest = tuple(group for group in plan.groups if group.id not in columns)
    if rest:
        parts.append(_in_python(plain, work, rest, events.schema))
    fields = _fields(events.schema)
    counter = None if rest else _counter(plan)
    for id, made in columns.items():
        rows = aggregated(plain, made, fields[time_name(time)], id == counter)
        task = ToPartials(work, id, made.cuts, id == counter)
        parts.append(rows.mapInArrow(task, PARCEL))
    return work, reduce(DataFrame.union, parts)


def _counter(plan: Plan) -> int | None:
    """The group whose aggregation counts all events: if it can, one that wants them all."""
    every = [group.id for group in plan.groups if group.selections == (None,)]
    return (every or [0])[0]


def how(plan: Plan, schema: StructType, time: TimeSpec) -> GroupEngines:
    """By group: `columns` where Spark slices, `python` where our own code does, and why."""
    made = _recipes(plan, schema, arrow_schema(schema, plan, time_name(time)), time)
    return {
        id: ("columns", found.cuts.describe()) if isinstance(found, Recipe) else ("python", found)
        for id, found in made.items()
    }


def _recipes(
    plan: Plan, spark: StructType, schema: pa.Schema, time: TimeSpec
) -> dict[int, Recipe | str]:
    """By group how Spark slices it, or why Python must."""
    _, types = bind_types(plan, schema, time)
    fields = _fields(spark)
    if isinstance(time, TimeColumn) or time not in fields:
        why = "its times are read by a unit or format, or are fields of a nested column"
        return {group.id: why for group in plan.groups}
    made: dict[int, Recipe | str] = {}
    for group in plan.groups:
        try:
            if not columns_of(group) <= fields.keys():
                raise UnlikeError("it reads fields of nested columns")
            made[group.id] = recipe(group, fields, types[group.id])
        except UnlikeError as why:
            made[group.id] = str(why)
    return _with_fewer_scans(plan, made)


def _with_fewer_scans(plan: Plan, made: dict[int, Recipe | str]) -> dict[int, Recipe | str]:
    """Leaves to Python what would cost more as an aggregation of its own.

    To bring rows to Python costs as much as a few aggregations; to slice them there for one group
    more costs less than one.
    """
    needs = {group.id: columns_of(group) for group in plan.groups}
    sent = set().union(*(needs[id] for id, found in made.items() if isinstance(found, str)))
    if any(isinstance(found, str) for found in made.values()):
        why = "Python gets its columns anyway"
        made = {id: why if _joins(f, needs[id], sent) else f for id, f in made.items()}
    scans = sum(isinstance(found, Recipe) for found in made.values())
    if scans > _MOST_SCANS:
        why = f"{scans} aggregations would read the events {scans} times"
        made = {id: why if isinstance(found, Recipe) else found for id, found in made.items()}
    return made


def _joins(found: Recipe | str, needs: set[str], sent: set[str]) -> bool:
    return isinstance(found, Recipe) and needs <= sent


def _fields(schema: StructType) -> SparkFields:
    return {
        field.name: SparkField(f"c{number}", field.dataType)
        for number, field in enumerate(schema.fields)
    }


def arrow_schema(schema: StructType, plan: Plan, time: str) -> pa.Schema:
    """The columns as Arrow has them; those that it cannot have must not be needed."""
    wanted = {time}.union(*(columns_of(group) for group in plan.groups))
    needed = columns_read(schema.names, wanted)
    fields = []
    for field in schema.fields:
        try:
            fields.append(pa.field(field.name, arrow_type(field.dataType)))
        except PySparkException as error:
            if field.name in needed:
                raise SchemaError(
                    f"column {field.name!r} has a type that Arrow has not",
                    given=field.dataType.simpleString(),
                    hint="cast it before",
                ) from error
    return pa.schema(fields)


def _in_python(
    plain: DataFrame, work: Work, groups: tuple[Group, ...], schema: StructType
) -> DataFrame:
    needed = {work.rules.time_name}.union(*(columns_of(group) for group in groups))
    read = columns_read(schema.names, needed)
    names = {f"c{n}": name for n, name in enumerate(schema.names) if name in read}
    task = SliceRows(work, tuple(group.id for group in groups), tuple(names.values()))
    return plain.select(*names).mapInArrow(task, PARCEL)


@dataclass(frozen=True)
class SliceRows:
    """Slices a partition's rows, in their order, for some groups of the plan."""

    work: Work
    groups: tuple[int, ...]
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        work = self.work
        part = Plan(groups=tuple(work.plan.groups[id] for id in self.groups))
        bound = work.bound(part)
        merger = bound.merger(number)
        slicer = bound.slicer(encoder=merger.encoder)
        arrival = handed = 0
        for piece in pieces(batches, _PIECE):
            events = piece.rename_columns(list(self.names))
            for sliced in slicer.slice(events, arrival=rank(number, arrival)):
                merger.add(sliced)
                note = SplitRead(number, handed)
                yield from parcels(by_bucket(work, ready(merger, sliced, number), note))
                handed += 1
            arrival += piece.num_rows
        last = SplitRead(number, handed, slicer.counts)
        yield from parcels(by_bucket(work, merger.take(number), last))
