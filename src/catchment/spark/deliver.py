"""Results on their way to the sinks: from executors where a sink can, else through the driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from catchment.engine import codec
from catchment.engine.bound import BoundPlan
from catchment.engine.parcels import pack_results, unpack_results
from catchment.engine.results import Results
from catchment.engine.set_aside import joined
from catchment.engine.times import now
from catchment.model.capacity import Capacity, largest
from catchment.model.frontier import Frontier
from catchment.sinks.base import Delivery
from catchment.sources.aside_files import AsideFiles, Kept
from catchment.spark.planning import KEPT, PLANS_KEPT, Progress
from catchment.spark.queries import Queries, QueryFolder
from catchment.spark.rows import row_of
from catchment.spark.spec import Control, Spec
from catchment.tree.completeness import lacking_in, marked

COUNTS = ("events", "accepted", "late", "bad", "duplicates", "updates", "results")
"""What every job counts."""
ENDINGS = ("open_windows", "open_events", "aside_dropped")
"""What is counted besides; a job of an older version did not."""


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
    if control.sure is not None:
        short = partial(lacking_in, control.behind, planned, control.uncounted)
        tables = marked(tables, control.sure, list(control.missing), short)
    return Delivery(spec.job, control.batch, bucket, *planned.delivered(tables))


class BatchCommitter:
    """On the driver, once a batch: rows set aside, driver sinks, and the progress, in this order.

    All of it may happen again for the same batch, and then does the same. The progress is last:
    where it is there, all the rest is.
    """

    def __init__(
        self, spec: Spec, heard: Callable[[Progress, dict[str, Any]], None], framed: bool = False
    ) -> None:
        self.spec = spec
        self.queries = Queries(spec) if framed else None
        """Where no offset of ours says the plan of the next batch, the progress does."""
        self.heard = heard
        self._bounds: dict[int, BoundPlan] = {}
        self.files = AsideFiles(spec.aside, spec.aside_disk_bytes)

    def __call__(self, rows: DataFrame, _: int) -> None:
        reports: list[dict[str, Any]] = []
        results: list[tuple[int, bytes]] = []
        aside: dict[str, list[pa.Table]] = {}
        for row in rows.collect():
            body = bytes(row.body)
            if row.kind == "report":
                reports.append(json.loads(body))
            elif row.kind == "results":
                results.append((row.bucket, body))
            else:
                meta, tables = codec.unpack(body)
                aside.setdefault(meta["kind"], []).append(tables["rows"])
        if not reports:
            return
        control = Control.from_dict(reports[0]["control"])
        kept = [Kept(*one) for report in reports for one in report["spilled"]]
        self._keep_aside(control, aside, kept)
        self._deliver(control, results)
        gone = set.intersection(*(set(report["drained"]) for report in reports))
        progress = replace(self._progress(control, reports), drained=tuple(sorted(gone)))
        if gone and not self.spec.tree:
            QueryFolder(self.spec.home).drained(gone)
        progress.save(self.spec)
        limits = [Capacity(**one) for report in reports for one in report["limits"]]
        note = {"planned": control.now, "plan": control.plan}
        self.heard(progress, note | {"limits": largest(limits) + self._limits(progress)})

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

    def _keep_aside(
        self, control: Control, aside: dict[str, list[pa.Table]], spilled: list[Kept]
    ) -> None:
        for kind, tables in aside.items():
            self.files.write(control.batch, 0, kind, joined(tables))
        for kept in spilled:
            self.files.adopt(kept)
        self.files.end(control.batch)

    def _deliver(self, control: Control, parcels: list[tuple[int, bytes]]) -> None:
        for bucket, body in sorted(parcels):
            results, _ = unpack_results(body, self._bound(control.plan))
            delivery = delivery_of(self.spec, control, bucket, results)
            for sink in self.spec.sinks:
                if sink.on_driver:
                    sink.write(delivery)

    def _bound(self, plan: int) -> BoundPlan:
        if plan not in self._bounds:
            self._bounds = {plan: self.spec.bound(plan)}
        return self._bounds[plan]

    def _progress(self, control: Control, reports: list[dict[str, Any]]) -> Progress:
        counts = dict.fromkeys((*COUNTS, *ENDINGS), 0)
        if control.batch > 0:
            counts |= Progress.load(self.spec, control.batch - 1).counts
        counts["open_windows"] = sum(report["open"][0] for report in reports)
        counts["open_events"] = sum(report["open"][1] for report in reports)
        for report in reports:
            for held in report["counts"]:
                for name in ("events", "late", "bad", "updates", "aside_dropped"):
                    counts[name] += held.get(name, 0)
            counts["duplicates"] += report["duplicates"]
            counts["missed"] = counts.get("missed", 0) + report["missed"]
            counts["results"] += report["results"]
        counts["accepted"] = (
            counts["events"] - counts["late"] - counts["bad"] - counts["duplicates"]
        )
        frontier = Frontier.from_dict(reports[0]["frontier"])
        plan = control.plan if self.queries is None else self.queries.changed(control.plan)
        return Progress(control.batch, frontier, counts, control.ended, plan, now())
