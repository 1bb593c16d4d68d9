"""One query of a job file, computed step by step on the driver of whoever reads its results.

A step reads what the job's source has, slices and assembles it in this process, and writes two
files into the job's checkpoint: the results, which executors read, and the state, from which the
next step goes on. A step that Spark never wrote down is made again from the state before it. This
is for streams that one process can follow; `ct.windows` of a streaming DataFrame uses a cluster.

    checkpoint/catchment/results/<query>/source/...    the source's notes
                                        /state/<step>  position, frontier, windows that are open
                                        /rows/<step>   the results of the step, as Arrow
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.types import StructType

from catchment.durable.folder import Folder
from catchment.durable.lock import hold
from catchment.engine.assembler import Assembler
from catchment.engine.bound import BoundPlan
from catchment.engine.codec import from_ipc, to_ipc
from catchment.engine.slicer import rank
from catchment.engine.times import now
from catchment.errors import JobError, QueryError, StateError, did_you_mean
from catchment.expression import columns_read
from catchment.job import JobModel, load_job
from catchment.model import records
from catchment.model.capacity import MemoryLimits
from catchment.model.frontier import Frontier
from catchment.model.names import file_name
from catchment.model.query import Query
from catchment.model.rules import EventRules
from catchment.planner import plan as make_plan
from catchment.planner.edges import EARLIEST, LATEST
from catchment.sources.base import Position, Source
from catchment.sources.reading import pieces_of
from catchment.spark.job_folder import absolute
from catchment.spark.types import for_spark, spark_schema

log = logging.getLogger("catchment.results")

_KEPT = 2
"""Steps before the last committed one whose files are kept: Spark may ask for them again."""
_ROWS = 1 << 16


class StepState(Struct, frozen=True):
    """What is known after a step."""

    at: Position
    frontier: Frontier
    ended: bool
    query: str
    """The query, as text: another one cannot go on from here."""
    assembler: bytes | None = None
    late: int = 0
    bad: int = 0


class JobQuery:
    """A query of a job file, bound to the columns of the job's source."""

    def __init__(self, options: Mapping[str, str]) -> None:
        if "job" not in options or "query" not in options:
            raise JobError(
                "the format catchment needs a job and a query",
                given=", ".join(sorted(options)) or "no options",
                hint='say .option("job", "job.yaml").option("query", "speed")',
            )
        self.job: JobModel = load_job(options["job"])
        if self.job.source is None:
            raise JobError("the job has no source", given=options["job"])
        if self.job.checkpoint is None:
            raise JobError(
                "the job has no checkpoint, where results wait until Spark has read them",
                given=options["job"],
                hint="add checkpoint: to the job file, a folder that driver and executors reach",
            )
        self.source: Source = self.job.source
        queries = {query.name: query for query in self.job.build()}
        name = options["query"]
        if name not in queries:
            raise QueryError("no such query", given=name, hint=did_you_mean(name, queries))
        self.query: Query = queries[name]
        if self.job.late == "update":
            raise JobError(
                "a stream of final results has no corrections",
                given="late: update",
                hint="leave it out, or run the job: catchment run",
            )
        self.home = Folder(absolute(self.job.checkpoint)).sub("catchment").sub("results")
        self.home = self.home.sub(file_name(name))

    def bound(self) -> BoundPlan:
        told = self.job.stream_options()
        rules = EventRules(told["time"], told["lateness"])
        limits = MemoryLimits.of(told["state_bytes"], told["key_bytes"], 0)
        return BoundPlan(make_plan([self.query]), rules, self.source.event_schema(), limits=limits)

    def schema(self) -> pa.Schema:
        return self.bound().no_results()[self.query.name].schema


def result_schema(options: Mapping[str, str]) -> StructType:
    """The columns of the results, before anything is read."""
    return spark_schema(JobQuery(options).schema())


def results_of_step(options: Mapping[str, str], step: int) -> Iterator[pa.RecordBatch]:
    """The results of a step, in an executor."""
    body = JobQuery(options).home.sub("rows").read(_file(step))
    if body is None:
        raise StateError(
            "the results of a step are missing",
            given=str(step),
            hint="the job's checkpoint must be on storage that driver and executors all reach",
        )
    table = from_ipc(body)
    yield from table.cast(for_spark(table.schema)).to_batches(max_chunksize=_ROWS)


class JobResults:
    """Makes steps, in the one process that plans the streaming query."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._query = JobQuery(options)
        self._source = self._query.source
        self._source.check()
        self._bound = self._query.bound()
        self._options = self._query.job.stream_options()
        self._lock = hold(self._query.home)
        self._source.open(self._query.home.sub("source"))
        self._until: Position | None = None
        self._available_now = False
        self._held: tuple[int, StepState, Assembler] | None = None

    def until_now(self) -> None:
        """Reads no further than to what there is now."""
        self._available_now = True

    def after(self, step: int) -> int:
        """Makes the step after one, if there is something to do: the number of the last step."""
        self._lock.check()
        state, assembler = self._load(step)
        if state.ended:
            return step
        if self._available_now and self._until is None:
            self._until = self._source.bound(state.at)
        at = self._source.latest(state.at, self._until)
        ended = at == state.at and self._source.ended(at)
        clock = now()
        idle = state.frontier.after({}, clock, self._options["lateness"], self._options["idle"])
        if at == state.at and not ended and idle.value <= state.frontier.value:
            return step
        self._held = None  # what the step does to the assembler counts once its files are there
        made, table = self._step(state, assembler, at, ended, clock)
        self._query.home.sub("rows").write(_file(step + 1), to_ipc(table))
        self._query.home.sub("state").write(_file(step + 1), records.pack(made))
        self._held = step + 1, made, assembler
        if (late := made.late - state.late) or made.bad > state.bad:
            log.warning(
                "query %s: %d late and %d bad rows are left out, in all %d and %d",
                self._query.query.name,
                late,
                made.bad - state.bad,
                made.late,
                made.bad,
            )
        return step + 1

    def _load(self, step: int) -> tuple[StepState, Assembler]:
        if self._held is not None and self._held[0] == step:
            return self._held[1:]
        text = str(self._query.query.to_dict())
        if step == 0:
            known = Frontier().knowing(self._source.partitions(self._source.start()), now())
            return StepState(self._source.start(), known, False, text), self._bound.assembler()
        data = self._query.home.sub("state").read(_file(step))
        if data is None:
            raise StateError(
                "the state after a step is missing",
                given=f"{self._query.home.shown}/state/{_file(step)}",
                hint="the job's checkpoint and Spark's must be kept, moved and deleted together",
            )
        state = records.unpack(StepState, data, "the state after a step")
        if state.query != text:
            raise StateError(
                "the checkpoint is of another query of this name",
                given=self._query.query.name,
                hint="use another checkpoint, for the job and for Spark's query",
            )
        return state, self._bound.assembler(state.assembler)

    def _step(
        self, state: StepState, assembler: Assembler, at: Position, ended: bool, clock: int
    ) -> tuple[StepState, pa.Table]:
        splits = self._source.splits(state.at, at, 1)
        known = state.frontier.knowing(self._source.partitions(at), clock)
        known = known.knowing((split.partition for split in splits), clock)
        heard: dict[str, int] = {}
        counts = {"late": state.late, "bad": state.bad}
        schema = self._source.event_schema()
        names = columns_read(schema.names, self._bound.columns)
        ahead = self._options["ahead"]
        for split in splits:
            slicer = self._bound.slicer(encoder=assembler.encoder, clock=lambda: clock)
            if ahead is not None:
                slicer.ceiling = clock + ahead
            node = known.number(split.partition)
            for piece in pieces_of(self._source, split, names, None):
                place = rank(node, piece.arrival or 0)
                for sliced in slicer.slice(piece.events, known.value, place):
                    assembler.add(sliced)
                if piece.bad is not None:
                    slicer.unread(piece.bad)
            if slicer.newest > EARLIEST:
                before = heard.get(split.partition, slicer.newest)
                heard[split.partition] = max(before, slicer.newest)
            counts = {name: number + slicer.counts[name] for name, number in counts.items()}
        frontier = known.after(heard, clock, self._options["lateness"], self._options["idle"])
        assembler.clock = lambda: clock
        results = assembler.close() if ended else assembler.advance(min(frontier.value, LATEST - 1))
        made = StepState(
            at, frontier, ended, str(self._query.query.to_dict()), assembler.save(), **counts
        )
        return made, results[self._query.query.name]

    def forget(self, step: int) -> None:
        """Removes files of steps that nobody asks for again."""
        for folder in (self._query.home.sub("rows"), self._query.home.sub("state")):
            for name in folder.names():
                if int(name) < step - _KEPT:
                    folder.remove(name)
        state = self._load(step)[0]
        self._source.commit(state.at)

    def close(self) -> None:
        """Lets go of the source and the folder."""
        self._source.close()
        self._lock.release()


def _file(step: int) -> str:
    return f"{step:09d}"
