"""Metrics of jobs and nodes: every one is in the list, and says what it should."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

import catchment as ct
from catchment.engine.times import now
from catchment.metrics import CATALOGUE
from catchment.model.capacity import Capacity
from catchment.nodes.metrics import NodeMetrics
from catchment.nodes.status import ChildStatus, NodeStatus
from catchment.sinks.result_counts import (
    BOUNDS,
    MOST,
    OTHERS,
    QueryCounts,
    ResultCounts,
    counts_of_results,
)
from catchment.spark.handle import Status
from catchment.spark.metrics import Metrics
from catchment.tree.window_traffic import WindowTraffic
from patience import PATIENCE
from pipeline import Pipeline

ROOT = Path(__file__).parent.parent
QUERIES = [
    ct.Query("mean", ct.avg("v"), by="k", window=ct.tumbling("1s")),
    ct.Query("top", ct.max("v"), window=ct.sliding("10s", "1s")),
]
PLAN = ct.plan(QUERIES)
AT = 1_767_225_600_000_000


def results(*seconds: float, **more: Any) -> pa.Table:
    """Rows whose windows ended so many seconds before `AT`."""
    ends = [AT - round(each * 1e6) for each in seconds]
    return pa.table({"window_end": pa.array(ends, pa.timestamp("us", "UTC")), **more})


def test_results_are_counted_by_query() -> None:
    tables = {
        "mean": results(0.05, 2.0, 90_000.0, revision=[0, 1, 2], retracted=[False, False, True]),
        "top": results(),
    }
    found = counts_of_results(tables, AT)
    assert set(found) == {"mean"}
    assert (found["mean"].rows, found["mean"].revisions, found["mean"].retracted) == (3, 2, 1)
    assert found["mean"].seconds == pytest.approx(90_002.05)
    assert found["mean"].staleness[0] == 1 and found["mean"].staleness[-1] == 1
    assert found["mean"].staleness[BOUNDS.index(2.5)] == 1


def test_tallies_add_up_and_have_a_limit() -> None:
    held = ResultCounts()
    held.add({"a": QueryCounts(rows=2)})
    held.add({"a": QueryCounts(rows=3)})
    assert held.by_query["a"].rows == 5
    held.add({f"q{n}": QueryCounts(rows=1) for n in range(MOST + 10)})
    assert len(held.by_query) == MOST + 1
    assert held.by_query[OTHERS].rows == 11


@pytest.fixture
def node() -> Iterator[str]:
    """The metrics of a root with two children, one of which is missing."""
    at = now()
    link = {"bandwidth": 2000.0, "error": 0.1, "alpha": 0.25, "early rows": 7}
    status = NodeStatus(
        node="root",
        role="root",
        job="fleet",
        charter=1,
        damage=[],
        life=1,
        frontier=at - 5_000_000,
        missing=("b",),
        counts={"events": 10, "accepted": 8, "late": 2, "bad": 0, "duplicates": 0, "results": 4},
        lost={"b": at},
        never_read=(),
        never_read_by_nodes={},
        limits=[Capacity("inbox", 5, 10, "bytes", "children keep them")],
        children={
            "a": ChildStatus(
                True,
                0.0,
                at - 3_000_000,
                12,
                12,
                (),
                link,
                3456,
                {"tumbling(2s)": WindowTraffic(40, 3000, 5, 0.5, 2.5)},
            ),
            "b": ChildStatus(False, 90.0, None, 1, 1, (), None),
        },
    )
    held = ResultCounts()
    held.add({"mean": QueryCounts(4, 1, 0, (3, 1, *[0] * (len(BOUNDS) - 1)), 0.5)})
    served = NodeMetrics(0, lambda: status, held, lambda: PLAN)
    with urllib.request.urlopen(served.address, timeout=PATIENCE) as answer:
        yield answer.read().decode()
    served.close()


def value(page: str, name: str, **labels: str) -> float:
    wanted = {"job": "fleet", **labels}
    (found,) = (
        sample.value
        for family in parsed(page)
        for sample in family.samples
        if sample.name == f"catchment_{name}" and sample.labels == wanted
    )
    return found


def test_a_node_tells_of_its_links(node: str) -> None:
    a, b = {"node": "root", "child": "a"}, {"node": "root", "child": "b"}
    assert value(node, "child_connected", **a) == 1 and value(node, "child_connected", **b) == 0
    assert value(node, "link_bytes_total", **a) == 3456
    assert value(node, "link_messages_total", **a) == 12
    assert value(node, "link_bandwidth_bytes", **a) == 2000
    assert value(node, "link_alpha", **a) == 0.25
    assert value(node, "link_early_rows_total", **a) == 7
    assert 3 <= value(node, "link_staleness_seconds", **a) < 60
    assert value(node, "child_silent_seconds", **b) == 90
    assert 'link_bandwidth_bytes{child="b"' not in node
    assert value(node, "missing_nodes", node="root") == 1
    assert value(node, "lost_nodes", node="root") == 1
    assert value(node, "not_asked_nodes", node="root") == 0


def test_a_node_tells_what_windows_cost_on_its_links(node: str) -> None:
    window = {"node": "root", "child": "a", "window": "tumbling(2s)"}
    assert value(node, "link_window_rows_total", **window) == 40
    assert value(node, "link_window_bytes_total", **window) == 3000
    assert value(node, "link_windows_total", **window) == 5
    assert value(node, "link_window_staleness_seconds_total", **window) == 2.5


def test_a_root_tells_of_its_queries(node: str) -> None:
    assert value(node, "query_results_total", query="mean") == 4
    assert value(node, "query_revisions_total", query="mean") == 1
    assert value(node, "query_operators", query="mean") == 2
    assert value(node, "queries") == 2
    assert value(node, "result_staleness_seconds_bucket", query="mean", le="0.25") == 4
    assert value(node, "window_staleness_seconds_count", window="tumbling(1s)") == 4
    assert value(node, "results_total") == 4 and 5 <= value(node, "behind_seconds") < 60
    assert value(node, "used", of="inbox", unit="bytes") == 5


def test_a_job_tells_of_its_queries() -> None:
    served = Metrics(0)
    served._job.status = Status("running", "fleet", events=3, behind=7.5)
    served._job.tallies.add({"mean": QueryCounts(rows=9)})
    try:
        with urllib.request.urlopen(served.address, timeout=PATIENCE) as answer:
            page = answer.read().decode()
    finally:
        served.close()
    assert value(page, "query_results_total", query="mean") == 9
    assert value(page, "behind_seconds") == 7.5


def test_what_is_served_is_in_the_list(node: str) -> None:
    names = {name.removesuffix("_total") for name in re.findall(r"# TYPE catchment_(\w+) ", node)}
    assert names and names <= set(CATALOGUE)


@pytest.mark.parametrize("path", sorted((ROOT / "kit" / "grafana").glob("*.json")))
def test_dashboards_ask_for_metrics_that_there_are(path: Path) -> None:
    board = json.loads(path.read_text())
    served = set(CATALOGUE) | {
        f"{name}{end}"
        for name, known in CATALOGUE.items()
        for end in {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(
            known.kind, ()
        )
    }
    asked = set(re.findall(r"catchment_(\w+)", json.dumps(board["panels"])))
    if "postgres" not in path.name:
        assert asked
    assert asked <= served
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids)) and board["schemaVersion"] >= 39
    for panel in board["panels"]:
        assert {"h", "w", "x", "y"} == set(panel["gridPos"])
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert panel["type"] == "row" or all(t["refId"] for t in panel["targets"])


@pytest.mark.parametrize("metered", [True, False])
def test_a_streaming_job_counts_results_by_query_where_metrics_are_served(
    metered: bool, tmp_path: Path
) -> None:
    """The pipeline of a job on Spark, in this process: executors count, the driver adds up."""
    events = [
        pa.table(
            {
                "ts": pa.array([second * 1_000_000], pa.timestamp("us", "UTC")),
                "k": ["a" if second % 2 else "b"],
                "v": [float(second)],
            }
        )
        for second in range(20)
    ]
    batches = [[("0", table)] for table in events]
    pipeline = Pipeline(str(tmp_path), batches, QUERIES, metered=metered)
    rows = {name: table.num_rows for name, table in pipeline.run().items()}
    assert rows["mean"] == 20 and rows["top"] > 20
    assert pipeline.tallied == (rows if metered else {})
