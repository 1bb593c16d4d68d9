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
from catchment.engine.engine import Engine, now
from catchment.engine.parcels import pack_results, unpack_results
from catchment.engine.results import Results
from catchment.model.frontier import Frontier
from catchment.sinks.base import Delivery
from catchment.spark.counting import count
from catchment.spark.planning import Progress
from catchment.spark.queries import Queries, QueryFolder
from catchment.spark.rows import row_of
from catchment.spark.spec import Control, Spec
from catchment.tree.marking import lacking_in, marked

COUNTS = ("events", "accepted", "late", "bad", "duplicates", "updates", "results")


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


class Steward:
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
        self._engines: dict[int, Engine] = {}

    def __call__(self, rows: DataFrame, _: int) -> None:
        reports: list[dict[str, Any]] = []
        results: list[tuple[int, bytes]] = []
        notes: list[bytes] = []
        aside: dict[str, list[pa.Table]] = {}
        for row in rows.collect():
            body = bytes(row.body)
            if row.kind == "report":
                reports.append(json.loads(body))
            elif row.kind == "results":
                results.append((row.bucket, body))
            elif row.kind == "notes":
                notes.append(body)
            else:
                meta, tables = codec.unpack(body)
                aside.setdefault(meta["kind"], []).append(tables["rows"])
        if not reports:
            return
        control = Control.from_dict(reports[0]["control"])
        self._keep_aside(control, aside)
        self._deliver(control, results)
        progress = self._progress(control, reports)
        counting = count(self.spec, control, self._engine, progress.frontier, notes)
        gone = set.intersection(*(set(report["drained"]) for report in reports))
        progress = replace(progress, counting=counting, drained=tuple(sorted(gone)))
        if gone and not self.spec.tree:
            QueryFolder(self.spec.home).drained(gone)
        progress.save(self.spec)
        self.heard(progress, {"planned": control.now, "plan": control.plan})

    def _keep_aside(self, control: Control, aside: dict[str, list[pa.Table]]) -> None:
        for kind, tables in aside.items():
            table = pa.concat_tables(tables, promote_options="permissive")
            self.spec.home.sub("aside").sub(kind).write_rows(f"{control.batch:09d}.parquet", table)

    def _deliver(self, control: Control, parcels: list[tuple[int, bytes]]) -> None:
        for bucket, body in sorted(parcels):
            results, _ = unpack_results(body, self._engine(control.plan))
            delivery = delivery_of(self.spec, control, bucket, results)
            for sink in self.spec.sinks:
                if sink.on_driver:
                    sink.write(delivery)

    def _engine(self, plan: int) -> Engine:
        if plan not in self._engines:
            self._engines = {plan: self.spec.engine(plan)}
        return self._engines[plan]

    def _progress(self, control: Control, reports: list[dict[str, Any]]) -> Progress:
        before = dict.fromkeys(COUNTS, 0)
        if control.batch > 0:
            before = Progress.load(self.spec, control.batch - 1).counts
        counts = dict(before)
        for report in reports:
            for held in report["counts"]:
                for name in ("events", "late", "bad", "updates"):
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
