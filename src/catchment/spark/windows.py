"""Windowed queries as DataFrames of Spark: `ct.windows` and `ct.window`.

Frames are lazy. All frames of one call share one pass over the events: the first action on any of
them makes it, and Spark keeps the results of all queries for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from catchment import html
from catchment.errors import JobError
from catchment.model.query import Query
from catchment.model.rules import EventRules
from catchment.model.settings import Incomplete
from catchment.spark.batch import BatchInput, BatchPass, prepared


class WindowFrames(Mapping[str, DataFrame]):
    """Query name to its results as a lazy DataFrame, in no order."""

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

    def counts(self) -> dict[str, int]:
        """Events read, accepted, bad and duplicates; result rows; windows that are open at the end
        and the events in them: as `counts` of `ct.run`.

        This is an action: if no frame was used yet, the pass is made for it.
        """
        return self._made.counts()

    def unpersist(self) -> None:
        """Lets go of the results that Spark keeps for these frames. A frame that is used after that
        computes them anew."""
        self._made.closing.close()


def windows(
    events: BatchInput,
    queries: Query | Iterable[Query],
    time: str = "ts",
    spark: SparkSession | Literal[False] | None = None,
    *,
    buckets: int | None = None,
    incomplete: Incomplete = "count",
    state_bytes: int | None = None,
    key_bytes: int | None = None,
) -> WindowFrames:
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
    times. Count and user-defined windows that are open at the end are left out; with
    `incomplete="emit"` they are rows whose column `complete` is false. `spark` is a session of
    Spark; by default the one of the DataFrame, the active one, or a new one on this machine.
    `buckets` says in how many shares keys are assembled, `state_bytes` and `key_bytes` how much
    memory open windows and keys of a share may take.

    Raises SchemaError for queries that do not fit the columns, SourceError for events that cannot
    be read, and QueryError for a name that no query has, before anything is computed. Rows that
    turn out to be bad are left out; `frames.counts()` counts them.

        frames = ct.windows(events, [speed, sessions], time="ts")
        frames["speed"].write.parquet("speed")
        frames["sessions"].where("count > 10").show()
    """
    if spark is False:
        raise JobError(
            "DataFrames are made by Spark",
            given="spark=False",
            hint="leave spark=False out, or compute tables with ct.run(..., spark=False)",
        )
    rules = EventRules.of(time, incomplete=incomplete)
    made = prepared(events, queries, rules, spark, buckets, state_bytes, key_bytes)
    return WindowFrames(made)


def window(
    query: Query,
    time: str = "ts",
    *,
    buckets: int | None = None,
    incomplete: Incomplete = "count",
    state_bytes: int | None = None,
    key_bytes: int | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """One query as a step in a chain of DataFrames.

    The settings (`time`, `buckets`, `incomplete`, `state_bytes`, `key_bytes`) are those of
    `windows`. Raises SchemaError for a `query` that does not fit the frame's columns.

        query = ct.Query("speed", ct.avg("v"), by="player", window=ct.sliding("10s", "5s"))
        df.where("v > 0").transform(ct.window(query, time="ts")).write.parquet("speed")
    """

    def transform(events: DataFrame) -> DataFrame:
        frames = windows(
            events,
            query,
            time,
            buckets=buckets,
            incomplete=incomplete,
            state_bytes=state_bytes,
            key_bytes=key_bytes,
        )
        return frames[query.name]

    return transform
