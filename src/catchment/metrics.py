"""Prometheus metrics: how they are served, and the families that jobs and nodes have in common.

`CATALOGUE` is the one list of all metrics, with what each means and its labels. Whoever gives a
metric gives it by its name in the list, and the reference of metrics is made of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from catchment.errors import CatchmentError
from catchment.model.capacity import Capacity
from catchment.model.plan import Plan
from catchment.planner.group import operators_of
from catchment.sinks.result_counts import BOUNDS, MOST, QueryCounts

HOST = "127.0.0.1"
"""Metrics may tell of a business: they are served to this host unless somebody says otherwise."""


class MetricInfo(NamedTuple):
    """A metric that there may be."""

    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ("job",)
    of: Literal["job", "node", "both"] = "both"


_LINK = ("job", "node", "child")
_WINDOW = ("job", "node", "child", "window")
_NODE = ("job", "node")
_QUERY = ("job", "query")

CATALOGUE: dict[str, MetricInfo] = {
    "events": MetricInfo("counter", "Events read."),
    "accepted": MetricInfo("counter", "Events that took part."),
    "late": MetricInfo("counter", "Events that came too late."),
    "bad": MetricInfo("counter", "Rows that are no events, set aside."),
    "duplicates": MetricInfo("counter", "Events that repeated another."),
    "updates": MetricInfo("counter", "Late events that corrected results."),
    "results": MetricInfo("counter", "Result rows."),
    "aside_dropped": MetricInfo("counter", "Late and bad rows that were not kept."),
    "frontier_seconds": MetricInfo("gauge", "The frontier, in seconds since 1970."),
    "lag_seconds": MetricInfo("gauge", "From the newest event to the frontier.", of="job"),
    "behind_seconds": MetricInfo("gauge", "From the frontier to the clock."),
    "events_per_second": MetricInfo("gauge", "Events a second, over the last seconds.", of="job"),
    "batch": MetricInfo("gauge", "The number of the last batch.", of="job"),
    "queries": MetricInfo("gauge", "Queries asked for."),
    "groups": MetricInfo("gauge", "Groups of queries that share slices."),
    "rejected_query_files": MetricInfo("gauge", "Query files that cannot be used.", of="job"),
    "open_windows": MetricInfo("gauge", "Windows that had not ended when the source did."),
    "open_events": MetricInfo("gauge", "Accepted events in such windows."),
    "never_read_rows": MetricInfo("gauge", "Rows of the source never read."),
    "waiting_files": MetricInfo("gauge", "Files that cannot be read yet.", of="job"),
    "state": MetricInfo("gauge", "1 for how the job is.", ("job", "state"), "job"),
    "used": MetricInfo("gauge", "How much there is of what grows.", ("job", "of", "unit")),
    "limit": MetricInfo("gauge", "Its limit.", ("job", "of", "unit")),
    "partition_newest_seconds": MetricInfo(
        "gauge",
        "The newest event time of a partition, in seconds since 1970.",
        ("job", "partition"),
        "job",
    ),
    "batch_seconds": MetricInfo("histogram", "How long batches took.", of="job"),
    "parcels_per_second": MetricInfo("gauge", "Parcels a second.", of="job"),
    "state_rows": MetricInfo("gauge", "Rows of state in Spark's store.", of="job"),
    "state_bytes": MetricInfo("gauge", "Memory of Spark's store.", of="job"),
    "state_file_bytes": MetricInfo("gauge", "Files of Spark's store.", of="job"),
    "query_results": MetricInfo("counter", "Result rows of a query.", _QUERY),
    "query_revisions": MetricInfo("counter", "Result rows that corrected an earlier one.", _QUERY),
    "query_retractions": MetricInfo(
        "counter", "Result rows that took an earlier one back.", _QUERY
    ),
    "query_operators": MetricInfo(
        "gauge", "Operators that would take every event if the query ran alone.", _QUERY
    ),
    "result_staleness_seconds": MetricInfo(
        "histogram", "From the end of a window to when its result came, by query.", _QUERY
    ),
    "window_staleness_seconds": MetricInfo(
        "histogram",
        "From the end of a window to when its result came, by window type.",
        ("job", "window"),
    ),
    "missing_nodes": MetricInfo("gauge", "Nodes that results are not waiting for.", _NODE, "node"),
    "lost_nodes": MetricInfo("gauge", "Nodes of which messages or events are lost.", _NODE, "node"),
    "not_asked_nodes": MetricInfo(
        "gauge", "Nodes whose values are set aside for what they said.", _NODE, "node"
    ),
    "outbox_bytes": MetricInfo("gauge", "Bytes of messages not acknowledged yet.", _NODE, "node"),
    "messages_sent": MetricInfo("counter", "Messages sent to the parent.", _NODE, "node"),
    "child_connected": MetricInfo("gauge", "1 while a child is connected.", _LINK, "node"),
    "child_silent_seconds": MetricInfo("gauge", "Since a child was heard of.", _LINK, "node"),
    "child_frontier_seconds": MetricInfo(
        "gauge", "The frontier of a child, in seconds since 1970.", _LINK, "node"
    ),
    "link_messages": MetricInfo("counter", "Messages that came from a child.", _LINK, "node"),
    "link_bytes": MetricInfo("counter", "Bytes of these messages.", _LINK, "node"),
    "link_staleness_seconds": MetricInfo(
        "gauge", "From the frontier of a child to when it was last heard of.", _LINK, "node"
    ),
    "link_window_rows": MetricInfo(
        "counter", "Rows of slices that came from a child for windows of a type.", _WINDOW, "node"
    ),
    "link_window_bytes": MetricInfo(
        "counter", "The share of these rows in the bytes of their messages.", _WINDOW, "node"
    ),
    "link_windows": MetricInfo(
        "counter", "Windows of a type that a child has passed.", _WINDOW, "node"
    ),
    "link_window_staleness_seconds": MetricInfo(
        "counter",
        "From the ends of these windows to the messages that have passed them, in all.",
        _WINDOW,
        "node",
    ),
    "link_bandwidth_bytes": MetricInfo(
        "gauge", "Bytes a second that a link was found to carry.", _LINK, "node"
    ),
    "link_bandwidth_error": MetricInfo(
        "gauge", "By which share that is off, on average.", _LINK, "node"
    ),
    "link_alpha": MetricInfo(
        "gauge",
        "How lazy the flush policy is: 0 sends what will not change, 1 holds it as long as it can.",
        _LINK,
        "node",
    ),
    "link_early_rows": MetricInfo("counter", "Rows sent before their slice ended.", _LINK, "node"),
}
"""All metrics, by their names without `catchment_`. A counter is served with `_total` behind it."""


class Sample(NamedTuple):
    """A value of a metric, and the values of its labels."""

    labels: Sequence[str]
    value: float


def family(name: str, samples: Iterable[Sample]) -> Metric:
    """A metric of the list, with its values."""
    known = CATALOGUE[name]
    kind = CounterMetricFamily if known.kind == "counter" else GaugeMetricFamily
    made: CounterMetricFamily | GaugeMetricFamily
    made = kind(f"catchment_{name}", known.text, labels=known.labels)
    for sample in samples:
        made.add_metric(list(sample.labels), float(sample.value))
    return made


def one(name: str, value: float | None, *labels: str) -> Iterator[Metric]:
    """A metric with one value; none where it is not known."""
    if value is not None:
        yield family(name, [Sample(labels, value)])


def limits(job: str, found: Iterable[Capacity]) -> Iterator[Metric]:
    """What grows, and its limits."""
    held = list(found)
    yield family("used", [Sample([job, each.name, each.unit], each.used) for each in held])
    yield family("limit", [Sample([job, each.name, each.unit], each.limit) for each in held])


def queries(job: str, tallies: Mapping[str, QueryCounts], plan: Plan | None) -> Iterator[Metric]:
    """What was given of each query, what it would cost alone, and how late windows came."""
    held = dict(tallies)
    yield family("query_results", [Sample([job, n], t.rows) for n, t in held.items()])
    yield family("query_revisions", [Sample([job, n], t.revisions) for n, t in held.items()])
    yield family("query_retractions", [Sample([job, n], t.retracted) for n, t in held.items()])
    yield _histogram("result_staleness_seconds", job, held)
    if plan is None:
        return
    yield family("groups", [Sample([job], len(plan.every_group))])
    yield family("query_operators", [Sample([job, n], c) for n, c in _alone(plan).items()])
    by_window: dict[str, QueryCounts] = {}
    for name, found in held.items():
        window = _window(plan, name)
        by_window[window] = by_window.get(window, QueryCounts()).plus(found)
    yield _histogram("window_staleness_seconds", job, by_window)


def _alone(plan: Plan) -> dict[str, int]:
    """Operators of each query, of the first `MOST` of them."""
    found = {}
    for name, (group, answer) in list(plan.names.items())[:MOST]:
        found[name] = len(operators_of([plan.every_group[group].answers[answer]]))
    return found


def _window(plan: Plan, name: str) -> str:
    """What the window of a query is called; that of a query that is no more is not known."""
    place = plan.names.get(name.partition("@")[0])
    if place is None:
        return "unknown"
    group = plan.every_group[place[0]]
    return group.windows[group.answers[place[1]].window].describe()


def _histogram(name: str, job: str, held: Mapping[str, QueryCounts]) -> Metric:
    known = CATALOGUE[name]
    made = HistogramMetricFamily(f"catchment_{name}", known.text, labels=known.labels)
    for label, found in held.items():
        total, buckets = 0, []
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], found.staleness, strict=True):
            total += count
            buckets.append((bound, total))
        made.add_metric([job, label], buckets, found.seconds)
    return made


class MetricsServer:
    """Serves a registry over HTTP, in a thread."""

    def __init__(self, port: int, registry: CollectorRegistry, host: str = HOST) -> None:
        self.host = host
        try:
            self._server, self._thread = _started(port, host, registry)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise CatchmentError(
                "metrics cannot be served on this port",
                given=f"{host}:{port}" if host != HOST else port,
                hint=f"{why}; choose another, or 0 for a free one",
            ) from error

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}/metrics"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _started(
    port: int, host: str, registry: CollectorRegistry
) -> tuple[WSGIServer, threading.Thread]:
    return start_http_server(port, addr=host, registry=registry)
