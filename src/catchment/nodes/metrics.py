"""Prometheus metrics of a node: how it stands, its links, and, of a root, what results tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import UNSET, UnsetType
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from catchment import metrics
from catchment.engine.times import now
from catchment.metrics import HOST, MetricsServer, Sample, family, one
from catchment.model.plan import Plan
from catchment.nodes.status import ChildStatus, NodeStatus, When
from catchment.sinks.result_counts import ResultCounts
from catchment.tree.window_traffic import WindowTraffic

_COUNTS = ("events", "accepted", "late", "bad", "duplicates", "updates", "results")
_LINK = {
    "bandwidth": "link_bandwidth_bytes",
    "error": "link_bandwidth_error",
    "alpha": "link_alpha",
    "early rows": "link_early_rows",
}
"""What a child says of its link, and the metrics that it becomes."""

_WINDOW: dict[str, Callable[[WindowTraffic], float]] = {
    "link_window_rows": lambda found: found.rows,
    "link_window_bytes": lambda found: found.nbytes,
    "link_windows": lambda found: found.windows,
    "link_window_staleness_seconds": lambda found: found.staleness_seconds_total,
}
"""What comes from a child for windows of a type, and the metrics that it becomes."""


class NodeMetrics:
    """Serves the metrics of one node, which is asked when Prometheus asks."""

    def __init__(
        self,
        port: int,
        status: Callable[[], NodeStatus],
        tallies: ResultCounts,
        plan: Callable[[], Plan | None],
        host: str = HOST,
    ) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_FromNode(status, tallies, plan))
        self._server = MetricsServer(port, self.registry, host)

    @property
    def address(self) -> str:
        return self._server.address

    def close(self) -> None:
        self._server.close()


class _FromNode(Collector):
    def __init__(
        self,
        status: Callable[[], NodeStatus],
        tallies: ResultCounts,
        plan: Callable[[], Plan | None],
    ) -> None:
        self._status, self._tallies, self._plan = status, tallies, plan

    def describe(self) -> Iterator[Metric]:
        """Nothing: otherwise the node would be asked when this is registered."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        found = self._status()
        job = found.job or ""
        at = now()
        counts = found.counts or {}
        for name in _COUNTS:
            if name in counts:
                yield from one(name, counts[name], job)
        for name in ("open_windows", "open_events"):
            if name in counts:
                yield from one(name, counts[name], job)
        yield from one("frontier_seconds", _seconds(found.frontier), job)
        yield from one("behind_seconds", _behind(found.frontier, at), job)
        yield from one("missing_nodes", len(found.missing), job, found.node)
        if found.role == "root":
            yield from one("lost_nodes", len(found.lost or {}), job, found.node)
            yield from one("not_asked_nodes", len(found.not_asked or {}), job, found.node)
        yield from one("outbox_bytes", _set(found.waiting_bytes), job, found.node)
        yield from one("messages_sent", _set(found.sent), job, found.node)
        rows = sum(each.rows or 0 for each in found.never_read)
        yield from one("never_read_rows", rows, job)
        yield from metrics.limits(job, found.limits)
        yield from _links(job, found.node, dict(found.children or {}), at)
        plan = self._plan()
        if plan is not None:
            yield from one("queries", len(plan.names) - len(plan.former), job)
        yield from metrics.queries(job, self._tallies.by_query, plan)


def _links(job: str, node: str, children: dict[str, ChildStatus], at: int) -> Iterator[Metric]:
    def each(name: str, value: Callable[[ChildStatus], float | None]) -> Metric:
        found = ((id, value(child)) for id, child in children.items())
        return family(name, [Sample([job, node, id], v) for id, v in found if v is not None])

    yield each("child_connected", lambda child: float(child.connected))
    yield each("child_silent_seconds", lambda child: child.silent_seconds)
    yield each("child_frontier_seconds", lambda child: _seconds(child.frontier))
    yield each("link_messages", lambda child: child.received)
    yield each("link_bytes", lambda child: child.nbytes)
    yield each("link_staleness_seconds", lambda child: _stale(child, at))
    for name, value in _WINDOW.items():
        yield family(
            name,
            [
                Sample([job, node, id, window], value(found))
                for id, child in children.items()
                for window, found in (child.windows or {}).items()
            ],
        )
    for said, name in _LINK.items():
        yield each(name, lambda child, said=said: (child.link or {}).get(said))  # type: ignore[misc]


def _stale(child: ChildStatus, at: int) -> float | None:
    behind = _behind(child.frontier, at)
    return None if behind is None else behind - child.silent_seconds


def _seconds(value: When | UnsetType) -> float | None:
    return value / 1e6 if isinstance(value, int) else None


def _behind(value: When | UnsetType, at: int) -> float | None:
    return (at - value) / 1e6 if isinstance(value, int) else None


def _set(value: int | UnsetType) -> int | None:
    return None if value is UNSET else value
