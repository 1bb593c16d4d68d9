"""The work of a node of a tree as a streaming query: reading, merging, or assembling."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from msgspec.structs import asdict
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from catchment.durable.folder import Folder
from catchment.engine import codec
from catchment.engine.parcels import partials_of
from catchment.engine.partials import Partials, joined_partials
from catchment.model import records
from catchment.sinks.base import Sink
from catchment.sources.aside_files import AsideFiles
from catchment.sources.base import Source
from catchment.spark.bucket_keys import labels
from catchment.spark.deliver import BatchCommitter
from catchment.spark.planning import Progress
from catchment.spark.records import JobCounts, Parcel, SplitNote
from catchment.spark.session import SparkError, cores_of, is_connect, session, ship
from catchment.spark.spec import Spec
from catchment.spark.state import heartbeats
from catchment.spark.stepping import Steps
from catchment.spark.streaming_query import assemble_buckets, read_parcels, start_query
from catchment.tree.charter import Charter
from catchment.tree.local import PARTITIONS, SlicedElsewhere

_BUCKETS = "buckets.json"
"""How many shares of keys the node began with; they are kept for good."""


class SparkWork:
    """A node's streaming query, and the folder that it shares with its executors."""

    def __init__(self, id: str, home: Path, apart: bool = False) -> None:
        self.id = id
        self._apart = apart
        """Whether another node of this process has the Spark application: it also ends it."""
        self.checkpoint = str((home / "spark").absolute())
        self.home = Folder(self.checkpoint).sub("catchment")
        self.spark: SparkSession | None = None
        self.query: StreamingQuery | None = None
        self.spec: Spec | None = None

    def _session(self) -> SparkSession:
        if self.spark is None:
            found = session().newSession() if self._apart else session()
            if is_connect(found):
                raise SparkError(
                    "a node of a tree needs Spark's driver in its own process",
                    given="a session of Spark Connect",
                    hint="start the node without a remote session, or without Spark",
                )
            ship(found)
            self.spark = found
        return self.spark

    def _spec(self, charter: Charter, source: Source, sinks: tuple[Sink, ...], keyed: bool) -> Spec:
        spark, settings = self._session(), charter.settings
        held = self.home.read(_BUCKETS)
        if held is None:
            buckets = cores_of(spark) if keyed else 1
            self.home.write(_BUCKETS, records.encode(buckets))
        else:
            buckets = records.decode(int, held, f"{self.home.shown}/{_BUCKETS}")
        assert charter.schema is not None
        local = not isinstance(source, Steps)
        return Spec(
            job=f"{charter.job}-{self.id}",
            home=self.home,
            source=source,
            sinks=sinks,
            schema=charter.schema,
            time=settings.time,
            late=settings.late,
            keep=settings.keep,
            lateness=settings.lateness if local else 0,
            idle=settings.idle if local else None,
            ahead=settings.ahead if local else None,
            buckets=buckets,
            labels=labels(buckets),
            parallel=cores_of(spark),
            rate=settings.rate,
            tree=True,
            count_scheme=settings.count if settings.distributes_counts else None,
            node=charter.places[self.id].number * PARTITIONS,
            stream=charter.stream(self.id),
            incomplete=settings.incomplete,
            emit=settings.emit,
            aside_bytes=settings.aside_bytes,
            aside_disk_bytes=settings.aside_disk_bytes,
            state_bytes=settings.state_bytes,
            key_bytes=settings.key_bytes,
        )

    def _start(self, each: Callable[[DataFrame, int], None], stateful: bool) -> None:
        spark, spec = self._session(), self.spec
        assert spec is not None
        rows = read_parcels(spark, spec)
        if stateful:
            rows = assemble_buckets(spec, rows)
        writer = rows.writeStream.foreachBatch(each).outputMode("update" if stateful else "append")
        writer = writer.option("checkpointLocation", f"{self.checkpoint}/checkpoint")
        writer = writer.queryName(spec.job).trigger(processingTime="0 seconds")
        self.query = start_query(spark, spec, writer)

    def read(
        self,
        charter: Charter,
        source: Source,
        took: Callable[[SlicedElsewhere, int], None],
        aside: AsideFiles,
    ) -> None:
        """Reads and slices a source, batch by batch."""
        made = self._spec(charter, source, (), keyed=False)
        spec = self.spec = replace(made, aside_home=aside.home)
        aside.begin()

        def each(rows: DataFrame, _: int) -> None:
            partials, notes = _collected(rows, aside)
            if not notes:
                return
            control = notes[0].control
            heard = heartbeats(notes)
            frontier = control.frontier.after(heard, control.now, spec.lateness, spec.idle)
            counts = _summed([note.counts for note in notes if note.counts is not None])
            batch = SlicedElsewhere(
                control.batch, control.plan, partials, frontier, counts, control.ended
            )
            took(batch, control.now)
            done = JobCounts(), control.ended, control.plan, control.now
            Progress(control.batch, frontier, *done).save(spec)

        self._start(each, stateful=False)

    def merge(
        self, charter: Charter, took: Callable[[int, Partials, dict[tuple[str, int], int]], None]
    ) -> None:
        """Decodes and merges the messages of each step."""
        self.spec = self._spec(charter, Steps(home=self.home.uri), (), keyed=False)

        def each(rows: DataFrame, _: int) -> None:
            partials, notes = _collected(rows, None)
            if notes:
                ends = {(id, seq): end for note in notes for id, seq, end in note.ends}
                took(1 + notes[0].control.batch, partials, ends)

        self._start(each, stateful=False)

    def assemble(
        self,
        charter: Charter,
        sinks: tuple[Sink, ...],
        took: Callable[[int, dict[str, int], tuple[str, ...]], None],
    ) -> None:
        """Carries out each step of the root, its state in Spark's state store."""
        keyed = any(group.by for group in charter.plans[charter.plan].plan.groups)
        self.spec = self._spec(charter, Steps(home=self.home.uri), sinks, keyed)
        committer = BatchCommitter(
            self.spec,
            lambda progress, *_: took(
                progress.batch + 1, asdict(progress.counts), progress.drained
            ),
        )
        self._start(committer, stateful=True)

    def failure(self) -> Exception | None:
        """Why the query has ended, if it has."""
        return None if self.query is None else self.query.exception()

    def stop(self) -> None:
        """Ends the query; a batch at hand is done again by the next."""
        with contextlib.suppress(Exception):  # it may have ended, or the JVM with it
            if self.query is not None:
                self.query.stop()
        with contextlib.suppress(Exception):
            if self.spark is not None and not self._apart:
                self.spark.stop()
        self.query = self.spark = None


def _collected(rows: DataFrame, aside: AsideFiles | None) -> tuple[Partials, list[SplitNote]]:
    """The partials of a batch in the order of its splits, their notes, and rows set aside."""
    found: list[tuple[Partials, SplitNote]] = []
    others: dict[str, list[pa.Table]] = {}
    for row in rows.collect():
        parcel, tables = codec.unpack(bytes(row.body), Parcel)
        if parcel.split is None:
            others.setdefault(parcel.aside or "", []).append(tables["rows"])
        else:
            found.append((partials_of(tables), parcel.split))
    found.sort(key=lambda part: part[1].number)
    notes = [note for _, note in found]
    if aside is not None and notes:
        spilled = [kept for note in notes for kept in note.spilled]
        aside.keep(notes[0].control.batch, others, spilled)
    return joined_partials([partials for partials, _ in found]), notes


def _summed(counts: list[dict[str, int]]) -> dict[str, int]:
    names = ("events", "late", "bad", "updates", "no_window", "aside_dropped")
    return {name: sum(count.get(name, 0) for count in counts) for name in names}
