"""Examples run as they are."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from catchment.cli.check import inspect
from catchment.job import load_job
from catchment.sinks.parquet import ParquetSink

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


def catchment(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "catchment.cli.main", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=280,
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
    catchment(tmp_path, "up", str(EXAMPLES / "tree.yaml"), "--quiet")
    results = ParquetSink(path=str(tmp_path / "build" / "fleet" / "results"))
    counted = results.read("everyone")
    job = load_job(EXAMPLES / "tree.yaml")
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
