"""A job on Spark, looked at: by its folder, and by its handle where this process runs it.

The folder tells as much as anybody needs of a job that runs elsewhere or has ended. The handle adds
what only the process knows: what batches cost, how full its buffers are, its memory.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from catchment.durable.folder import Folder
from catchment.errors import CatchmentError, JobError, QueryError
from catchment.job import JobModel
from catchment.model.query import Query
from catchment.planner.planned import Planned
from catchment.sinks.base import Sink
from catchment.sources.aside_files import newest_rows
from catchment.ui.results import ResultReader
from catchment.ui.snapshot import BatchCost, JobView, Notice, Snapshot

if TYPE_CHECKING:
    from catchment.spark.handle import Handle, Status


class SparkJob:
    """A job that is looked at. `handle` is set once this process runs it."""

    def __init__(self, job: JobModel, handle: Handle | None = None) -> None:
        if job.checkpoint is None:
            raise JobError(
                "where does the job run? its file names no checkpoint",
                hint="say --checkpoint DIR, or add checkpoint: folder/ to the job file",
            )
        # Here and not above: only who looks at a job on Spark needs pyspark.
        from catchment.spark import job_folder

        self.job = job
        self.handle = handle
        self.home: Folder = job_folder.home_of(job.checkpoint)
        self._results = ResultReader(job.sinks)
        self._lock = threading.Lock()
        self._planned: Planned | None = None
        self._version = ""

    @property
    def name(self) -> str:
        return self.job.name or "job"

    @property
    def sinks(self) -> Sequence[Sink]:
        return self.job.sinks

    # -- looking ---------------------------------------------------------------------------------

    def look(self) -> Snapshot:
        from catchment.spark import job_folder

        try:
            found = job_folder.found_status(self.home)
        except CatchmentError as failure:
            return Snapshot(JobView(self.name, "spark", "unreachable", error=str(failure)))
        planned = self.planned()
        state, error, handle = found.state, found.error, self.handle
        limits = found.limits
        if handle is not None:
            state, error = handle.state, handle.error
            limits = (*handle.limits, *limits)
        job = JobView(
            self.name,
            "spark",
            state,
            frontier="ended" if state == "ended" else found.frontier,
            lag=found.lag if state == "running" else None,
            plan=None if planned is None else planned.plan.version,
            queries=0 if planned is None else len(planned.queries),
            rate=found.rate if state == "running" else None,
            batch=found.batch,
            memory=None if handle is None else _resident(),
            error=error,
            results=self._results.location,
        )
        return Snapshot(
            job,
            counts(found),
            (),
            limits,
            notices(found),
            dict(found.partitions),
            None if handle is None else _cost(handle),
        )

    def planned(self) -> Planned | None:
        from catchment.spark.queries import newest_plan

        with self._lock:
            names = self.home.sub("plans").names()
            newest = names[-1] if names else ""
            if newest != self._version:
                self._planned, self._version = newest_plan(self.home), newest
            return self._planned

    # -- queries ---------------------------------------------------------------------------------

    def check(self, query: Query) -> None:
        """As `add` does, but for names: those of the plan count, which are known already. All files
        of queries are read only when one is added."""
        from catchment.spark.job_folder import fit

        fit(self.home, [query])
        planned = self.planned()
        if planned is not None and query.name in planned.queries:
            raise QueryError("two queries have one name", given=query.name, hint="remove one first")

    def add(self, query: Query) -> None:
        from catchment.spark.job_folder import fit
        from catchment.spark.queries import QueryFolder

        fit(self.home, [query])
        QueryFolder(self.home).add(query)

    def remove(self, name: str, drain: bool) -> None:
        from catchment.spark.queries import QueryFolder

        folder = QueryFolder(self.home)
        folder.drain(name) if drain else folder.remove(name)

    def set_aside(self, kind: str, rows: int) -> pa.Table:
        return newest_rows(self.home.sub("aside"), kind, rows)


def counts(status: Status) -> dict[str, int]:
    """What the job has counted."""
    names = ("events", "accepted", "late", "bad", "duplicates", "updates", "results")
    more = ("open_windows", "open_events", "aside_dropped")
    return {name: getattr(status, name) for name in (*names, *more)}


def notices(status: Status) -> tuple[Notice, ...]:
    """What a person should know of a job."""
    found = [Notice("query rejected", file, why) for file, why in status.rejected.items()]
    for one in status.never_read:
        found.append(Notice("waiting" if one.waiting else "never read", one.origin, one.reason))
    return tuple(found)


def _cost(handle: Handle) -> BatchCost | None:
    found = handle.profile()
    return BatchCost(found.batches, found.seconds, found.parts) if found.batches else None


def _resident() -> int | None:
    """Bytes of this process in memory, where the system tells."""
    try:
        with open("/proc/self/statm") as told:
            pages = int(told.read().split()[1])
    except OSError:
        return None
    import resource

    return pages * resource.getpagesize()
