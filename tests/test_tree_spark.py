"""A tree whose nodes are Spark applications and plain processes: the same results as one engine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import yaml

import catchment as ct
from catchment.errors import CatchmentError
from catchment.job import JobModel
from catchment.measure.ports import free_port
from catchment.nodes import spark_execution
from catchment.planner.edges import LATEST
from catchment.sinks.memory import Memory
from catchment.sources.generated import Generated
from catchment.testing.compare import assert_same, rows_of
from notes import ask
from runtimes import running
from schedules import soaked

EVENTS = 30_000
QUERIES = [
    {"name": "mean", "select": ["avg(v)", "count(*)"], "by": "player", "window": "tumbling(1s)"},
    {"name": "lots", "select": ["sum(seq)"], "window": "count_tumbling(1000)"},
    {"name": "visits", "select": ["count(*)"], "by": "player", "window": "session(300ms)"},
    {
        "name": "runs",
        "select": ["count(*)", "sum(seq)"],
        "by": "player",
        "window": {"between": {"start": "seq % 97 < 3", "end": "seq % 97 > 90", "reading": "gaps"}},
    },
    {
        "name": "laps",
        "select": ["avg(v)"],
        "by": "player",
        "window": {"cut": {"at": "seq % 97 = 0", "reading": "local"}},
    },
    {
        "name": "many",
        "select": ["sum(v)", "count(*)", "median(v)"],
        "window": "count_sliding(9000, 4000)",
    },
    {"name": "each", "select": ["max(seq)"], "by": "player", "window": "count_tumbling(3000)"},
    {"name": "mid", "select": ["median(v)"], "window": "sliding(4s, 2s)"},
    {"name": "own", "select": ["avg(v)"], "by": "player", "window": "tumbling(1s, reading=local)"},
    {"name": "calls", "select": ["count(*)"], "window": "session(300ms, reading=local)"},
    {"name": "rounds", "select": ["sum(seq)"], "window": "session(300ms, reading=ordered)"},
    {
        "name": "lots_of_each",
        "select": ["sum(seq)"],
        "by": "player",
        "window": "count_sliding(700, 300, reading=local)",
    },
    {
        "name": "first_end",
        "select": ["count(*)"],
        "by": "player",
        "window": "between(seq % 97 < 3, seq % 97 > 90, reading=any)",
    },
]
OF_STREAMS = ("runs", "laps", "own", "calls", "rounds", "lots_of_each", "first_end")


def source(seed: int) -> dict[str, Any]:
    """Thirty thousand events; those of the node that moves take some ten seconds."""
    made = {
        "type": "generator",
        "seed": seed,
        "rate": 10_000,
        "keys": 5,
        "events": EVENTS,
        "per_batch": 10_000,
        "gaps": ["1s", "2s"],
    }
    return made | ({"per_batch": 500, "pace": 3000} if seed == 2 else {})


def job(home: Path, on_spark: list[str]) -> Path:
    root, mid = free_port(), free_port()
    nodes: list[dict[str, Any]] = [
        {"id": "root", "listen": f"127.0.0.1:{root}"},
        {"id": "mid", "parent": "root", "listen": f"127.0.0.1:{mid}"},
        {"id": "e1", "parent": "mid", "source": source(1)},
        {"id": "e2", "parent": "mid", "source": source(2)},
        {"id": "e3", "parent": "root", "source": source(3)},
    ]
    for node in nodes:
        node["engine"] = "spark" if node["id"] in on_spark else "embedded"
    path = home / "job.yaml"
    made = {
        "name": "tree",
        "timeout": "10m",
        "queries": QUERIES,
        "nodes": nodes,
        "checkpoint": str(home / "state"),
        "sinks": [{"type": "parquet", "path": str(home / "out")}],
    }
    path.write_text(yaml.safe_dump(made))
    return path


def moved(root: str, running: subprocess.Popen[str]) -> bool:
    """Lets e2 move once events come; whether it has landed before all was over."""
    asked = False
    while running.poll() is None:
        time.sleep(0.2)
        with suppress(CatchmentError):
            found = ask(root, "status", {})
            if not asked and found["children"]["e3"]["received"]:
                ask(root, "move node", {"id": "e2", "parent": "root"})
                asked = True
            elif asked and not any("moves from" in place for place in found["places"]):
                return True
    return False


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("on_spark", [["root", "e1"], soaked(["root", "mid"])], ids="-".join)
def test_engines_work_together(tmp_path: Path, on_spark: list[str]) -> None:
    path = job(tmp_path, on_spark)
    command = [sys.executable, "-m", "catchment.cli.main", "up", str(path), "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert moved(str(yaml.safe_load(path.read_text())["nodes"][0]["listen"]), running)
            _, said = running.communicate(timeout=280)
        finally:
            running.kill()  # where that failed; its nodes end with it
    assert running.returncode == 0, said[-3000:]
    queries = ct.load_job({"queries": QUERIES}).build()
    engine = ct.Engine(queries)
    made = [Generated(**{k: v for k, v in source(n).items() if k != "type"}) for n in (1, 2, 3)]
    events = [one.generator(0).table(EVENTS) for one in made]
    engine.push(pa.concat_tables(events))
    wanted = engine.close()
    plan = ct.plan([query for query in queries if query.name in OF_STREAMS])
    parts = [ct.slice(table, plan, node=n) for n, table in enumerate(events, 1)]
    by_stream = ct.assemble(ct.merge(parts, plan), None, plan)
    for query in queries:
        table = ds.dataset(tmp_path / "out" / query.name, format="parquet").to_table()
        assert all(table["complete"].to_pylist())
        plain = table.drop_columns(["complete", "missing"])
        found = by_stream if query.name in OF_STREAMS else wanted
        rows = [
            {name: f"e{value}" if name == "node" else value for name, value in row.items()}
            for row in rows_of(found[query.name])
        ]
        assert rows
        assert_same(rows, plain, query.name, keys=query.keys)


@pytest.mark.spark
@pytest.mark.parametrize("few", [-1, spark_execution.FEW_BYTES], ids=["by Spark", "in process"])
def test_a_node_in_between(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Few messages are merged in its process, many by executors: the results are the same."""
    monkeypatch.setattr(spark_execution, "FEW_BYTES", few)
    handed: list[int] = []

    def write_step(folder: Any, step: Any, *rest: Any) -> None:
        handed.append(step.step)
        written(folder, step, *rest)

    written = spark_execution.write_step
    monkeypatch.setattr(spark_execution, "write_step", write_step)
    root, mid = (f"127.0.0.1:{free_port()}" for _ in range(2))
    read = {"type": "generator", "rate": 1000, "keys": 5, "events": 4000, "per_batch": 1000}
    memory = Memory()
    job = JobModel(
        name="between",
        queries=[query for query in QUERIES if query["name"] in ("mean", "visits")],
        nodes=[
            {"id": "root", "listen": root, "engine": "embedded"},
            {"id": "mid", "parent": "root", "listen": mid, "engine": "spark"},
            *(
                {"id": id, "parent": "mid", "engine": "embedded", "source": read | {"seed": seed}}
                for seed, id in enumerate(("e1", "e2"), 1)
            ),
        ],
        checkpoint=str(tmp_path / "state"),
        sinks=[memory],
    )
    with running(job) as tree:
        tree.wait(lambda: tree.frontier >= LATEST)
    assert bool(handed) == (few < 0)
    check_plain(job, memory, read, (1, 2))


def check_plain(job: JobModel, memory: Memory, read: dict[str, Any], seeds: Sequence[int]) -> None:
    """Compares results with those of one engine; every window is whole."""
    engine = ct.Engine(job.build())
    options = {name: value for name, value in read.items() if name != "type"}
    made = [Generated(**options, seed=seed).generator(0).table(4000) for seed in seeds]
    engine.push(pa.concat_tables(made))
    wanted = engine.close()
    for query in job.build():
        found = memory.results(query.name)
        assert all(found["complete"].to_pylist())
        plain = found.drop_columns(["complete", "missing"])
        assert_same(rows_of(wanted[query.name]), plain, query.name, keys=query.keys)


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_query_that_starts_before_its_first_step(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark runs a batch as soon as its query starts, whether or not a step has been decided."""
    began = list[bool]()

    def go_on(execution: spark_execution.Stepwise) -> bool:
        query = execution._node.work.query
        if query is None or query.lastProgress is None:
            return False
        began.append(True)
        return real(execution)

    real = spark_execution.Stepwise.go_on
    monkeypatch.setattr(spark_execution.Stepwise, "go_on", go_on)
    read = {"type": "generator", "rate": 1000, "keys": 5, "events": 4000, "per_batch": 1000}
    memory = Memory()
    job = JobModel(
        name="early",
        queries=[query for query in QUERIES if query["name"] in ("mean", "visits")],
        nodes=[
            {"id": "root", "listen": f"127.0.0.1:{free_port()}", "engine": "spark"},
            {"id": "e1", "parent": "root", "engine": "embedded", "source": read | {"seed": 1}},
        ],
        checkpoint=str(tmp_path / "state"),
        sinks=[memory],
    )
    with running(job) as tree:
        tree.wait(lambda: tree.frontier >= LATEST)
    assert began
    check_plain(job, memory, read, (1,))
