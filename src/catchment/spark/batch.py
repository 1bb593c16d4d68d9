"""Batch: splits are read and sliced, partials shuffled by key, windows assembled by bucket.

`prepared` says how, and computes nothing: a `BatchPass` is one pass over the events for all
queries. Its results stay on the executors, as DataFrames; what the tasks counted comes here.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.storagelevel import StorageLevel

from catchment.counting.distributed import distributed_groups
from catchment.durable.folder import Folder
from catchment.engine import codec
from catchment.engine.binding import columns_of
from catchment.engine.parcels import NoNote, unpack_results
from catchment.engine.results import Results
from catchment.engine.slicer import as_table, is_frame
from catchment.errors import QueryError, did_you_mean
from catchment.expression import columns_read
from catchment.model import records
from catchment.model.plan import Plan
from catchment.model.query import Query
from catchment.model.rules import EventRules, QueryRules, each_bound
from catchment.model.settings import each_its_name
from catchment.planner.planned import NOTHING, Planned
from catchment.sources import source_of
from catchment.sources.aside_files import AsidePlace
from catchment.sources.base import Source
from catchment.sources.reading import refuse_waiting
from catchment.spark import frames
from catchment.spark.assembling import (
    Assemble,
    CutResults,
    GiveResults,
    KeepResults,
    KeepRows,
    ReadRows,
)
from catchment.spark.batch_counts import CountWindowMerger, FindDoubts, SampleRanks, SliceAtEdges
from catchment.spark.local_parcels import REFERENCE, FileParcels
from catchment.spark.profile import pass_profile
from catchment.spark.records import BucketMade
from catchment.spark.results import ResultsInProcess, RunResults, batch_counts
from catchment.spark.rows import PARCEL, RESULT
from catchment.spark.session import cores_of, frame_of, is_local, session, ship
from catchment.spark.shared_rows import SharedColumns, frame_of_query, notes_of, union_of_queries
from catchment.spark.tasks import ReadAndSlice, Work
from catchment.spark.types import for_spark, spark_schema

_SPLITS_A_CORE = 2
"""More shares than cores, so that a slow one holds up little."""
_WITH_COUNTS = 4 << 20
"""Bytes of results that come to the driver together with the counts: fewer jobs where they are
few."""

BatchInput = Any
"""Path or paths, a source, an Arrow table, a pandas or Polars frame, a Spark DataFrame."""


@dataclass
class BatchPass:
    """One pass over events for all queries, as Spark will make it once somebody asks for rows."""

    spark: SparkSession
    work: Work
    placed: DataFrame
    """Parcels of partials, each in the partition of its bucket."""
    assemble: Assemble
    source: Source | None = None
    closing: ExitStack = field(default_factory=ExitStack)
    """Lets go of what the pass keeps, on executors and on disk."""
    began: float = field(default_factory=perf_counter)
    """When somebody asked for the pass, by the clock of this process."""

    @property
    def names(self) -> list[str]:
        """The names of the queries."""
        return list(self.work.plan.names)

    @cached_property
    def results(self) -> DataFrame:
        """The results of all queries as bytes, which Spark keeps from the first time on that they
        are asked for."""
        made = self.placed.mapInArrow(KeepResults(self.assemble), RESULT)
        return self._persisted(made, StorageLevel.DISK_ONLY)

    @cached_property
    def rows(self) -> DataFrame:
        """The rows of all queries, from which frames are selected. Spark keeps them from the first
        time on that one is used."""
        columns = self._shared.spark_schema()
        if "results" in self.__dict__:
            bodies = self.results.where("body IS NOT NULL").select("body")
            made = bodies.mapInArrow(ReadRows(self.work, self._shared), columns)
        else:
            made = self.placed.mapInArrow(KeepRows(self.assemble, self._shared), columns)
        return self._persisted(made, StorageLevel.MEMORY_AND_DISK)

    def _persisted(self, made: DataFrame, level: StorageLevel) -> DataFrame:
        self.closing.callback(made.unpersist)
        return made.persist(level)

    def only(self, name: str) -> DataFrame:
        """The rows of the only query; nothing is kept."""
        schema = self.schema(name)
        task = GiveResults(self.assemble, name, for_spark(schema))
        return self.placed.mapInArrow(task, spark_schema(schema))

    def frame(self, name: str) -> DataFrame:
        """The rows of a query, of those that are kept."""
        self.schema(name)  # refuses a name that no query has
        return frame_of_query(self.rows, self._shared, name)

    def union(self) -> DataFrame:
        """The rows of all queries, of those that are kept."""
        return union_of_queries(self.rows, self._shared)

    def table(self, name: str) -> pa.Table:
        """The rows of a query, brought here."""
        empty = self.schema(name).empty_table()
        rows = self._pieces(name).mapInArrow(CutResults(self.work, name), RESULT).select("body")
        bodies = rows.toArrow().column("body").to_pylist()
        found = [codec.unpack(bytes(body or b""), NoNote)[1]["rows"] for body in bodies]
        return pa.concat_tables([empty, *found])

    def schema(self, name: str) -> pa.Schema:
        """The columns of a query's results."""
        if name not in self.work.plan.names:
            raise QueryError("no such query", given=name, hint=did_you_mean(name, self.names))
        return self._empty[name].schema

    @cached_property
    def _empty(self) -> Results:
        """Results of no windows; to make them of many queries takes a moment."""
        return self.work.bound().no_results()

    @cached_property
    def _shared(self) -> SharedColumns:
        return SharedColumns.of({name: self.schema(name) for name in self.names})

    def _pieces(self, name: str) -> DataFrame:
        group, _ = self.work.plan.names[name]
        mine = f"body IS NOT NULL AND (grp IS NULL OR grp = {group})"
        return self.results.where(mine).select("body")

    def run(self) -> RunResults:
        """Makes the pass. Few results come here at once; many stay where they are until somebody
        asks for them."""
        try:
            results = self._run()
        except BaseException:
            self.closing.close()
            raise
        if self.source is not None:
            results.never_read = self.source.never_read()
        return results

    def _run(self) -> RunResults:
        most = _WITH_COUNTS // self.work.buckets
        small = (sf.length("body") <= most) & ~sf.startswith("body", sf.lit(REFERENCE))
        few = sf.when(small, sf.col("body")).alias("body")
        told = self.results.where("note IS NOT NULL").select("note", few).toArrow()
        notes = [_note(note) for note in told.column("note").to_pylist()]
        bodies = [bytes(body) for body in told.column("body").to_pylist() if body is not None]
        unread = [row for made in notes for row in made.unread]
        if len(bodies) == sum(made.pieces for made in notes):
            bound = self.work.bound()
            parts = [unpack_results(body, bound)[0] for body in bodies] or [bound.no_results()]
            results = RunResults(
                ResultsInProcess(parts, self.spark), self.names, _counts(notes), unread
            )
            self.closing.close()
        else:
            rows = sum(made.rows for made in notes)
            results = RunResults(ResultsOnExecutors(self, rows), self.names, _counts(notes), unread)
        results.aside = [kept for made in notes for kept in made.spilled]
        splits = [split for made in notes for split in made.splits]
        buckets, cores = [made.seconds for made in notes], cores_of(self.spark)
        results.profile = pass_profile(perf_counter() - self.began, splits, buckets, cores)
        return results

    def counts(self) -> dict[str, int]:
        """What the tasks counted, of the rows that are kept."""
        return _counts([_note(note) for note in notes_of(self.rows)])


def _note(note: bytes | None) -> BucketMade:
    return records.decode(BucketMade, bytes(note or b""), "what a task says of its results")


def _counts(notes: list[BucketMade]) -> dict[str, int]:
    kept = sum(kept.rows for made in notes for kept in made.spilled)
    return batch_counts([made.counts for made in notes], kept)


@dataclass
class ResultsOnExecutors:
    """Results that stay on the executors."""

    made: BatchPass
    rows: int

    def table(self, name: str) -> pa.Table:
        return self.made.table(name)

    def ordered(self, name: str) -> bool:
        return self.made.work.bound().no_results().ordered(name)

    def frame(self, name: str) -> DataFrame:
        return self.made.frame(name)

    def release(self) -> None:
        """Lets go of them."""
        self.made.closing.close()


def prepared(
    events: BatchInput,
    queries: Query | Iterable[Query],
    rules: EventRules,
    spark: SparkSession | None,
    buckets: int | None = None,
    state_bytes: int | None = None,
    key_bytes: int | None = None,
    aside: AsidePlace | None = None,
) -> BatchPass:
    """A pass over the events, all checks done and nothing computed.

    A job may have a place for rows set aside.
    """
    began = perf_counter()
    given = each_its_name([queries] if isinstance(queries, Query) else queries)
    fitting = each_bound(given, QueryRules(rules.time, tables=_tables(events)))
    named = {query.name: query for query in fitting}
    planned = NOTHING.next(0, named)
    made = planned.plan
    spark = spark or (events.sparkSession if isinstance(events, DataFrame) else session())
    ship(spark)
    buckets = buckets or (cores_of(spark) if any(group.by for group in made.groups) else 1)

    def work(schema: pa.Schema) -> Work:
        return Work(
            made.to_bytes(),
            schema,
            rules,
            buckets,
            aside=aside,
            state_bytes=state_bytes,
            key_bytes=key_bytes,
            apart=_sampled_groups(planned, schema, rules, spark),
        )

    with ExitStack() as closing:
        if not isinstance(events, DataFrame) and is_frame(events):
            table = as_table(events)
            # Executors on this machine map the table from a file; others get it through Spark.
            events = _as_file(spark, table, closing) if is_local(spark) else frame_of(spark, table)
        if isinstance(events, DataFrame):
            source = None
            sliced = frames.sliced(events, made, rules.time, work)
        else:
            source = source_of(events)
            sliced = _sliced_source(source, made, work, spark, closing)
        return _pass(*sliced, spark, source, closing, began)


def _tables(events: BatchInput) -> tuple[str, ...]:
    """What SQL may call the events in FROM, besides `events`."""
    if isinstance(events, DataFrame) or is_frame(events):
        return ()
    name = source_of(events).table()
    return () if name is None else (name,)


def _sliced_source(
    source: Source,
    plan: Plan,
    made: Callable[[pa.Schema], Work],
    spark: SparkSession,
    closing: ExitStack,
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
    if is_local(spark):
        work = replace(work, files=FileParcels(_folder(spark, closing)))
    work.bound()  # refuses queries that do not fit the events, before anything is read
    nodes = {name: number for number, name in enumerate(dict.fromkeys(s.partition for s in splits))}
    numbered = [(nodes[split.partition], split) for split in splits]
    columns = needed(plan, work.rules.time_name, source.event_schema())
    task = ReadAndSlice(work, source, numbered, columns, common_condition(plan))
    numbers = spark.range(0, len(splits), 1, max(1, len(splits)))
    return work, numbers.mapInArrow(task, PARCEL)


def needed(plan: Plan, time: str, schema: pa.Schema) -> list[str]:
    """The columns that are read, in the events' order."""
    names = {time}.union(*(columns_of(group) for group in plan.groups))
    return columns_read(schema.names, names)


def common_condition(plan: Plan) -> str | None:
    """A condition that every event of any use meets, if there is one."""
    selections = {text for group in plan.groups for text in group.selections}
    if None in selections or not 0 < len(selections) <= 8:
        return None
    return " OR ".join(f"({text})" for text in sorted(str(text) for text in selections))


def _pass(
    work: Work,
    parcels: DataFrame,
    spark: SparkSession,
    source: Source | None,
    closing: ExitStack,
    began: float,
) -> BatchPass:
    groups = work.apart
    if groups:
        # Events are kept where they were read, while samples of them say where edges are.
        parcels = parcels.persist(StorageLevel.DISK_ONLY)
        closing.callback(parcels.unpersist)
        parcels = _cut_apart(work, parcels, groups)
    placed = parcels.repartitionById(work.buckets, sf.col("bucket") % work.buckets)
    assemble = Assemble(work, partial(CountWindowMerger, groups) if groups else None)
    return BatchPass(spark, work, placed, assemble, source, closing.pop_all(), began)


def _sampled_groups(
    planned: Planned, schema: pa.Schema, rules: EventRules, spark: SparkSession
) -> frozenset[int]:
    """The groups of count windows whose edges are found by samples.

    That reads what tasks kept of the events twice more, so it is done only where one task would
    get all events otherwise: without keys, on several machines. What is not full can only be
    emitted where its events are.
    """
    if rules.incomplete == "emit" or is_local(spark):
        return frozenset()
    found = distributed_groups(planned, schema, "auto")
    return frozenset(id for id in found if not planned.plan.groups[id].by)


def _cut_apart(work: Work, parcels: DataFrame, groups: frozenset[int]) -> DataFrame:
    """With the events of count windows cut where no edge is near."""
    samples = parcels.mapInArrow(SampleRanks(work, groups), PARCEL).repartition(1)
    doubts = samples.mapInArrow(FindDoubts(work, groups), PARCEL).select(sf.col("body").alias("d"))
    return parcels.crossJoin(sf.broadcast(doubts)).mapInArrow(SliceAtEdges(work, groups), PARCEL)


_FOLDERS: set[tempfile.TemporaryDirectory[str]] = set()
"""Folders that frames may still need, whose objects remove them at the end of the process."""


def _as_file(spark: SparkSession, table: pa.Table, closing: ExitStack) -> str:
    """A file that executors on this machine map, as long as the pass may need it."""
    path = str(Path(_folder(spark, closing)) / "events.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 20)
    return path


def _folder(spark: SparkSession, closing: ExitStack) -> str:
    """A folder where Spark keeps its own, which lasts as long as the pass may need it."""
    places = os.environ.get("SPARK_LOCAL_DIRS") or str(spark.conf.get("spark.local.dir", ""))
    place = places.partition(",")[0] or None
    folder = tempfile.TemporaryDirectory(prefix="catchment-", dir=place)
    _FOLDERS.add(folder)
    closing.callback(_FOLDERS.discard, folder)
    closing.callback(folder.cleanup)
    return folder.name
