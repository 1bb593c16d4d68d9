"""A user's own streaming DataFrame instead of a source: sliced by a Python stage of the same query.

Its offsets are its own source's, so what a batch depends on cannot be in them. It is in the
progress of the batch before instead, which is written before that batch commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from catchment.errors import SourceError, StateError
from catchment.model.frontier import Frontier
from catchment.sources.base import Piece
from catchment.spark.planning import Progress
from catchment.spark.reader import SplitReader
from catchment.spark.records import Control
from catchment.spark.rows import PARCEL
from catchment.spark.spec import Spec
from catchment.spark.tasks import parcel
from catchment.spark.types import arrow_type

PARTITION = "frame"
"""Spark says no more of where rows come from: all are one stream."""

_BATCH = "streaming.sql.batchId"


def columns_of(frame: DataFrame) -> pa.Schema:
    """The columns of a streaming DataFrame; refuses one that is no stream."""
    if not frame.isStreaming:
        raise SourceError("this DataFrame is no stream", hint="try ct.run(frame, queries)")
    return pa.schema(
        [pa.field(f.name, arrow_type(f.dataType), f.nullable) for f in frame.schema.fields]
    )


@dataclass(frozen=True)
class SliceFrame:
    """Slices the rows of a Spark partition; the plan and frontier are those of its batch."""

    spec: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        batch = None if context is None else context.getLocalProperty(_BATCH)
        if context is None or batch is None:
            raise StateError("this Spark does not tell the number of a batch")
        spec = Spec.from_text(self.spec)
        number = context.partitionId()
        reading = SplitReader(spec, control_of(spec, int(batch)), number, number)
        pieces = (Piece(pa.Table.from_batches([rows])) for rows in batches)
        yield parcel(reading.sliced(pieces, PARTITION, 0))


def control_of(spec: Spec, batch: int) -> Control:
    """What a batch is told, as the progress of the batch before says."""
    if batch == 0:
        return Control(0, 0, 0, False, Frontier())
    before = Progress.load(spec, batch - 1)
    return Control(batch, before.plan, before.now, False, before.frontier)


def parcels_of(frame: DataFrame, spec: Spec) -> DataFrame:
    """The partials of a streaming DataFrame, all columns that any query could need."""
    return frame.mapInArrow(SliceFrame(spec.to_text()), PARCEL)
