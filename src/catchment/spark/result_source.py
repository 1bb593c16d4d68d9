"""The results of one query of a job file, as a streaming source of Spark.

    spark.readStream.format("catchment").option("job", "job.yaml").option("query", "speed").load()

Spark starts Python processes that only look at these classes, so that nothing of ours is imported
before it is needed. The work is in `job_results.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from catchment.spark.stream_reader import ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    import pyarrow as pa

    from catchment.spark.job_results import JobResults

NAME = "catchment"

StepOffset = dict[str, int]
"""How many steps have been made."""


class ResultSource(DataSource):
    """The final results of a query of a job file, each once.

    Options: `job`, the path of the job file, and `query`, the name of the query. The job's
    `checkpoint` is a folder that driver and executors reach; what is needed to go on is there.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        from catchment.spark.job_results import result_schema

        return result_schema(self.options)

    def streamReader(self, schema: StructType) -> ResultStreamReader:  # noqa: N802
        return ResultStreamReader(dict(self.options))


class ResultStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Computes on the driver, reads results in executors."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self._results: JobResults | None = None

    @property
    def results(self) -> JobResults:
        if self._results is None:
            from catchment.spark.job_results import JobResults

            self._results = JobResults(self.options)
        return self._results

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_results": None}

    def initialOffset(self) -> StepOffset:  # noqa: N802
        return {"step": 0}

    def latestOffset(self, start: StepOffset, limit: ReadLimit) -> StepOffset:  # noqa: N802
        return {"step": self.results.after(start["step"])}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.results.until_now()

    def partitions(self, start: StepOffset, end: StepOffset) -> list[InputPartition]:
        return [InputPartition(step) for step in range(start["step"] + 1, end["step"] + 1)]

    def commit(self, end: StepOffset) -> None:
        self.results.forget(end["step"])

    def stop(self) -> None:
        if self._results is not None:
            self._results.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from catchment.spark.job_results import results_of_step

        yield from results_of_step(self.options, partition.value)
