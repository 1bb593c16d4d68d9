"""Writes the results of a batch in a format of Spark, from the executors that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from catchment.engine.parcels import unpack_results
from catchment.model.names import file_name
from catchment.sinks.spark_format import SparkFormat
from catchment.spark.assembling import in_types
from catchment.spark.records import Control
from catchment.spark.spec import Spec
from catchment.spark.types import for_spark, spark_schema

_FILES = ("parquet", "orc", "json", "csv", "avro", "text", "xml")
"""Formats of files, which replace the folder of a batch that comes again."""


@dataclass(frozen=True)
class ReadDelivered:
    """The rows of a query, of the results that buckets give."""

    spec: str
    plan: int
    name: str
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bound = Spec.from_text(self.spec).bound(self.plan)
        for batch in batches:
            for body in batch.column(0):
                results, _ = unpack_results(bytes(body.as_buffer()), bound)
                yield from in_types(results[self.name], self.schema)


def write_batch(spec: Spec, sinks: list[SparkFormat], rows: DataFrame, control: Control) -> None:
    """Writes what buckets gave in a batch; done again, it changes nothing where it can be told."""
    bodies = rows.where("kind = 'results'").select("body")
    planned, text = spec.plan(control.plan), spec.to_text()
    nothing = spec.bound(control.plan).no_results()
    for name in planned.queries:
        schema = nothing[name].schema
        task = ReadDelivered(text, control.plan, name, for_spark(schema))
        frame = bodies.mapInArrow(task, spark_schema(schema))
        for sink in sinks:
            write_frame(sink, frame, planned.output(name), spec.job, control.batch)


def write_frame(sink: SparkFormat, frame: DataFrame, name: str, job: str, batch: int) -> None:
    """Writes the rows that a query gave in a batch to its folder or table."""
    mode = "append"
    options = dict(sink.options)
    writer = frame.write
    if sink.format == "delta":
        options |= {"txnAppId": f"{job} {name}", "txnVersion": str(batch)}
    elif sink.format in _FILES and sink.path is not None:
        writer = frame.withColumn("batch", sf.lit(batch)).write.partitionBy("batch")
        options["partitionOverwriteMode"] = "dynamic"
        mode = "overwrite"
    writer = writer.format(sink.format).mode(mode).options(**options)
    if sink.table is not None:
        writer.saveAsTable(sink.table.replace("{query}", name))
    else:
        path = str(sink.path)
        own = file_name(name)
        placed = path.replace("{query}", own) if "{query}" in path else f"{path.rstrip('/')}/{own}"
        writer.save(placed)
