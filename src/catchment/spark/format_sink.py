"""Writes the results of a batch in a format of Spark, from the executors that hold them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from catchment.errors import SinkError
from catchment.model.names import file_name
from catchment.sinks.naming import digest
from catchment.sinks.spark_format import SparkFormat
from catchment.spark.assembling import results_in
from catchment.spark.records import Control
from catchment.spark.shared_rows import SharedColumns, frame_of_query, queries_in
from catchment.spark.spec import Spec

_FILES = ("parquet", "orc", "json", "csv", "avro", "text", "xml")
"""Formats of files, which replace the folder of a batch that comes again."""
_BATCH = "batch"
_OWNER = "_catchment"
"""The folder, beside those of batches, that says whose they are: readers of Spark pass over it."""
_owned = set[tuple[str, str]]()
"""Folders of results of which this process knows that they are a job's, each with the job."""
_PLAIN = re.compile("[a-z_][a-z0-9_]{0,127}")
_MADE = re.compile(r"_[a-z2-7]{26}\Z")
"""How the name of a table ends that has a digest in it."""


@dataclass(frozen=True)
class ReadDelivered:
    """The rows of all queries, of the results that buckets give."""

    spec: str
    plan: int
    shared: SharedColumns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bound = Spec.from_text(self.spec).bound(self.plan)
        for results in results_in(bound, batches):
            yield from self.shared.rows(results.items())


def write_batch(spec: Spec, sinks: list[SparkFormat], rows: DataFrame, control: Control) -> None:
    """Writes what buckets gave in a batch; done again, it changes nothing where it can be told."""
    planned, nothing = spec.plan(control.plan), spec.bound(control.plan).no_results()
    shared = SharedColumns.of({name: nothing[name].schema for name in planned.queries})
    task = ReadDelivered(spec.to_text(), control.plan, shared)
    bodies = rows.where("kind = 'results'").select("body")
    kept = bodies.mapInArrow(task, shared.spark_schema()).persist()
    try:
        # Each write is a job of Spark: those of queries without results would be for nothing.
        for name in sorted(queries_in(kept)):
            frame = frame_of_query(kept, shared, name)
            for sink in sinks:
                write_frame(sink, frame, planned.output(name), spec.job, control.batch)
    finally:
        kept.unpersist()


def write_frame(sink: SparkFormat, frame: DataFrame, name: str, job: str, batch: int) -> None:
    """Writes the rows that a query gave in a batch to its folder or table."""
    mode = "append"
    options = dict(sink.options)
    path = None if sink.path is None else folder_of(sink.path, name)
    writer = frame.write
    if sink.format == "delta":
        options |= {"txnAppId": f"{job} {name}", "txnVersion": str(batch)}
    elif has_batches(sink):
        for error in taken_columns(sink, name, frame.columns):
            raise error
        assert path is not None
        own(frame.sparkSession, path, job)
        writer = frame.withColumn(_BATCH, sf.lit(batch)).write.partitionBy(_BATCH)
        options["partitionOverwriteMode"] = "dynamic"
        mode = "overwrite"
    writer = writer.format(sink.format).mode(mode).options(**options)
    if sink.table is not None:
        writer.saveAsTable(table_name(sink.table, name))
    else:
        writer.save(path)


def folder_of(path: str, query: str) -> str:
    """The folder of a query's results.

    >>> folder_of("out/", "a"), folder_of("lake/{query}/all", "a/b")
    ('out/a', 'lake/a@2fb/all')
    """
    name = file_name(query)
    return path.replace("{query}", name) if "{query}" in path else f"{path.rstrip('/')}/{name}"


def own(spark: SparkSession, path: str, job: str) -> None:
    """Marks a folder of results as a job's; raises if it is another's, whose batches would be
    replaced: batches of all jobs have the same names.

    Spark writes the mark, since it may be the only one that reaches the folder.
    """
    if (path, job) in _owned:
        return
    mark = f"{path}/{_OWNER}"
    owner = _owner(spark, mark)
    if owner is None:
        made = spark.range(1, numPartitions=1).select(sf.lit(job).alias("job"))
        made.write.mode("overwrite").text(mark)
        owner = _owner(spark, mark)
    if owner != job:
        raise SinkError(
            "the folder holds results of another job",
            given=f"{path}: {owner}",
            hint="batches of two jobs have the same names; give each job its own folder",
        )
    _owned.add((path, job))


def _owner(spark: SparkSession, mark: str) -> str | None:
    """The job that a mark names; None where there is no mark, or half of one."""
    try:
        row = spark.read.text(mark).first()
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None
    return None if row is None else str(row[0])


def has_batches(sink: SparkFormat) -> bool:
    """Whether the files of each batch have a folder of their own."""
    return sink.format in _FILES and sink.path is not None


def taken_columns(sink: SparkFormat, query: str, columns: Iterable[str]) -> Iterator[SinkError]:
    """Columns of results that Spark, which ignores case, would take for another or replace."""
    first: dict[str, str] = {}
    for column in columns:
        if has_batches(sink) and column.lower() == _BATCH:
            yield SinkError(
                f"query {query!r} has a column that files of Spark have for the number of a batch",
                given=column,
                hint="give it another name, as in AS batch_of, or write to a table",
            )
        elif (other := first.setdefault(column.lower(), column)) != column:
            yield SinkError(
                f"query {query!r} has two columns that Spark takes for one",
                given=f"{other} and {column}",
                hint="give one of them another name, which differs not only by capitals",
            )


def table_name(table: str, query: str) -> str:
    """The table of a query; no other query has it, although Spark ignores case.

    A name of small ASCII letters, digits and underscores stays as it is. Any other is written so,
    and a digest of the whole name follows.

    >>> table_name("lake.{query}", "speed_5m")
    'lake.speed_5m'
    >>> table_name("lake.{query}", "Speed.max")
    'lake.speed_max_yjro6jcvdakoavzbi7xogvir5k'
    """
    own = query
    if not _PLAIN.fullmatch(query) or _MADE.search(query):
        own = f"q_{query}" if query[:1].isdigit() else query
        own = f"{re.sub('[^a-z0-9_]', '_', own.lower())[:100]}_{digest(query)}"
    return table.replace("{query}", own)
