"""Results on their way to the sinks: from executors where a sink can, else through the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from catchment.engine import codec
from catchment.engine.bound import BoundPlan
from catchment.engine.parcels import pack_results, unpack_results
from catchment.engine.results import Results
from catchment.engine.times import now
from catchment.model import records
from catchment.model.capacity import Capacity, largest
from catchment.planner.observed import RateWatch
from catchment.sinks.base import Delivery
from catchment.sinks.result_counts import ResultCounts
from catchment.sinks.spark_format import SparkFormat
from catchment.sources.aside_files import AsideFiles
from catchment.spark.format_sink import write_batch
from catchment.spark.planning import KEPT, PLANS_KEPT, Progress
from catchment.spark.profile import BatchProfile, Stopwatch, batch_profile
from catchment.spark.queries import Queries, QueryFolder
from catchment.spark.records import (
    UNCHANGED,
    BucketReport,
    Control,
    JobCounts,
    Parcel,
    PlanChange,
)
from catchment.spark.rows import row_of
from catchment.spark.spec import Spec
from catchment.tree.completeness import inclusive_in, lacking_in, marked

BatchListener = Callable[[Progress, Control, list[Capacity], BatchProfile], None]
"""Told after each batch: the progress, what the batch was told, what grows and how large, and what
the batch cost."""


def deliver(spec: Spec, control: Control, bucket: int, results: Results) -> Iterator[Any]:
    """In an executor: writes what it can itself, and passes on what the driver must."""
    if not len(results):
        return
    here = [sink for sink in spec.sinks if not sink.on_driver]
    if here:
        delivery = delivery_of(spec, control, bucket, results)
        for sink in here:
            sink.write(delivery)
    if any(sink.on_driver for sink in spec.sinks):
        yield row_of(bucket, "results", pack_results(results))


def delivery_of(spec: Spec, control: Control, bucket: int, results: Results) -> Delivery:
    planned = spec.plan(control.plan)
    tables = dict(results.items())
    if control.complete_until is not None:
        short = partial(lacking_in, control.lagging, planned, control.uncounted, ())
        inclusive = inclusive_in(planned)
        tables = marked(tables, control.complete_until, list(control.missing), short, inclusive)
    return Delivery(spec.job, control.batch, bucket, *planned.delivered(tables))


class BatchCommitter:
    """On the driver, once a batch: rows set aside, driver sinks, and the progress, in this order.

    All of it may happen again for the same batch, and then does the same. The progress is last:
    where it is there, all the rest is.
    """

    def __init__(self, spec: Spec, heard: BatchListener, framed: bool = False) -> None:
        self.spec = spec
        self.queries = Queries(spec) if framed else None
        """Where no offset of ours says the plan of the next batch, the progress does."""
        self.heard = heard
        self._bounds: dict[int, BoundPlan] = {}
        self.files = AsideFiles(spec.aside, spec.aside_disk_bytes)
        self.tallies = ResultCounts()
        """What there was of each query since this process began, where metrics are served."""
        self._formats = [sink for sink in spec.sinks if isinstance(sink, SparkFormat)]
        self._here = [s for s in spec.sinks if s.on_driver and not isinstance(s, SparkFormat)]

    def __call__(self, rows: DataFrame, _: int) -> None:
        if not self._formats:
            self._commit(rows)
            return
        kept = rows.persist()  # what is written by Spark is read once more
        try:
            self._commit(kept)
        finally:
            kept.unpersist()

    def _commit(self, rows: DataFrame) -> None:
        reports: list[BucketReport] = []
        results: list[tuple[int, bytes]] = []
        aside: dict[str, list[pa.Table]] = {}
        # Results that Spark writes itself need not come here.
        told = rows.where("kind != 'results'") if self._formats and not self._here else rows
        for row in told.collect():
            body = bytes(row.body)
            if row.kind == "report":
                reports.append(records.decode(BucketReport, body, "the report of a bucket"))
            elif row.kind == "results":
                results.append((row.bucket, body))
            else:
                parcel, tables = codec.unpack(body, Parcel)
                aside.setdefault(parcel.aside or "", []).append(tables["rows"])
        if not reports:
            return
        control = reports[0].control
        spilled = [kept for report in reports for kept in report.spilled]
        watch = Stopwatch()
        self.files.keep(control.batch, aside, spilled)
        self._deliver(control, results)
        if self._formats and any(report.results for report in reports):
            write_batch(self.spec, self._formats, rows, control)
        watch.lap("sink")
        if control.ended:
            for sink in self.spec.sinks:
                sink.finish()
        gone = set.intersection(*(set(report.drained) for report in reports))
        progress = self._progress(control, reports, gone)
        if gone and not self.spec.tree:
            QueryFolder(self.spec.home).drained(gone)
        progress.save(self.spec)
        for report in reports:
            self.tallies.add(report.tallies)
        limits = largest(one for report in reports for one in report.limits)
        splits = [seconds for report in reports for seconds in report.splits]
        buckets = [report.seconds for report in reports]
        cost = batch_profile(control.batch, splits, buckets, watch.seconds["sink"])
        self.heard(progress, control, limits + self._limits(progress), cost)

    def _limits(self, progress: Progress) -> list[Capacity]:
        """What the driver keeps in the job's folder."""
        then = "the oldest is removed"
        batches = min(progress.batch + 1, KEPT)
        plans = min(progress.plan + 1, PLANS_KEPT)
        sinks = [capacity for sink in self.spec.sinks for capacity in sink.capacities()]
        return [
            *sinks,
            self.files.capacity(),
            Capacity("progress of batches", batches, KEPT, "files", then),
            Capacity("versions of the plan", plans, PLANS_KEPT, "files", then),
        ]

    def _deliver(self, control: Control, parcels: list[tuple[int, bytes]]) -> None:
        for bucket, body in sorted(parcels):
            results, _ = unpack_results(body, self._bound(control.plan))
            delivery = delivery_of(self.spec, control, bucket, results)
            for sink in self._here:
                sink.write(delivery)

    def _bound(self, plan: int) -> BoundPlan:
        if plan not in self._bounds:
            self._bounds = {plan: self.spec.bound(plan)}
        return self._bounds[plan]

    def _progress(self, control: Control, reports: list[BucketReport], gone: set[str]) -> Progress:
        """What is known after a batch, from what was known before and what buckets report.

        `gone` are queries that leave, and what others were owed, whose windows have all ended.
        """
        first = control.batch <= 0
        last = None if first else Progress.load(self.spec, control.batch - 1)
        before = JobCounts() if last is None else last.counts
        read = [counts for report in reports for counts in report.counts]

        def more(name: str) -> int:
            return sum(counts.get(name, 0) for counts in read)

        events, late = before.events + more("events"), before.late + more("late")
        bad = before.bad + more("bad")
        duplicates = before.duplicates + sum(report.duplicates for report in reports)
        counts = JobCounts(
            events=events,
            accepted=events - late - bad - duplicates,
            late=late,
            bad=bad,
            duplicates=duplicates,
            updates=before.updates + more("updates"),
            results=before.results + sum(report.results for report in reports),
            open_windows=sum(report.open_windows for report in reports),
            open_events=sum(report.open_events for report in reports),
            aside_dropped=before.aside_dropped + more("aside_dropped"),
            missed=before.missed + sum(report.missed for report in reports),
        )
        frontier = reports[0].frontier
        observed, asked = RateWatch() if last is None else last.observed, UNCHANGED
        if not self.spec.tree:
            observed = observed.after(counts.accepted, frontier.newest)
            observed, asked = self._plan_change(control.plan, observed, gone)
        plan = control.plan if self.queries is None else self.queries.changed(control.plan, asked)
        leaving = tuple(sorted(gone - set(asked.ended)))
        return Progress(
            control.batch, frontier, counts, control.ended, plan, now(), leaving, observed, asked
        )

    def _plan_change(
        self, version: int, observed: RateWatch, gone: set[str]
    ) -> tuple[RateWatch, PlanChange]:
        """What is asked of the plan of the next batch, by the rate at which events have come."""
        planned = self.spec.plan(version)
        ended = tuple(sorted(gone & planned.plan.former.keys()))
        observed, handed = observed.next(planned.plan, planned.leaving)
        rate = observed.rate if handed else None
        return observed, PlanChange(tuple(sorted(handed)), rate, ended)
