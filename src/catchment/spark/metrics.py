"""Prometheus metrics of a running job, fed by its own reports and by Spark's listener."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Histogram, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from catchment.errors import CatchmentError
from catchment.spark.handle import Handle, Status

HOST = "127.0.0.1"
"""Metrics may tell of a business; who wants them elsewhere puts a proxy before them."""

_COUNTERS = {
    "events": "Events read.",
    "accepted": "Events that took part.",
    "late": "Events that came too late.",
    "bad": "Rows that are no events, set aside.",
    "duplicates": "Events that repeated another.",
    "updates": "Late events that corrected results.",
    "results": "Result rows.",
    "aside_dropped": "Late and bad rows that were not kept.",
}
_STATES = ("starting", "running", "ended", "stopped", "failed")
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """Serves the metrics of one job over HTTP, from before it starts until it has ended."""

    def __init__(self, port: int) -> None:
        self.registry = CollectorRegistry()
        self.spark = _FromSpark(self.registry)
        self._job = _FromJob()
        self.registry.register(self._job)
        self._server, self._thread = _serve(port, self.registry)
        self._session: SparkSession | None = None

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/metrics"

    def follow(self, handle: Handle, spark: SparkSession) -> None:
        """From now on the metrics are those of this job."""
        self.spark.name = handle.spec.job
        self._job.status = handle.status
        handle.watch(self._job.heard)
        spark.streams.addListener(self.spark)
        self._session = spark

    def close(self) -> None:
        if self._session is not None:
            self._session.streams.removeListener(self.spark)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _serve(port: int, registry: CollectorRegistry) -> tuple[WSGIServer, threading.Thread]:
    try:
        return start_http_server(port, addr=HOST, registry=registry)
    except OSError as error:
        raise CatchmentError(
            "metrics cannot be served on this port",
            given=port,
            hint=f"{(error.strerror or str(error)).lower()}; choose another, or 0 for a free one",
        ) from error


class _FromJob(Collector):
    """What the job itself counts. The counts go on over restarts, as the job does."""

    def __init__(self) -> None:
        self.status: Status | None = None

    def heard(self, status: Status) -> None:
        self.status = status

    def collect(self) -> Iterator[Metric]:
        status = self.status
        if status is None:
            return
        for name, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"catchment_{name}", text, labels=["job"])
            counter.add_metric([status.job], getattr(status, name))
            yield counter
        for name, text, value in _gauges(status):
            if value is not None:
                gauge = GaugeMetricFamily(f"catchment_{name}", text, labels=["job"])
                gauge.add_metric([status.job], value)
                yield gauge
        yield _states(status)
        yield _partitions(status)
        yield from _limits(status)


def _gauges(status: Status) -> list[tuple[str, str, float | None]]:
    frontier = None if status.frontier is None else status.frontier / 1e6
    return [
        ("frontier_seconds", "The frontier, in seconds since 1970.", frontier),
        ("lag_seconds", "From the newest event to the frontier.", status.lag),
        ("events_per_second", "Events a second, over the last batches.", status.rate),
        ("batch", "The number of the last batch.", status.batch),
        ("queries", "Queries asked for.", status.queries),
        ("rejected_query_files", "Query files that cannot be used.", len(status.rejected)),
        ("open_windows", "Windows that had not ended when the source did.", status.open_windows),
        ("open_events", "Accepted events in such windows.", status.open_events),
        ("never_read_rows", "Rows of the source never read.", status.never_read_rows),
        ("waiting_files", "Files that cannot be read yet.", len(status.waiting)),
    ]


def _states(status: Status) -> GaugeMetricFamily:
    family = GaugeMetricFamily("catchment_state", "1 for how the job is.", labels=["job", "state"])
    for state in _STATES:
        family.add_metric([status.job, state], float(state == status.state))
    return family


def _limits(status: Status) -> Iterator[GaugeMetricFamily]:
    for name, text in (("used", "How much there is of what grows."), ("limit", "Its limit.")):
        family = GaugeMetricFamily(f"catchment_{name}", text, labels=["job", "of", "unit"])
        for one in status.limits:
            family.add_metric([status.job, one.name, one.unit], float(getattr(one, name)))
        yield family


def _partitions(status: Status) -> GaugeMetricFamily:
    text = "The newest event time of a partition, in seconds since 1970."
    family = GaugeMetricFamily(
        "catchment_partition_newest_seconds", text, labels=["job", "partition"]
    )
    for partition, newest in status.partitions.items():
        if newest is not None:
            family.add_metric([status.job, partition], newest / 1e6)
    return family


class _FromSpark(StreamingQueryListener, Collector):
    """What Spark tells after each batch: how long it took, and how large the state is."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.name = ""
        self._seconds = Histogram(
            "catchment_batch_seconds",
            "How long batches took.",
            ["job"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._gauges: dict[str, tuple[str, float]] = {}
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
        gauges = {"parcels_per_second": ("Parcels a second.", progress.processedRowsPerSecond)}
        for state in progress.stateOperators:
            files = dict(state.customMetrics).get("rocksdbSstFileSize", 0)
            gauges["state_rows"] = ("Rows of state in Spark's store.", state.numRowsTotal)
            gauges["state_bytes"] = ("Memory of Spark's store.", state.memoryUsedBytes)
            gauges["state_file_bytes"] = ("Files of Spark's store.", files)
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        for name, (text, value) in self._gauges.items():
            gauge = GaugeMetricFamily(f"catchment_{name}", text, labels=["job"])
            gauge.add_metric([self.name], float(value))
            yield gauge
