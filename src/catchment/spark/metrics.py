"""Prometheus metrics of a running job, fed by its own reports and by Spark's listener."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from catchment import metrics
from catchment.metrics import CATALOGUE, HOST, MetricsServer, Sample, family, one
from catchment.model.plan import Plan
from catchment.sinks.result_counts import ResultCounts
from catchment.spark.handle import Handle, Status
from catchment.spark.queries import newest_plan

_COUNTERS = (
    "events",
    "accepted",
    "late",
    "bad",
    "duplicates",
    "updates",
    "results",
    "aside_dropped",
)
_STATES = ("starting", "running", "ended", "stopped", "failed")
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """Serves the metrics of one job over HTTP, from before it starts until it has ended."""

    def __init__(self, port: int, host: str = HOST) -> None:
        self.registry = CollectorRegistry()
        self.spark = _FromSpark(self.registry)
        self._job = _FromJob()
        self.registry.register(self._job)
        self._server = MetricsServer(port, self.registry, host)
        self._session: SparkSession | None = None

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def address(self) -> str:
        return self._server.address

    def follow(self, handle: Handle, spark: SparkSession) -> None:
        """From now on the metrics are those of this job."""
        self.spark.name = handle.spec.job
        self._job.follow(handle)
        spark.streams.addListener(self.spark)
        self._session = spark

    def close(self) -> None:
        if self._session is not None:
            self._session.streams.removeListener(self.spark)
        self._server.close()


class _FromJob(Collector):
    """What the job itself counts. The counts go on over restarts, as the job does; those by query
    begin with the process."""

    def __init__(self) -> None:
        self.status: Status | None = None
        self.tallies = ResultCounts()
        self._plan: Plan | None = None
        self._queries = -1

    def follow(self, handle: Handle) -> None:
        self.status = handle.status
        self.tallies = handle.committer.tallies
        handle.watch(lambda status: self.heard(status, handle))

    def heard(self, status: Status, handle: Handle | None = None) -> None:
        if handle is not None and status.queries != self._queries:
            planned = newest_plan(handle.spec.home)
            self._plan = None if planned is None else planned.plan
            self._queries = status.queries
        self.status = status

    def collect(self) -> Iterator[Metric]:
        status = self.status
        if status is None:
            return
        for name in _COUNTERS:
            yield from one(name, getattr(status, name), status.job)
        for name, value in _gauges(status).items():
            yield from one(name, value, status.job)
        states = [Sample([status.job, each], each == status.state) for each in _STATES]
        yield family("state", states)
        newest = ((name, at) for name, at in status.partitions.items() if at is not None)
        yield family(
            "partition_newest_seconds",
            [Sample([status.job, name], at / 1e6) for name, at in newest],
        )
        yield from metrics.limits(status.job, status.limits)
        yield from metrics.queries(status.job, self.tallies.by_query, self._plan)


def _gauges(status: Status) -> dict[str, float | None]:
    return {
        "frontier_seconds": None if status.frontier is None else status.frontier / 1e6,
        "lag_seconds": status.lag,
        "behind_seconds": status.behind,
        "events_per_second": status.rate,
        "batch": status.batch,
        "queries": status.queries,
        "rejected_query_files": len(status.rejected),
        "open_windows": status.open_windows,
        "open_events": status.open_events,
        "never_read_rows": status.never_read_rows,
        "waiting_files": len(status.waiting),
    }


class _FromSpark(StreamingQueryListener, Collector):
    """What Spark tells after each batch: how long it took, and how large the state is."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.name = ""
        self._seconds = Histogram(
            "catchment_batch_seconds",
            CATALOGUE["batch_seconds"].text,
            ["job"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._gauges: dict[str, float] = {}
        registry.register(self)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        return

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        # A session may run other queries besides.
        if event.progress.name == self.name:
            self.progress(event.progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        return

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        return

    def progress(self, progress: Any) -> None:
        """Takes in what Spark says of one batch."""
        self._seconds.labels(self.name).observe(progress.batchDuration / 1000)
        gauges = {"parcels_per_second": progress.processedRowsPerSecond}
        for state in progress.stateOperators:
            files = dict(state.customMetrics).get("rocksdbSstFileSize", 0)
            gauges["state_rows"] = state.numRowsTotal
            gauges["state_bytes"] = state.memoryUsedBytes
            gauges["state_file_bytes"] = files
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        for name, value in self._gauges.items():
            yield from one(name, value, self.name)
