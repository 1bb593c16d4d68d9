"""Windowed queries as DataFrames of Spark: `ct.windows` and `ct.window`.

NamedFrames are lazy. All frames of one call over a batch share one pass over the events: the first
action on any of them makes it, and Spark keeps the results of all queries for the others. Of a
streaming DataFrame, the frames are streaming DataFrames (`stream_frames.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from pyspark.sql import DataFrame, SparkSession

from catchment import html
from catchment.errors import JobError
from catchment.model.duration import Duration
from catchment.model.query import Query
from catchment.model.rules import EventRules
from catchment.model.settings import Incomplete, each_its_name
from catchment.model.time_column import TimeSpec
from catchment.spark.batch import BatchInput, BatchPass, prepared
from catchment.spark.query_frames import NamedFrames, QueryFrames
from catchment.spark.stream_frames import streaming_frames

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class WindowFrames(QueryFrames):
    """The results of a batch."""

    def __init__(self, made: BatchPass) -> None:
        self._made = made
        self._frames: dict[str, DataFrame] = {}

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._frames:
            alone = len(self._made.names) == 1
            make = self._made.only if alone else self._made.frame
            self._frames[name] = make(name)
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made.names)

    def __len__(self) -> int:
        return len(self._made.names)

    def __contains__(self, name: object) -> bool:
        return name in self._made.work.plan.names

    def _repr_html_(self) -> str:
        """For notebooks: the columns of each frame. Nothing is computed."""
        rows = [[name, ", ".join(self[name].columns)] for name in list(self)[: html.ROWS]]
        return html.table(["frame", "columns"], rows)

    def union(self) -> DataFrame:
        return self._made.union()

    def counts(self, query: StreamingQuery | None = None) -> dict[str, int]:
        return self._made.counts()

    def unpersist(self) -> None:
        self._made.closing.close()

    def foreachBatch(self, function: Callable[[NamedFrames, int], None]) -> DataStreamWriter:  # noqa: N802
        raise JobError(
            "these frames are one batch, and no stream",
            given="foreachBatch",
            hint="write them with frames[name].write, or read the events with spark.readStream",
        )


def windows(
    events: BatchInput,
    queries: Query | Iterable[Query],
    time: TimeSpec = "ts",
    spark: SparkSession | Literal[False] | None = None,
    *,
    lateness: Duration | None = None,
    buckets: int | None = None,
    incomplete: Incomplete = "count",
    state_bytes: int | None = None,
    key_bytes: int | None = None,
) -> QueryFrames:
    """The results of all queries as DataFrames of Spark: lazy, typed, and left on the executors.

    Nothing is read before the first action on one of the frames, but for what tells the columns of
    the events and which files there are. One pass over the events serves all frames: with several
    queries, Spark keeps the results of all of them from the first action on, in memory or on the
    executors' disks, until `frames.unpersist()` or the end of its session. With one query nothing
    is kept, and each action computes it, as with any DataFrame. (A table or a frame that is not
    Spark's is kept in a file, as long.) Of a DataFrame, each group of queries that Spark itself can
    slice is an aggregation, and reads it once.

    `events` is a DataFrame, a path or paths, a source, an Arrow table, or a pandas or Polars frame;
    they are all there, so that time and session windows are complete. `time` is the column of event
    times, or a `ct.TimeColumn`. Count and user-defined windows that are open at the end are left
    out; with `incomplete="emit"` they are rows whose column `complete` is false. `spark` is a
    session of Spark; by default the one of the DataFrame, the active one, or a new one on this
    machine. `buckets` says in how many shares keys are assembled, `state_bytes` and `key_bytes` how
    much memory open windows and keys of a share may take.

    A streaming DataFrame gives streaming DataFrames of final results, for append mode and any sink.
    A window is given by the batch whose newest event is `lateness` past its end; by default,
    `lateness` is what `withWatermark` says of the time column, or nothing. An event that comes when
    the slice that it is in has ended is left out, and counted. Each frame that is started is a
    streaming query with a checkpoint of its own. `frames.union()` is one DataFrame of all queries,
    and `frames.foreachBatch(function)` one streaming query for all frames; both read the events
    once.

    Raises SchemaError for queries that do not fit the columns, SourceError for events that cannot
    be read, and QueryError for a name that no query has, before anything is computed. Rows that
    turn out to be bad are left out; `frames.counts()` counts them, of a stream `counts(query)`.

        frames = ct.windows(events, [speed, sessions], time="ts")
        frames["speed"].write.parquet("speed")
        frames["sessions"].where("count > 10").show()

        stream = spark.readStream.schema(schema).parquet("events").withWatermark("ts", "10 seconds")
        frames = ct.windows(stream, [speed, sessions], time="ts")
        frames["speed"].writeStream.option("checkpointLocation", "state").toTable("speed")
    """
    if spark is False:
        raise JobError(
            "DataFrames are made by Spark",
            given="spark=False",
            hint="leave spark=False out, or compute tables with ct.run(..., spark=False)",
        )
    given = each_its_name([queries] if isinstance(queries, Query) else queries)
    if isinstance(events, DataFrame) and events.isStreaming:
        if incomplete != "count":
            raise JobError(
                "a stream has no end at which windows could be open",
                given=f"incomplete={incomplete!r}",
                hint="leave it out, or read the events as a batch",
            )
        return streaming_frames(events, given, time, lateness, buckets, state_bytes, key_bytes)
    rules = EventRules.of(time, incomplete=incomplete)
    made = prepared(events, given, rules, spark, buckets, state_bytes, key_bytes)
    return WindowFrames(made)


def window(
    query: Query,
    time: TimeSpec = "ts",
    *,
    lateness: Duration | None = None,
    buckets: int | None = None,
    incomplete: Incomplete = "count",
    state_bytes: int | None = None,
    key_bytes: int | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """One query as a step in a chain of DataFrames, batch or streaming, as `windows` has it.

    The settings (`time`, `lateness`, `buckets`, `incomplete`, `state_bytes`, `key_bytes`) are those
    of `windows`. Raises SchemaError for a `query` that does not fit the frame's columns.

        query = ct.Query("speed", ct.avg("v"), by="player", window=ct.sliding("10s", "5s"))
        df.where("v > 0").transform(ct.window(query, time="ts")).write.parquet("speed")
    """

    def transform(events: DataFrame) -> DataFrame:
        frames = windows(
            events,
            query,
            time,
            lateness=lateness,
            buckets=buckets,
            incomplete=incomplete,
            state_bytes=state_bytes,
            key_bytes=key_bytes,
        )
        return frames[query.name]

    return transform
