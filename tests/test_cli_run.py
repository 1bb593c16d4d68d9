"""Jobs run from the command line, as real processes: what they print, deliver, serve and keep."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import catchment as ct
from catchment.cli.demo import EVENTS
from catchment.generator import Generator
from catchment.sinks.parquet import ParquetSink
from catchment.spark.profile import PARTS
from patience import PATIENCE, wait_for
from schedules import in_soak

# Spark takes its time to start where it shares the machine.
pytestmark = pytest.mark.spark

EVENTS_OF_INIT = 20_000
# Runs this short are over before Java's better compiler has earned back what it takes.
BRIEF = os.environ | {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}


def catchment(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "catchment.cli.main", *words],
        cwd=folder,
        env=BRIEF,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@contextlib.contextmanager
def running(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The command in the background, and the file that gets its standard error."""
    said = folder / "stderr.txt"
    with said.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "catchment.cli.main", *words],
            cwd=folder,
            env=BRIEF,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield process, said
        finally:
            process.kill()
            process.communicate()


def soon(what: Callable[[], Any], process: subprocess.Popen[str], said: Path) -> Any:
    """Waits until something is there."""

    def found() -> Any:
        assert process.poll() is None, said.read_text()
        return what()

    return wait_for(found, 0.2, said.read_text)


def sorted_rows(table: pa.Table, *columns: str) -> list[Any]:
    return sorted(table.select(list(columns)).to_pylist(), key=str)


def check_profile(found: dict[str, Any], batches: int) -> None:
    """All parts are there, took some time, and are together what Spark says that batches took."""
    parts = found["parts"]
    assert 0 < found["batches"] <= batches
    assert list(parts) == [*PARTS, "spark"]
    assert all(parts[name] > 0 for name in ("read", "slice", "encode", "assemble", "spark"))
    assert sum(parts.values()) == pytest.approx(found["seconds"], rel=0.01)


def test_a_job_of_init_runs_as_it_is(tmp_path: Path) -> None:
    catchment(tmp_path, "init")
    path = tmp_path / "job.yaml"
    text = path.read_text()
    path.write_text(text.replace("events: 200000", f"events: {EVENTS_OF_INIT}"))
    assert path.read_text() != text
    lines = catchment(tmp_path, "run", "job.yaml", "--json", "--profile").stdout.splitlines()
    told = [json.loads(line) for line in lines]
    last = told[-1]
    check_profile(told.pop(-2)["profile"], len(told) - 1)
    assert [status["batch"] for status in told[:-1]] == list(range(len(told) - 1))
    assert (last["state"], last["final"]) == ("ended", True)
    assert last["events"] == last["accepted"] == EVENTS_OF_INIT
    assert last["places"] == ["parquet: path results/"]

    job = ct.load_job(path)
    engine = ct.Engine(job.build(), **job.engine_options())
    made = Generator(keys=10, rate=10_000, late_share=0.1, late_by="2s")
    engine.push(made.table(EVENTS_OF_INIT))
    expected = engine.close()
    sink = ParquetSink(path=str(tmp_path / "results"))
    for query in job.build():
        exact = [
            name
            for name in ("player", "window_start", "window_end", "steps", "events", "top")
            if name in expected[query.name].column_names
        ]
        found = sorted_rows(sink.read(query.name), *exact)
        assert found == sorted_rows(expected[query.name], *exact), query.name
    assert last["results"] == sum(table.num_rows for table in expected.values())

    # Ended is ended, also for the next command; Spark is not even started.
    again = catchment(tmp_path, "run", "job.yaml")
    assert "this job has ended before" in again.stderr
    assert "Spark" not in again.stderr
    assert f"{EVENTS_OF_INIT:,}" in again.stdout


@in_soak
def test_another_job_may_not_write_there(tmp_path: Path) -> None:
    """That is found out in an executor, and told here."""
    catchment(tmp_path, "init")
    path = tmp_path / "job.yaml"
    path.write_text(path.read_text().replace("events: 200000", f"events: {EVENTS_OF_INIT}"))
    catchment(tmp_path, "run", "job.yaml")
    failed = catchment(tmp_path, "run", "job.yaml", "--checkpoint", "other", "--json", code=1)
    (sentence,) = (line for line in failed.stderr.splitlines() if "the job failed" in line)
    assert "the folder holds results of another job" in sentence
    assert "Spark's log" in sentence
    final = json.loads(failed.stdout.splitlines()[-1])
    assert final["state"] == "failed"
    assert "the folder holds results of another job" in final["error"]


STREAM = """\
name: live
lateness: 1s
source: {type: generator, keys: 4, rate: 1000, pace: 3000, per_batch: 100000}
sinks: [{type: parquet, path: results}]
checkpoint: state
metrics: 0
queries:
  - {name: speed, select: [avg(v) AS mean], by: player, window: tumbling(1s)}
  - {name: total, select: [count(*) AS n], window: tumbling(1s)}
"""


def metric(page: str, name: str) -> float:
    found = re.search(rf'^catchment_{name}{{job="live-\w+"}} (\S+)$', page, re.MULTILINE)
    assert found, page
    return float(found[1])


def test_a_stream_is_watched_changed_and_stopped(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(STREAM)
    results = ParquetSink(path=str(tmp_path / "results"))
    with running(tmp_path, "run", "job.yaml") as (process, said):

        def wait(what: Callable[[], Any]) -> Any:
            return soon(what, process, said)

        address = wait(lambda: re.search(r"http://127\.0\.0\.1:\d+/metrics", said.read_text()))[0]
        wait(lambda: results.read("total").num_rows)
        # An executor delivers before the driver hears of it.
        page = wait(lambda: _page_with_results(address))
        counts = {n: metric(page, f"{n}_total") for n in ("events", "accepted", "late", "bad")}
        assert counts["events"] > 0
        assert counts["accepted"] + counts["late"] + counts["bad"] == counts["events"]
        assert metric(page, "frontier_seconds") >= 1_767_225_600
        assert metric(page, "lag_seconds") >= 1
        assert metric(page, "queries") == 2
        assert metric(page, "batch_seconds_count") >= 1

        catchment(
            tmp_path,
            "queries",
            "add",
            "--job",
            "job.yaml",
            "--name",
            "top",
            "--sql",
            "SELECT max(v) AS top FROM events GROUP BY window(ts, '1 second')",
        )
        refused = catchment(
            tmp_path,
            "queries",
            "add",
            "--checkpoint",
            "state",
            "--name",
            "bad",
            "--sql",
            "SELECT max(w) FROM events GROUP BY window(ts, '1 second')",
            code=2,
        )
        assert "w" in refused.stderr
        wait(lambda: results.read("top").num_rows)
        catchment(tmp_path, "queries", "rm", "total", "--checkpoint", "state")
        listed = json.loads(
            catchment(tmp_path, "queries", "ls", "--checkpoint", "state", "--json").stdout
        )
        assert [query["name"] for query in listed["queries"]] == ["speed", "top"]
        assert listed["rejected"] == {}

        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said.read_text()
    assert "stopping after the batch at hand" in said.read_text()
    assert ": stopped" in out
    assert "results: parquet: path results" in out
    numbers = {
        name: int(text.replace(",", "")) for name, text in re.findall(r"(\w+) +│ +([\d,]+) │", out)
    }
    parts = ("accepted", "late", "bad", "duplicates")
    assert sum(numbers[name] for name in parts) == numbers["events"] > 0


def _page_with_results(address: str) -> str | None:
    with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
        page: str = answer.read().decode()
    return page if "catchment_state_rows" in page and metric(page, "results_total") else None


BATCH = """\
name: history
source: {type: parquet, path: events}
sinks: [{type: parquet, path: results}]
checkpoint: state
trigger: batch
queries:
  - {name: steps, select: [count(*) AS n, max(v) AS top], by: player, window: tumbling(1s)}
  - {name: play, select: [count(*) AS n], window: session(2s)}
"""


def test_a_batch_delivers_once(tmp_path: Path) -> None:
    events = EVENTS.table(100_000)
    (tmp_path / "events").mkdir()
    for part in range(4):
        pq.write_table(events.slice(part * 25_000, 25_000), tmp_path / "events" / f"{part}.parquet")
    (tmp_path / "job.yaml").write_text(BATCH)
    first = catchment(tmp_path, "run", "job.yaml", "--cores", "2", "--profile")
    for phase in ("starting Spark", "planning", "writing results"):
        assert phase in first.stderr
    assert "1 batch(es) in" in first.stdout
    cost = dict(re.findall(r"│ (\w+)[^│]*│ +([0-9.]+) │", first.stdout))
    assert all(float(cost[part]) > 0 for part in ("reading", "slicing", "sinks", "Spark"))
    job = ct.load_job(tmp_path / "job.yaml")
    engine = ct.Engine(job.build(), time="ts")
    engine.push(events)
    expected = engine.close()
    sink = ParquetSink(path=str(tmp_path / "results"))
    for query in job.build():
        table = sink.read(query.name)
        found = sorted_rows(table, *table.column_names)
        assert found == sorted_rows(expected[query.name], *table.column_names)
    again = catchment(tmp_path, "run", "job.yaml", "--json")
    assert "delivered its results before" in again.stderr
    final = json.loads(again.stdout)
    assert (final["state"], final["batch"], final["events"]) == ("ended", 0, 100_000)
    assert len(os.listdir(tmp_path / "results" / "steps")) == 1
    # A stream numbers its deliveries from 0 as well.
    mixed = catchment(tmp_path, "run", "job.yaml", "--trigger", "continuous", code=1)
    assert "the checkpoint is of a batch job" in mixed.stderr


@pytest.mark.slow
def test_the_demo(tmp_path: Path) -> None:
    done = catchment(tmp_path, "demo", "--events", "100000", "--json")
    found = json.loads(done.stdout)
    assert found["events"] == 100_000
    assert found["late"] == 0
    assert found["results"]["speed"] == found["results"]["coach"] > 0
    kept = ParquetSink(path=found["folder"]).read("speed")
    assert kept.num_rows == found["results"]["speed"]
    assert found["apart"]["slices"] > found["together"]["slices"]
    against = found["against_spark"]
    assert (against["events"], len(against["queries"])) == (100_000, 8)
    assert against["ours"] > 0 and against["spark"] > 0
