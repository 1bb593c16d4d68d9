"""Windowed queries over a streaming DataFrame, as streaming DataFrames of their final results.

Each frame is a streaming query of its own once it is started, with its own checkpoint, and computes
its own query only: Spark shares nothing between streaming queries. `union` and `foreachBatch` are
the ways to one pass for all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from catchment.engine.binding import columns_of
from catchment.errors import JobError, QueryError, did_you_mean
from catchment.expression import columns_read
from catchment.model.costs import RECORDED
from catchment.model.duration import Duration
from catchment.model.plan import Plan
from catchment.model.query import Query
from catchment.model.rules import EventRules, QueryRules, each_bound
from catchment.model.time_column import TimeSpec, time_name
from catchment.planner import plan as make_plan
from catchment.spark.assembling import ReadResults, ReadRows
from catchment.spark.bucket_keys import labels
from catchment.spark.frames import arrow_schema
from catchment.spark.query_frames import NamedFrames, QueryFrames
from catchment.spark.rows import PARCEL
from catchment.spark.session import ROCKSDB, cores_of, is_local, ship
from catchment.spark.shared_rows import SharedColumns, frame_of_query, union_of_queries
from catchment.spark.tasks import Work
from catchment.spark.types import for_spark, spark_schema
from catchment.spark.window_bucket import RESULTS, WindowBucket
from catchment.spark.window_stream import SliceStream, StreamWork

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger("catchment.frames")

_ONLY_SLICES = replace(RECORDED, margin=1e30)
"""Accumulators for each window are never worth it: an event that is late for its slice must be late
for all of its windows."""
_MOST_BUCKETS = 32
_DELAY = "spark.watermarkDelayMs"
"""What `withWatermark` writes into the column's metadata."""
_PARTITIONS = "spark.sql.shuffle.partitions"
_TOO_MANY = 8
"""Tasks for each core from which on a user is told that they are too many."""
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
COUNTS = ("events", "bad", "late", "duplicates", "rows")
_OBSERVED = "catchment "
_NUMBERS = count(1)
"""Two observations of one streaming query must not have one name."""


class StreamingFrames(QueryFrames):
    """Query name to its final results as a streaming DataFrame, for append mode."""

    def __init__(self, events: DataFrame, queries: Mapping[str, Query], made: FrameOptions):
        self._events = events
        self._queries = queries
        self._made = made
        self._frames: dict[str, DataFrame] = {}
        for query in queries.values():  # refused before anything is started
            stream_work(events, [query], made)

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._queries:
            hint = did_you_mean(name, self._queries)
            raise QueryError("no such query", given=name, hint=hint)
        if name not in self._frames:
            work = stream_work(self._events, [self._queries[name]], self._made)
            self._frames[name] = frame_of_piece(work.work, name, self._pieces(work, name))
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def __len__(self) -> int:
        return len(self._queries)

    def __contains__(self, name: object) -> bool:
        return name in self._queries

    def foreachBatch(self, function: Callable[[NamedFrames, int], None]) -> DataStreamWriter:  # noqa: N802
        work = stream_work(self._events, list(self._queries.values()), self._made)
        each = EachBatch(work.work, tuple(self._queries), function)
        rows = self._pieces(work, "all")
        return rows.writeStream.outputMode("append").foreachBatch(each)

    def union(self) -> DataFrame:
        work = stream_work(self._events, list(self._queries.values()), self._made)
        shared = shared_columns(work.work, self._queries)
        return union_of_queries(
            rows_of_pieces(work.work, shared, self._pieces(work, "all")), shared
        )

    def counts(self, query: StreamingQuery | None = None) -> dict[str, int]:
        if query is None:
            raise JobError(
                "a stream has no end at which it could be counted",
                hint="give the query that a frame was started as: frames.counts(query)",
            )
        sums = dict.fromkeys(COUNTS, 0)
        for progress in query.recentProgress:
            for name, row in (progress["observedMetrics"] or {}).items():
                if name.startswith(_OBSERVED):
                    for count, number in _counted(row).items():
                        sums[count] += number or 0
        left_out = sums["bad"] + sums["late"] + sums["duplicates"]
        return {**sums, "accepted": sums["events"] - left_out}

    def unpersist(self) -> None:
        """Nothing is kept of a stream."""

    def _pieces(self, work: StreamWork, name: str) -> DataFrame:
        return pieces(self._events, work, f"{_OBSERVED}{name} {next(_NUMBERS)}")


def _counted(row: Any) -> dict[str, int | None]:
    """Observed counts by name. With Spark Connect, a row comes as its values and its schema."""
    told: dict[str, Any] = row if isinstance(row, dict) else row.asDict()
    return dict(zip(COUNTS, told["values"], strict=True)) if "values" in told else told


@dataclass(frozen=True)
class FrameOptions:
    """What was asked for, besides the queries."""

    rules: EventRules
    buckets: int | None
    state_bytes: int | None
    key_bytes: int | None


def streaming_frames(
    events: DataFrame,
    queries: list[Query],
    time: TimeSpec,
    lateness: Duration | None,
    buckets: int | None,
    state_bytes: int | None,
    key_bytes: int | None,
) -> StreamingFrames:
    """The frames of some queries over a streaming DataFrame, all checks done."""
    rules = EventRules.of(time, _delay(events, time_name(time)) if lateness is None else lateness)
    spark = events.sparkSession
    _check_store(spark)
    _tell_of_partitions(spark)
    ship(spark)
    named = {query.name: query for query in each_bound(queries, QueryRules(rules.time))}
    options = FrameOptions(rules, buckets, state_bytes, key_bytes)
    return StreamingFrames(events, named, options)


def _delay(events: DataFrame, time: str) -> Duration:
    """How late events may be: what `withWatermark` said of the time column."""
    for field in events.schema.fields:
        if field.name == time and _DELAY in field.metadata:
            return f"{int(field.metadata[_DELAY])}ms"
    return "0s"


def _check_store(spark: SparkSession) -> None:
    provider = str(spark.conf.get(_PROVIDER))  # what Spark does by default counts too
    if "HDFSBacked" in provider:
        raise JobError(
            "streaming DataFrames of windows keep their state in RocksDB, and this session does "
            "not",
            given=f"{_PROVIDER}={provider}",
            hint=f'say spark.conf.set("{_PROVIDER}", "{ROCKSDB}") before the query is started',
        )


def stream_work(events: DataFrame, queries: list[Query], options: FrameOptions) -> StreamWork:
    """What the tasks of one streaming query must know; refuses queries that do not fit."""
    plan = make_plan(queries, costs=_ONLY_SLICES)
    schema = arrow_schema(events.schema, plan, options.rules.time_name)
    buckets = options.buckets or _buckets(events.sparkSession, plan)
    work = Work(
        plan.to_bytes(),
        schema,
        options.rules,
        buckets,
        state_bytes=options.state_bytes,
        key_bytes=options.key_bytes,
        late_by_slice=True,
    )
    read = columns_read(schema.names, work.bound().columns)
    columns = [f"{field.name} {field.type}" for field in schema if field.name in read]
    made_for = "\n".join([*columns, str(options.rules)]).encode() + work.plan_bytes
    origin = f"{buckets} {sha256(made_for).hexdigest()[:16]}"
    return StreamWork(work, labels(buckets), origin)


def _buckets(spark: SparkSession, plan: Plan) -> int:
    """The number of buckets: Spark's shuffle partitions, up to a limit; equal at every start."""
    if not any(group.by for group in plan.groups):
        return 1
    return max(1, min(_partitions(spark), _MOST_BUCKETS))


def _partitions(spark: SparkSession) -> int:
    return int(str(spark.conf.get(_PARTITIONS, "200")))


def _tell_of_partitions(spark: SparkSession) -> None:
    """Spark's default is for clusters: on one machine, every batch would wait for 200 tasks."""
    if is_local(spark) and _partitions(spark) > _TOO_MANY * cores_of(spark):
        log.warning(
            "each batch of a streaming frame will have %d tasks on %d cores: set %s to the number "
            "of cores before its query is first started",
            _partitions(spark),
            cores_of(spark),
            _PARTITIONS,
        )


def pieces(events: DataFrame, work: StreamWork, observed: str) -> DataFrame:
    """The results of a streaming query, as rows of bytes; what it counts is observed."""
    plan = work.work.plan
    needed = {work.work.rules.time_name}.union(*(columns_of(group) for group in plan.groups))
    # By place, not by name: names may hold dots, or differ in case alone.
    plain = events.toDF(*(f"c{number}" for number in range(len(events.columns))))
    read = columns_read(events.columns, needed)
    names = {f"c{n}": name for n, name in enumerate(events.columns) if name in read}
    clock = any(group.measure == "processing" for group in plan.groups)
    columns: list[Any] = [sf.col(name) for name in names]
    sent = plain.select(*columns, *([sf.current_timestamp().alias("now")] if clock else []))
    task = SliceStream(work, tuple(names.values()), clock)
    parcels = sent.mapInArrow(task, PARCEL)
    rows = parcels.groupBy("bucket").transformWithState(
        WindowBucket(work.to_text()), RESULTS, outputMode="Append", timeMode="None"
    )
    told = rows.observe(observed, *(sf.sum(name).alias(name) for name in COUNTS))
    return told.where("body IS NOT NULL").select("grp", "body")


def frame_of_piece(work: Work, name: str, rows: DataFrame) -> DataFrame:
    """The rows of a query, of pieces of results."""
    schema = work.bound().no_results()[name].schema
    task = ReadResults(work, name, for_spark(schema))
    return rows.select("body").mapInArrow(task, spark_schema(schema))


def shared_columns(work: Work, names: Iterable[str]) -> SharedColumns:
    """The columns that the results of these queries have together."""
    nothing = work.bound().no_results()
    return SharedColumns.of({name: nothing[name].schema for name in names})


def rows_of_pieces(work: Work, shared: SharedColumns, pieces: DataFrame) -> DataFrame:
    """The rows of all queries, of pieces of results."""
    return pieces.select("body").mapInArrow(ReadRows(work, shared), shared.spark_schema())


@dataclass(frozen=True)
class EachBatch:
    """What Spark calls with each batch: its rows are kept while frames are made of them."""

    work: Work
    names: tuple[str, ...]
    function: Callable[[NamedFrames, int], None]

    def __call__(self, pieces: DataFrame, number: int) -> None:
        shared = shared_columns(self.work, self.names)
        kept = rows_of_pieces(self.work, shared, pieces).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            self.function(BatchFrames(shared, kept), number)
        finally:
            kept.unpersist()


class BatchFrames(Mapping[str, DataFrame]):
    """Query name to the results of one batch, made when they are asked for."""

    def __init__(self, shared: SharedColumns, rows: DataFrame) -> None:
        self._shared, self._rows = shared, rows

    def __getitem__(self, name: str) -> DataFrame:
        if name not in self._shared.places:
            hint = did_you_mean(name, self._shared.places)
            raise QueryError("no such query", given=name, hint=hint)
        return frame_of_query(self._rows, self._shared, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shared.places)

    def __len__(self) -> int:
        return len(self._shared.places)
