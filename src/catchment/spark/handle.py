"""A running job in the user's hands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from catchment import html
from catchment.durable.lock import Lock
from catchment.engine.binding import admitted
from catchment.engine.times import now
from catchment.errors import QueryError, StateError
from catchment.html import Display
from catchment.job.model import JobModel as JobModel
from catchment.model import records
from catchment.model.capacity import Capacity
from catchment.model.frontier import EARLIEST, Frontier
from catchment.model.query import Query
from catchment.model.recent_rate import RecentRate
from catchment.plotting import PlottedResults
from catchment.sinks.memory import Memory
from catchment.sources.base import NeverRead
from catchment.sources.watch import SourceNote
from catchment.spark.deliver import BatchCommitter
from catchment.spark.planning import Progress
from catchment.spark.profile import BatchProfile, Profile, Profiler
from catchment.spark.queries import QueryFolder, newest_plan, read_rejected, rules_of
from catchment.spark.records import Control, JobCounts
from catchment.spark.session import SparkError, is_connect
from catchment.spark.spec import Spec


@dataclass(frozen=True)
class Status:
    """How a job stands. accepted + late + bad + duplicates = events, always."""

    state: str
    """starting, running, ended, stopped or failed."""
    job: str
    batch: int = -1
    events: int = 0
    accepted: int = 0
    late: int = 0
    bad: int = 0
    duplicates: int = 0
    updates: int = 0
    results: int = 0
    open_windows: int = 0
    """Count and user-defined windows that had not ended when the source did."""
    open_events: int = 0
    """Accepted events in them, each once for each window type."""
    aside_dropped: int = 0
    """Late and bad rows that were counted but not kept: there was no more room for them."""
    frontier: int | None = None
    """Microseconds since 1970."""
    lag: float | None = None
    """Seconds of event time from the frontier to the newest event that was read."""
    behind: float | None = None
    """Seconds from the frontier to the clock, while the job runs."""
    planned: int = 0
    """When the batch was planned, in microseconds since 1970."""
    rate: float = 0.0
    """Events a second by the clock, over the last seconds; 0 when the job does not run."""
    event_rate: float | None = None
    """Events in a second of event time, as observed; None: too few have come."""
    planned_rate: float | None = None
    """Events in a second of event time that the plan was made for."""
    queries: int = 0
    partitions: dict[str, int | None] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    """Query files that cannot be used, and why."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Files that cannot be read yet, and why."""
    never_read: tuple[NeverRead, ...] = ()
    """Rows of the source that no batch has read: where they are, how many, and why."""
    limits: tuple[Capacity, ...] = ()
    """What grows, how large it is and may get, and what happens then."""
    error: str | None = None

    @property
    def never_read_rows(self) -> int:
        """Rows that were never read, as far as their number is known."""
        return sum(one.rows or 0 for one in self.never_read)

    @classmethod
    def counted(cls, state: str, job: str, batch: int, counts: JobCounts) -> Status:
        """How a job stands that has counted so much."""
        return cls(
            state,
            job,
            batch,
            counts.events,
            counts.accepted,
            counts.late,
            counts.bad,
            counts.duplicates,
            counts.updates,
            counts.results,
            counts.open_windows,
            counts.open_events,
            counts.aside_dropped,
        )

    def at(self, frontier: Frontier, running: bool) -> Status:
        """The same, of a job that has come to a frontier."""
        known = frontier.value > EARLIEST
        return replace(
            self,
            frontier=frontier.value if known else None,
            lag=(frontier.newest - frontier.value) / 1e6 if known else None,
            behind=(now() - frontier.value) / 1e6 if known and running else None,
            partitions={name: newest for name, (newest, _) in frontier.partitions.items()},
        )

    def _repr_html_(self) -> str:
        """For notebooks: state and counts."""
        names = ("events", "accepted", "late", "bad", "duplicates", "results")
        about: dict[str, Any] = {"job": self.job, "state": self.state, "batch": self.batch}
        about |= {name: getattr(self, name) for name in names}
        about |= {"events/s": self.rate, "lag, s": self.lag, "behind the clock, s": self.behind}
        made = html.table([*about], [[*about.values()]])
        return made + (html.preformatted(self.error) if self.error else "")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Status:
        """The inverse of `to_dict`."""
        return records.convert(cls, data, "the status of a job")

    def to_dict(self) -> dict[str, Any]:
        """The status as a dictionary that JSON can hold."""
        made: dict[str, Any] = records.plain(self)
        return made


class Handle:
    """A job that runs: look at it, change its queries, stop it."""

    def __init__(self, spec: Spec, spark: SparkSession, job: JobModel, lock: Lock) -> None:
        self.spec = spec
        self.job = job
        self._lock = lock
        self.committer = BatchCommitter(spec, self._heard, framed=spec.source is None)
        self._spark = spark
        self._query: StreamingQuery | None = None
        self._progress: Progress | None = None
        """After the last batch since the job was started."""
        self._before = next(iter(Progress.newest(spec.home)), None)
        """After the last batch of the runs before."""
        self._speed = RecentRate()
        self._listeners: list[Callable[[Status], None]] = []
        self._moved = threading.Condition()
        self._planned = 0
        self.changes: list[str] = []
        """What the job file's changes since the last start did to the queries, in sentences."""
        self._limits: tuple[Capacity, ...] = ()
        self._profiler = Profiler()
        self._last_profiled = -1
        """The last batch of which Spark has told how long it took."""
        self._elsewhere = is_connect(spark)
        """Whether batches are committed in a process of the server, and not by this object."""

    def attach(self, query: StreamingQuery) -> None:
        self._query = query
        before = 0 if self._before is None else self._before.counts.events
        self._speed.seen(before, time.monotonic())

    def batch(self, rows: DataFrame, number: int) -> None:
        """What Spark calls with each batch: it counts only while the checkpoint is this job's."""
        self._lock.check()
        self.committer(rows, number)

    def _look(self) -> None:
        """Learns from the job's folder what was committed elsewhere."""
        if not self._elsewhere:
            return
        if self._query is not None and self._query.isActive:
            self._check_lock(self._query)
        names = self.spec.home.sub("progress").names()
        last = -1 if self._progress is None else self._progress.batch
        if not names or int(names[-1].removesuffix(".json")) <= last:
            return
        progress = Progress.load(self.spec, int(names[-1].removesuffix(".json")))
        self._took(progress, progress.now, [])

    def _check_lock(self, query: StreamingQuery) -> None:
        """Stops a query whose checkpoint is somebody else's by now."""
        try:
            self._lock.check()
        except StateError:
            query.stop()
            raise

    def release_if_over(self) -> None:
        """Lets others have the checkpoint, unless the job runs."""
        if self._query is None or not self._query.isActive:
            self._lock.release()

    # -- looking ---------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """How the job stands now."""
        self._look()
        progress = self._progress or self._before
        batch, counts = (-1, JobCounts()) if progress is None else (progress.batch, progress.counts)
        source = SourceNote.load(self.spec.home.sub("source"))
        found = replace(
            Status.counted(self.state, self.spec.job, batch, counts),
            error=self.error,
            rejected=read_rejected(self.spec.home),
            waiting={one.origin: one.reason for one in source.never_read if one.waiting},
            never_read=source.never_read,
            limits=(*self._limits, *source.limits),
            queries=len(self.queries()),
        )
        if progress is None:
            return found
        running = self.state == "running"
        return replace(
            found.at(progress.frontier, running),
            aside_dropped=counts.aside_dropped + self.committer.files.removed,
            planned=self._planned or progress.now,
            rate=(self._speed.at(time.monotonic()) or 0.0) if running else 0.0,
            event_rate=progress.observed.rate,
            planned_rate=self.spec.plan(progress.plan).plan.rate.per_second,
        )

    @property
    def state(self) -> str:
        """starting, running, ended, stopped or failed."""
        if self._query is None:
            return "starting"
        if self._query.exception() is not None:
            return "failed"
        if self._progress is not None and self._progress.ended:
            return "ended"
        if not self._query.isActive:
            return "stopped"
        return "running" if self._progress is not None else "starting"

    @property
    def limits(self) -> tuple[Capacity, ...]:
        """What grows in the job, as of its last batch."""
        return self._limits

    @property
    def error(self) -> str | None:
        """Why it has failed, if it has."""
        failure = None if self._query is None else self._query.exception()
        return None if failure is None else failure_text(failure)

    @property
    def results(self) -> Mapping[str, pa.Table]:
        """The results that came to memory, by query; needs the sink `memory` (the default)."""
        memory = next((sink for sink in self.spec.sinks if isinstance(sink, Memory)), None)
        if memory is None:
            raise QueryError(
                "this job keeps no results in memory",
                given=", ".join(type(sink).__name__ for sink in self.spec.sinks),
                hint="add the sink {type: memory}, or read them where they were written",
            )
        planned = newest_plan(self.spec.home)
        names = self.queries()
        return _InMemory(memory, {n: n if planned is None else planned.output(n) for n in names})

    def profile(self) -> Profile:
        """What the job's batches have cost since it was started, by what was done."""
        self.take_profile()
        return self._profiler.profile()

    def take_profile(self) -> None:
        """Takes in how long batches took. Spark tells of the last hundred, once they are over."""
        query = self._query
        for progress in [] if query is None else query.recentProgress:
            batch = int(progress["batchId"])
            if batch > self._last_profiled and progress["numInputRows"]:
                self._last_profiled = batch
                self._profiler.finish_batch(batch, progress["durationMs"]["triggerExecution"] / 1e3)

    def _heard(
        self, progress: Progress, control: Control, limits: list[Capacity], cost: BatchProfile
    ) -> None:
        self._profiler.ours(cost)
        self._took(progress, control.now, limits)

    def _took(self, progress: Progress, planned: int, limits: list[Capacity]) -> None:
        with self._moved:
            self._progress, self._planned = progress, planned
            self._limits = tuple(limits)
            self._speed.seen(progress.counts.events, time.monotonic())
            self._moved.notify_all()
        for listener in self._listeners:
            listener(self.status)

    def watch(self, listener: Callable[[Status], None]) -> None:
        """Calls back after each batch."""
        self._listeners.append(listener)

    # -- changing --------------------------------------------------------------------------------

    def queries(self) -> dict[str, Query]:
        """The queries asked for, by name."""
        return QueryFolder(self.spec.home).read()[0]

    def add_query(self, query: Query) -> None:
        """Adds a query with the next batch; kept slices answer it from where they serve."""
        if not isinstance(query, Query):
            raise QueryError("not a query", given=repr(query), hint="try ct.Query(...)")
        self.check(query)
        QueryFolder(self.spec.home).add(query)

    def check(self, query: Query) -> None:
        """Refuses a query that the job cannot take, or that does not fit its events."""
        admitted(query, rules_of(self.spec.home), self.spec.schema, self.queries())

    def remove_query(self, name: str, drain: bool = False) -> None:
        """Removes a query with the next batch: its open windows give no results any more.

        With `drain` they end as usual, no new ones begin, and the query is removed after the last.
        """
        folder = QueryFolder(self.spec.home)
        folder.drain(name) if drain else folder.remove(name)

    # -- ending ----------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> Status:
        """Waits until the job has ended, stopped or failed, or for so many seconds."""
        assert self._query is not None
        until = None if timeout is None else time.monotonic() + timeout
        while self._query.isActive and (until is None or time.monotonic() < until):
            self._look()
            if self._progress is not None and self._progress.ended:
                self.stop()
                break
            with self._moved:
                self._moved.wait(0.2)
        self.release_if_over()
        failure = self._query.exception()
        if failure is not None:
            raise SparkError("the job failed", hint=failure_text(failure)) from failure
        return self.status

    def stop(self) -> Status:
        """Stops; started again, the job goes on, with the batch at hand if it was not through."""
        assert self._query is not None
        if self._query.isActive:
            self._query.stop()
        for sink in self.spec.sinks:
            sink.close()
        self.release_if_over()
        return self.status

    def show(self, seconds: float | None = None, every: float = 1.0) -> Status:
        """Waits like `wait`, and shows how the job stands meanwhile: in a notebook one display that
        changes in place, elsewhere a line each time. `every` is in seconds."""
        until = None if seconds is None else time.monotonic() + seconds
        shown = Display()
        while True:
            left = every if until is None else min(every, until - time.monotonic())
            status = self.wait(max(left, 0.0))
            shown.update(status)
            over = status.state not in ("starting", "running")
            if over or (until is not None and time.monotonic() >= until):
                return status

    def _repr_html_(self) -> str:
        """For notebooks: how the job stands."""
        return self.status._repr_html_()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def failure_text(failure: PySparkException) -> str:
    """What really went wrong, out of a stack of wrappers: our own error's sentence if there is."""
    text = str(failure)
    for line in text.splitlines():
        head, _, rest = line.strip().partition(": ")
        name = head.rsplit(".", 1)[-1]
        if name.endswith("Error") and head.startswith("catchment."):
            return rest
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "Exception" in line]
    return (errors[-1] if errors else lines[0] if lines else "unknown")[:500]


class _InMemory(PlottedResults):
    """Results by query, of its present definition; older ones by the name they were given under."""

    def _repr_html_(self) -> str:
        """For notebooks: how many rows there are of each query."""
        rows = [[name, self[name].num_rows] for name in list(self)[: html.ROWS]]
        return html.table(["query", "rows"], rows)

    def __init__(self, memory: Memory, outputs: Mapping[str, str]) -> None:
        self._memory = memory
        self._outputs = outputs

    def __getitem__(self, name: str) -> pa.Table:
        output = self._outputs.get(name, name)
        if name not in self._outputs and output not in self._memory.queries:
            raise QueryError("no such query", given=name)
        return self._memory.results(output)

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)
