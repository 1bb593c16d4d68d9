"""A user's own streaming DataFrame as a source: sliced by a Python stage of the same query.

Its offsets are its own source's, so what a batch depends on cannot be in them. It is in the
progress of the batch before instead, which is written before that batch commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pydantic import PrivateAttr
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from catchment.errors import SourceError, StateError
from catchment.model.frontier import Frontier
from catchment.sources.base import Piece, Position, Source, Split
from catchment.spark.planning import Progress
from catchment.spark.reader import Reading
from catchment.spark.rows import PARCEL
from catchment.spark.spec import Control, Spec
from catchment.spark.tasks import parcel

PARTITION = "frame"
"""Spark says no more of where rows come from: all are one stream."""

_BATCH = "streaming.sql.batchId"


class Framed(Source):
    """Stands where a source would; Spark plans and reads."""

    type: Literal["frame"] = "frame"
    _schema: pa.Schema = PrivateAttr()

    @classmethod
    def of(cls, frame: DataFrame) -> Framed:
        if not frame.isStreaming:
            raise SourceError("this DataFrame is no stream", hint="try ct.run(frame, queries)")
        made = cls()
        made._schema = to_arrow_schema(frame.schema, timezone="UTC")
        return made

    def check(self) -> None:
        return

    def event_schema(self) -> pa.Schema:
        return self._schema

    def start(self) -> Position:
        raise NotImplementedError

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        raise NotImplementedError

    def bound(self, position: Position) -> Position:
        raise NotImplementedError

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        raise NotImplementedError

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        raise NotImplementedError


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
        reading = Reading(spec, control_of(spec, int(batch)), number, number)
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
