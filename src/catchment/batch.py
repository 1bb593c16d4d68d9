"""All queries over events that are all there: on Spark, or in this process.

`run` is what `import catchment` offers. Events go in, as a path, a source, a table or a frame;
results come out, a table for each query. In this process a slicer and an assembler do it all, one
split after the other: for notebooks, tests and data that one core can read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from catchment.durable.folder import Folder
from catchment.engine.bound import BoundPlan
from catchment.engine.slicer import as_table, is_frame, rank
from catchment.errors import JobError, needing
from catchment.expression import columns_read
from catchment.model.capacity import MemoryLimits
from catchment.model.query import Query
from catchment.model.rules import EventRules, QueryRules, each_bound
from catchment.model.settings import Incomplete, each_its_name
from catchment.model.time_column import TimeSpec
from catchment.planner import plan
from catchment.sources import source_of
from catchment.sources.base import Piece, Source
from catchment.sources.reading import UnreadRow, pieces_of, refuse_waiting, unread_rows
from catchment.spark.results import ResultsInProcess, RunResults, batch_counts

Events = Any
"""Path or paths, a source, an Arrow table, a pandas or Polars frame, a Spark DataFrame."""


def run(
    events: Events,
    queries: Query | Iterable[Query],
    time: TimeSpec = "ts",
    spark: Any = None,
    *,
    buckets: int | None = None,
    incomplete: Incomplete = "count",
    state_bytes: int | None = None,
    key_bytes: int | None = None,
) -> RunResults:
    """Computes all queries over events that are all there: time and session windows are complete.

    Count and user-defined windows that are open at the end are counted (`open_windows` and
    `open_events` of `results.counts`); with `incomplete="emit"` they are results too, whose column
    `complete` is false. `spark` is a session of Spark; without one it starts Spark in local mode,
    on all cores. With `spark=False` it computes in this process, and needs neither Spark nor Java.
    `events` is a path, paths, a source, an Arrow table, a pandas, Polars or Spark frame, or columns
    by their names. `time` is the column of times, or a `ct.TimeColumn`. `buckets` says in how many
    shares keys are assembled, `state_bytes` and `key_bytes` how much memory open windows and keys
    may take.

    >>> import pyarrow as pa
    >>> import catchment as ct
    >>> times = pa.array([0, 1, 2], pa.timestamp("s"))
    >>> events = pa.table({"ts": times, "v": [1, 2, 3]})
    >>> query = ct.Query("sums", ct.sum("v").alias("total"), window=ct.tumbling("2s"))
    >>> run(events, query, spark=False)["sums"]["total"].to_pylist()
    [3, 3]

    Raises SchemaError for queries that do not fit the events, SourceError for events that cannot be
    read, LimitError where a limit is reached, and MissingPackageError without pyspark.
    """
    rules = EventRules.of(time, incomplete=incomplete)
    if spark is not False:
        with needing("to run on Spark, as ct.run does without spark=False,"):
            from catchment.spark.batch import prepared

        work = prepared(events, queries, rules, spark, buckets, state_bytes, key_bytes)
        return work.run()
    limits = MemoryLimits.of(state_bytes, key_bytes, 0)
    if is_frame(events):
        table = as_table(events)
        made = _bound(queries, rules, (), limits).bind(table.schema)
        return _computed(made, [(0, Piece(table))])
    if hasattr(events, "sparkSession"):
        raise JobError(
            "a DataFrame of Spark is computed by Spark",
            given="spark=False",
            hint="leave spark=False out, or give a path, a table or a frame",
        )
    source = source_of(events)
    name = source.table()
    unbound = _bound(queries, rules, () if name is None else (name,), limits)
    source.check()
    results = _computed(unbound.bind(source.event_schema()), _pieces(source, unbound))
    results.never_read = source.never_read()
    return results


def _bound(
    queries: Query | Iterable[Query],
    rules: EventRules,
    tables: tuple[str, ...],
    limits: MemoryLimits,
) -> BoundPlan:
    given = each_its_name([queries] if isinstance(queries, Query) else queries)
    named = each_bound(given, QueryRules(rules.time, tables=tables))
    return BoundPlan(plan(named), rules, limits=limits)


def _pieces(source: Source, unbound: BoundPlan) -> Iterator[tuple[int, Piece]]:
    """The events of all splits, each with the number of its partition."""
    columns = columns_read(source.event_schema().names, unbound.columns)
    with tempfile.TemporaryDirectory(prefix="catchment-") as home:
        source.open(Folder(home))
        try:
            start = source.start()
            splits = source.splits(start, source.bound(start), 1)
            refuse_waiting(source)
            names = dict.fromkeys(split.partition for split in splits)
            nodes = {name: number for number, name in enumerate(names)}
            for split in splits:
                for piece in pieces_of(source, split, columns, None):
                    yield nodes[split.partition], piece
        finally:
            source.close()


def _computed(bound: BoundPlan, pieces: Iterable[tuple[int, Piece]]) -> RunResults:
    assembler = bound.assembler()
    slicer = bound.slicer(encoder=assembler.encoder, clock=assembler.wall)
    unread: list[UnreadRow] = []
    for node, piece in pieces:
        for sliced in slicer.slice(piece.events, arrival=rank(node, piece.arrival or 0)):
            assembler.add(sliced)
        if piece.bad is not None:
            slicer.unread(piece.bad)
            unread += unread_rows(piece, len(unread))
    results = assembler.close()
    counts = batch_counts([slicer.counts, assembler.counts], kept=0)
    return RunResults(ResultsInProcess([results], None), list(bound.plan.names), counts, unread)
