"""Batch: splits are read and sliced, partials shuffled by key, windows assembled by bucket."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from catchment.counting.distributed import found_by_asking
from catchment.counting.edges import RankEdges
from catchment.durable.folder import Folder
from catchment.engine.binding import columns_of
from catchment.engine.parcels import unpack_results
from catchment.engine.results import Results
from catchment.engine.slicer import as_table, is_frame
from catchment.model.plan import Plan
from catchment.model.query import Query
from catchment.model.rules import EventRules, QueryRules, bound
from catchment.model.settings import each_its_name
from catchment.planner.group import DEFAULT_RATE, counts_of
from catchment.planner.planned import NOTHING, Planned
from catchment.sources import source_of
from catchment.sources.aside_files import AsidePlace, Kept
from catchment.sources.base import Source
from catchment.sources.reading import UnreadRow, refuse_waiting
from catchment.spark import frames
from catchment.spark.batch_counts import CutApart, Meeting, SampleRanks, doubts_of
from catchment.spark.records import SplitRead
from catchment.spark.results import RunResults, batch_counts
from catchment.spark.rows import PARCEL
from catchment.spark.session import cores_of, frame_of, is_local, session, ship
from catchment.spark.tasks import Assemble, ReadAndSlice, Work

_SPLITS_A_CORE = 2
"""More shares than cores, so that a slow one holds up little."""

Events = Any
"""Path or paths, a source, an Arrow table, a pandas or Polars frame, a Spark DataFrame."""


def computed(
    events: Events,
    queries: Query | Iterable[Query],
    rules: EventRules,
    spark: SparkSession | None,
    buckets: int | None = None,
    state_bytes: int | None = None,
    key_bytes: int | None = None,
    aside: AsidePlace | None = None,
) -> RunResults:
    """What `ct.run` gives, computed on Spark; a job may have a place for rows set aside."""
    given = each_its_name([queries] if isinstance(queries, Query) else queries)
    named = {
        query.name: bound(query, QueryRules(rules.time, tables=_tables(events))) for query in given
    }
    planned = NOTHING.next(0, named, DEFAULT_RATE)
    made = planned.plan
    spark = spark or (events.sparkSession if isinstance(events, DataFrame) else session())
    ship(spark)
    buckets = buckets or (cores_of(spark) if any(group.by for group in made.groups) else 1)
    work = partial(
        Work,
        made.to_bytes(),
        rules=rules,
        buckets=buckets,
        aside=aside,
        state_bytes=state_bytes,
        key_bytes=key_bytes,
    )
    if not isinstance(events, DataFrame) and is_frame(events):
        return _run_table(as_table(events), planned, work, spark)
    if isinstance(events, DataFrame):
        return _assembled(*frames.sliced(events, made, rules.time, work), spark, planned)
    source = source_of(events)
    bound_work, parcels = _sliced_source(source, made, work, spark)
    results = _assembled(bound_work, parcels, spark, planned)
    results.never_read = source.never_read()
    return results


def _tables(events: Events) -> tuple[str, ...]:
    """What SQL may call the events in FROM, besides `events`."""
    if isinstance(events, DataFrame) or is_frame(events):
        return ()
    name = source_of(events).table()
    return () if name is None else (name,)


def _sliced_source(
    source: Source, plan: Plan, made: Callable[[pa.Schema], Work], spark: SparkSession
) -> tuple[Work, DataFrame]:
    source.check()
    with tempfile.TemporaryDirectory(prefix="catchment-") as home:
        source.open(Folder(home))
        try:
            start = source.start()
            end = source.bound(start)
            splits = source.splits(start, end, _SPLITS_A_CORE * cores_of(spark))
            refuse_waiting(source)
        finally:
            source.close()
    work = made(source.event_schema())
    work.bound()  # refuses queries that do not fit the events, before anything is read
    nodes = {name: number for number, name in enumerate(dict.fromkeys(s.partition for s in splits))}
    numbered = [(nodes[split.partition], split) for split in splits]
    columns = needed(plan, work.rules.time, source.event_schema())
    task = ReadAndSlice(work, source, numbered, columns, common_condition(plan))
    numbers = spark.range(0, len(splits), 1, max(1, len(splits)))
    return work, numbers.mapInArrow(task, PARCEL)


def needed(plan: Plan, time: str, schema: pa.Schema) -> list[str]:
    """The columns that are read, in the events' order."""
    names = {time}.union(*(columns_of(group) for group in plan.groups))
    return [name for name in schema.names if name in names]


def common_condition(plan: Plan) -> str | None:
    """A condition that every event of any use meets, if there is one."""
    selections = {text for group in plan.groups for text in group.selections}
    if None in selections or not 0 < len(selections) <= 8:
        return None
    return " OR ".join(f"({text})" for text in sorted(str(text) for text in selections))


def _assembled(work: Work, parcels: DataFrame, spark: SparkSession, planned: Planned) -> RunResults:
    bound = work.bound()
    groups = _asked(work, planned, spark)
    assemble = Assemble(work, partial(Meeting, groups) if groups else None)
    with ExitStack() as stack:
        if groups:
            # Events are kept where they were read, while samples of them say where edges are.
            kept = parcels.persist(StorageLevel.DISK_ONLY)
            stack.callback(kept.unpersist)
            parcels = _cut_apart(work, kept, groups)
        placed = parcels.repartitionById(work.buckets, sf.col("bucket"))
        rows = placed.mapInArrow(assemble, PARCEL).toArrow()
    parts = list[Results]()
    counted: list[Mapping[str, int]] = []
    unread: list[UnreadRow] = []
    spilled: list[Kept] = []
    for body in rows.column("body").to_pylist():
        results, note = unpack_results(bytes(body or b""), bound, SplitRead)
        parts.append(results)
        unread += note.unread
        spilled += note.spilled
        counted.append(note.counts)
    counts = batch_counts(counted, kept=sum(kept.rows for kept in spilled))
    parts = parts or [bound.no_results()]
    made = RunResults(parts, list(work.plan.names), counts, unread, spark)
    made.aside = spilled
    return made


def _asked(work: Work, planned: Planned, spark: SparkSession) -> frozenset[int]:
    """The groups of count windows whose edges are found by samples.

    That reads what tasks kept of the events twice more, so it is done only where one task would
    get all events otherwise: without keys, on several machines. What is not full can only be
    emitted where its events are.
    """
    if work.rules.incomplete == "emit" or is_local(spark):
        return frozenset()
    found = found_by_asking(planned, work.bound(), "auto")
    return frozenset(id for id in found if not work.plan.groups[id].by)


def _cut_apart(work: Work, parcels: DataFrame, groups: frozenset[int]) -> DataFrame:
    """With the events of count windows cut where no edge is near."""
    samples = parcels.mapInArrow(SampleRanks(work, groups), PARCEL).toArrow().column("body")
    edges = {id: RankEdges(counts_of(work.plan.groups[id])) for id in groups}
    doubts = doubts_of((bytes(body or b"") for body in samples.to_pylist()), edges)
    return parcels.mapInArrow(CutApart(work, groups, doubts), PARCEL)


def _run_table(
    table: pa.Table, planned: Planned, made: Callable[[pa.Schema], Work], spark: SparkSession
) -> RunResults:
    """Executors on this machine map the table from a file; others get it through Spark."""
    if not is_local(spark):
        frame = frame_of(spark, table)
        time = made(table.schema).rules.time
        return _assembled(*frames.sliced(frame, planned.plan, time, made), spark, planned)
    with tempfile.TemporaryDirectory(prefix="catchment-") as folder:
        path = Path(folder) / "events.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=1 << 20)
        source = source_of(str(path))
        work, parcels = _sliced_source(source, planned.plan, made, spark)
        return _assembled(work, parcels, spark, planned)
