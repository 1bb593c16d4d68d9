"""Examples run as they are."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import catchment as ct
from catchment.cli.check import inspect
from catchment.job import load_job
from catchment.measure.ports import free_port
from catchment.sinks.parquet import ParquetSink
from catchment.testing.compare import assert_same, rows_of
from patience import PATIENCE
from schedules import in_soak

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


def catchment(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "catchment.cli.main", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_all_examples_are_listed() -> None:
    text = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.iterdir():
        assert path.name == "README.md" or path.name.startswith((".", "__")) or path.name in text


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_programs_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_job_files_fit_their_events(path: Path) -> None:
    assert [mistake.text for mistake in inspect(path).mistakes] == []


@pytest.mark.slow
def test_the_tree_runs_and_loses_nothing(tmp_path: Path) -> None:
    path, text = tmp_path / "tree.yaml", (EXAMPLES / "tree.yaml").read_text()
    for port in ("7411", "7412"):  # somebody else may use them
        assert text.count(port) == 1
        text = text.replace(port, str(free_port()))
    path.write_text(text)
    catchment(tmp_path, "up", str(path), "--quiet")
    results = ParquetSink(path=str(tmp_path / "build" / "fleet" / "results"))
    counted = results.read("everyone")
    job = load_job(path)
    events = sum(node.source.events for node in job.nodes if node.source is not None)
    assert sum(counted["n"].to_pylist()) == events == 120_000
    assert all(counted["complete"].to_pylist())
    assert {"speed", "sprints", "everyone"} <= {query.name for query in job.build()}


@pytest.mark.spark
@pytest.mark.slow
def test_the_job_runs(tmp_path: Path) -> None:
    told = catchment(tmp_path, "run", str(EXAMPLES / "job.yaml"), "--json")
    last = json.loads(told.splitlines()[-1])
    assert (last["state"], last["events"]) == ("ended", 300_000)
    assert last["accepted"] + last["late"] == last["events"] and last["results"] > 0
    status = json.loads(catchment(tmp_path, "status", str(EXAMPLES / "job.yaml"), "--json"))
    assert (status["state"], status["results"]) == ("ended", last["results"])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1000)
@in_soak
def test_the_declarative_pipeline_runs(tmp_path: Path) -> None:
    """Once: tables that go on in a second run need a catalog that lasts.

    It starts a server of Spark Connect on its usual port, so no other may run beside it.
    """
    pytest.importorskip("grpc")
    home = tmp_path / "pipeline"
    shutil.copytree(EXAMPLES / "pipeline", home)
    spec = home / "spark-pipeline.yml"
    told = spec.read_text()
    assert "file:///tmp/catchment-pipeline" in told
    spec.write_text(told.replace("file:///tmp/catchment-pipeline", f"{home.as_uri()}/storage"))
    runpy.run_path(str(home / "make_readings.py"), run_name="__main__")
    queries = queries_of_pipeline(home)
    one = pq.read_table(home / "readings" / "3.parquet").slice(0, 1)
    # An hour later, all windows of the others have ended.
    much_later = pc.add(one["ts"], pa.scalar(timedelta(hours=1)))
    one = one.set_column(0, one.schema.field("ts"), much_later.cast(one.schema.field("ts").type))
    pq.write_table(one, home / "readings" / "4.parquet")
    run_pipeline(home)

    events = pa.concat_tables([pq.read_table(path) for path in sorted(home.glob("readings/*"))])
    engine = ct.Engine(queries.values(), lateness="1s")
    engine.push(events)
    newest = pc.max(events["ts"].cast(pa.int64())).as_py()
    streamed = engine.advance(newest)
    several = pq.read_table(home / "spark-warehouse" / "several")
    for name, query in queries.items():
        wanted = streamed[name]
        mine = several.filter(pc.field("query") == name).select(wanted.schema.names)
        assert_same(rows_of(wanted), mine, name, keys=query.keys)
    speed = pq.read_table(home / "spark-warehouse" / "speed")
    assert_same(rows_of(streamed["speed"]), speed, keys=["player"])
    bursts = ct.run(events, queries["bursts"], spark=False)["bursts"]
    found = pq.read_table(home / "spark-warehouse" / "bursts")
    assert_same(rows_of(bursts), found, keys=["player"])
    assert pq.read_table(home / "spark-warehouse" / "fastest").num_rows == 5


def queries_of_pipeline(home: Path) -> dict[str, ct.Query]:
    """The queries of the example, without a session of Spark: its text up to the first frame."""
    text = (home / "transformations" / "players.py").read_text()
    found: dict[str, Any] = {}
    exec(text[text.index("SPEED =") : text.index("columns =")], {"ct": ct}, found)
    return {query.name: query for query in found.values()}


def run_pipeline(home: Path) -> None:
    python = Path(sys.executable)
    done = subprocess.run(
        [str(python.with_name("spark-pipelines")), "--remote", "local[2]", "run"],
        cwd=home,
        env=os.environ | {"PYSPARK_PYTHON": str(python), "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "Run is COMPLETED" in done.stdout + done.stderr
