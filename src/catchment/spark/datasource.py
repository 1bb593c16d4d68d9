"""The Python data source through which Spark reads: its readers yield partials, not events.

Spark starts several Python processes that only look at these classes. They import nothing of ours
but this, so that such a process takes no longer to start than it must.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from catchment.spark.rows import PARCEL
from catchment.spark.stream_reader import ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    import pyarrow as pa

    from catchment.sources.base import Split
    from catchment.spark.planning import BatchPlanner, StepPlanner
    from catchment.spark.records import Control, Offset

NAME = "catchment-partials"
"""The format through which jobs read. Users read results by `catchment` (`result_source.py`)."""

PlainOffset = dict[str, Any]
"""An offset as Spark keeps it: objects of JSON."""


class PartialsSource(DataSource):
    """Events of a job's source, as partials."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return PARCEL

    def streamReader(self, schema: StructType) -> PartialsReader:  # noqa: N802
        return PartialsReader(str(self.options["spec"]))


class Share(InputPartition):
    """A split and what its batch is told."""

    def __init__(self, number: int, node: int, split: Split | None, control: Control):
        super().__init__((number, node, split, control))


class PartialsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans on the driver, reads in executors."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self._planner: BatchPlanner | StepPlanner | None = None

    @property
    def planner(self) -> BatchPlanner | StepPlanner:
        if self._planner is None:
            from catchment.spark.planning import planner_of
            from catchment.spark.spec import Spec

            self._planner = planner_of(Spec.from_text(self.spec))
        return self._planner

    def __getstate__(self) -> dict[str, Any]:
        return {"spec": self.spec, "_planner": None}

    def initialOffset(self) -> PlainOffset:  # noqa: N802
        return _plain(self.planner.first())

    def latestOffset(self, start: PlainOffset, limit: ReadLimit) -> PlainOffset:  # noqa: N802
        before = _offset(start)
        found = self.planner.next(before)
        # Spark compares texts: while there is nothing to do, it gets the very one that it gave.
        return start if found == before else _plain(found)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.planner.until_now = True

    def partitions(self, start: PlainOffset, end: PlainOffset) -> list[InputPartition]:
        control = _offset(end).control
        if control.batch < 0 or end == start:
            return []  # Spark runs a batch as it starts even if there is nothing to do yet
        shares = self.planner.splits(_offset(start), _offset(end))
        return [Share(n, node, split, control) for n, (node, split) in enumerate(shares)]

    def commit(self, end: PlainOffset) -> None:
        self.planner.commit(_offset(end))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.source.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from catchment.spark.reader import SplitReader
        from catchment.spark.spec import Spec
        from catchment.spark.tasks import parcel

        number, node, split, control = partition.value
        reading = SplitReader(Spec.from_text(self.spec), control, number, node)
        yield parcel(reading.rows(split))


def _offset(given: PlainOffset) -> Offset:
    from catchment.model import records
    from catchment.spark.records import Offset

    return records.convert(Offset, given, "an offset of the job's checkpoint")


def _plain(offset: Offset) -> PlainOffset:
    from catchment.model import records

    made: PlainOffset = records.plain(offset)
    return made
