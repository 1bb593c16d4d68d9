"""What `ct.windows` gives: a DataFrame for each query, of a batch or of a stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

NamedFrames = Mapping[str, DataFrame]


class QueryFrames(Mapping[str, DataFrame]):
    """Query name to its results as a lazy DataFrame, in no order."""

    @abstractmethod
    def union(self) -> DataFrame:
        """The results of all queries as one DataFrame, for one action or one streaming query.

        The column `query` says whose row it is; then come the columns of all queries, each name
        once, and null in the rows of queries that have no such column. Each action of Spark costs
        about a tenth of a second, and each streaming query a pass over the events: this is the way
        to write many small frames.

            frames.union().write.partitionBy("query").parquet("results")

        Raises SchemaError where columns of one name are of different types.
        """

    @abstractmethod
    def counts(self, query: StreamingQuery | None = None) -> dict[str, int]:
        """What was counted: events read, accepted, bad and duplicates, and result rows.

        Of a batch, also windows that are open at the end, and the events in them. This is an
        action: if no frame was used yet, the pass over the events is made for it. Of a stream, also
        events that were late, of the streaming query that a frame was started as: of its last
        batches, as many as Spark remembers (a hundred). A listener finds the counts of each batch
        among the observed metrics of its progress.
        """

    @abstractmethod
    def unpersist(self) -> None:
        """Lets go of the results that Spark keeps for these frames. A frame that is used after that
        computes them anew."""

    @abstractmethod
    def foreachBatch(self, function: Callable[[NamedFrames, int], None]) -> DataStreamWriter:  # noqa: N802
        """Of a stream, one streaming query for all frames: one pass over the events, one
        checkpoint.

        After each batch, `function` is called with the new results of every query as DataFrames,
        by name, and the number of the batch, as Spark's own `foreachBatch` does with one frame. A
        batch may come again after a crash, with the same number and the same rows.

            def save(frames, batch):
                frames["speed"].write.mode("append").parquet("speed")
                frames["sessions"].write.mode("append").parquet("sessions")

            frames.foreachBatch(save).option("checkpointLocation", "state").start()
        """
