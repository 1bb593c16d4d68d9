"""Commands that look: `status`, `top`, `doctor`, and what a shell completes. None starts Spark."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from catchment.cli.doctor import Finding, examine
from catchment.cli.top import Screen
from catchment.durable.folder import Folder
from catchment.durable.lock import hold
from catchment.engine.times import now
from catchment.job import load_job
from catchment.model import records
from catchment.model.frontier import Frontier
from catchment.model.recent_rate import RecentRate
from catchment.planner.planned import NOTHING
from catchment.spark.handle import Handle
from catchment.spark.job_folder import found_status, home_of
from catchment.spark.planning import Progress
from catchment.spark.queries import FORMAT, IDENTITY
from catchment.spark.records import JobCounts, JobIdentity
from catchment.spark.spec import Spec
from catchment.ui.snapshot import JobView, ShownNode, Snapshot
from commands import catchment
from patience import PATIENCE

JOB = """\
name: match
checkpoint: state
source: {type: generator, events: 1000}
queries:
  - {name: speed, select: [avg(v) AS mean], by: player, window: tumbling(1s)}
  - {name: total, select: [count(*) AS n], window: tumbling(1s)}
"""
COUNTS = JobCounts(events=5000, accepted=4990, late=7, bad=3, results=40)


def progress(batch: int, at: int, counts: JobCounts, ended: bool = False) -> Progress:
    """After a batch: partition a has come to a second before `at`, the frontier to three."""
    frontier = Frontier(at - 3_000_000, {"a": (at - 1_000_000, at), "b": (None, at)})
    return Progress(batch, frontier, counts, ended, 0, at)


def keep(home: Folder, *batches: Progress) -> None:
    for one in batches:
        home.sub("progress").write(f"{one.batch:09d}.json", records.encode(one))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The folder of a job on Spark that has run two batches, two seconds apart, until just now."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)
    made = home_of("state")
    identity = JobIdentity(FORMAT, "match-1", "match", "generator", "ts", "drop", 2, ("events",))
    made.write(IDENTITY, records.encode(identity))
    queries = {query.name: query for query in load_job("job.yaml").build()}
    made.sub("plans").write(f"{0:09d}", NOTHING.next(0, queries).to_bytes())
    at = now()
    first = replace(COUNTS, events=1000, accepted=990)
    keep(made, progress(0, at - 2_000_000, first), progress(1, at, COUNTS))
    return made


class TestStatus:
    def test_of_a_job_that_runs(self, home: Folder) -> None:
        with hold(home):
            found = json.loads(catchment("status", "job.yaml", "--json").stdout)
        assert (found["state"], found["batch"], found["queries"]) == ("running", 1, 2)
        assert found["events"] == 5000 and found["results"] == 40
        assert found["accepted"] + found["late"] + found["bad"] == found["events"]
        assert found["lag"] == 2.0
        assert 3 <= found["behind"] < 60
        assert 100 < found["rate"] <= 2000  # 4000 events came within two seconds, then none
        assert found["partitions"]["b"] is None

    def test_of_a_job_that_was_left(self, home: Folder) -> None:
        text = catchment("status", "--job", "job.yaml").stdout
        assert "match-1: stopped, batch 1, 2 queries" in text
        assert "2.0 s behind the newest event" in text and "behind the clock" not in text
        assert "events 5,000  accepted 4,990  late 7  bad 3" in text
        assert "a: newest 20" in text and "b: no event yet" in text
        assert "planned for 10,000" in text

    def test_of_a_job_that_has_ended(self, home: Folder) -> None:
        keep(home, progress(2, now(), COUNTS, ended=True))
        text = catchment("status", "--checkpoint", "state").stdout
        assert ": ended" in text and "every window is complete" in text
        keep(home, progress(3, now(), replace(COUNTS, open_windows=2, open_events=9), ended=True))
        text = catchment("status", "--checkpoint", "state").stdout
        assert "every window that can end is complete" in text
        assert "open when the source ended: 2 windows, with 9 events" in text

    def test_before_the_first_batch(self, home: Folder) -> None:
        for name in home.sub("progress").names():
            home.sub("progress").remove(name)
        assert found_status(home).state == "stopped"
        text = catchment("status", "job.yaml").stdout
        assert ": stopped, no batch yet, 2 queries" in text
        assert "frontier: unknown before the first batch" in text

    def test_of_nothing(self, home: Folder, tmp_path: Path) -> None:
        assert "which job? nothing is given" in catchment("status", code=2).stderr
        said = catchment("status", "--checkpoint", str(tmp_path / "none"), code=2).stderr
        assert "no job has run there" in said
        (tmp_path / "bare.yaml").write_text(JOB.replace("checkpoint: state\n", ""))
        assert "which job? no checkpoint" in catchment("status", "bare.yaml", code=2).stderr


def test_a_job_that_is_started_again_goes_on_counting(home: Folder) -> None:
    """Also before its first batch, and where none comes any more."""
    job = load_job("job.yaml")
    spec = Spec(
        job="match-1",
        home=home,
        source=job.source,
        sinks=(),
        schema=job.source.event_schema(),
        buckets=1,
        labels=[0],
        parallel=1,
        **job.stream_options(),
    )
    with hold(home) as lock:
        handle = Handle(spec, None, job, lock)  # type: ignore[arg-type]
        status = handle.status
    assert (status.state, status.batch) == ("starting", 1)
    assert (status.events, status.late, status.results) == (5000, 7, 40)
    assert (status.rate, status.behind) == (0.0, None)


def test_a_rate_is_of_the_last_seconds() -> None:
    rate = RecentRate()
    for second in range(100):
        rate.seen(second * (10 if second < 50 else 100), float(second))
    assert rate.at(99.0) == pytest.approx(100.0)
    assert rate.at(104.0) == pytest.approx(100 * 5 / 10)
    assert rate.at(200.0) == 0.0
    rate.seen(5, 201.0)  # another job
    assert rate.at(201.0) is None


def test_a_rate_of_long_batches_does_not_fall_to_nothing_between_them() -> None:
    rate = RecentRate()
    for batch in range(4):
        rate.seen(batch * 3000, batch * 30.0)
    assert rate.at(90.0) == 100.0
    assert rate.at(115.0) == pytest.approx(6000 / 85)


class TestTop:
    def drawn(self, found: Snapshot, height: int = 40) -> str:
        class Watched:
            def look(self) -> Snapshot:
                return found

        from rich.console import Console

        console = Console(width=200, no_color=True)
        with console.capture() as held:
            console.print(Screen([Watched()]).draw(height))  # type: ignore[list-item]
        return held.get()

    def test_a_job_on_spark(self, home: Folder) -> None:
        with hold(home):
            text = catchment("top", "job.yaml", "--once").stdout
        assert "match  running  on Spark, 2 queries, batch 1" in text
        assert "events 5,000" in text and "lag 2.0 s" in text and "behind the clock" in text
        assert "none yet" in text

    def test_nodes_that_need_a_person_come_first(self) -> None:
        job = JobView("fleet", "tree", "running", frontier=0, lag=4.0, queries=3, rate=12.0)
        nodes = [ShownNode("root", None, "root", "connected", frontier=0, behind=0.0)]
        nodes += [
            ShownNode(f"n{i}", "root", "reads", "connected", behind=i / 10) for i in range(90)
        ]
        nodes += [ShownNode("[red]x", "root", "reads", "missing", silent=90.0, why="it is old")]
        text = self.drawn(Snapshot(job, {"events": 5, "bad": 1}, tuple(nodes)))
        rows = text.splitlines()
        heading = next(n for n, row in enumerate(rows) if row.startswith("node"))
        assert "[red]x" in rows[heading + 1] and "missing" in rows[heading + 1]
        assert "n89" in rows[heading + 2]
        assert "more: " in text and len(rows) <= 40
        assert "! [red]x is missing" in text

    def test_a_job_that_cannot_be_reached(self) -> None:
        job = JobView("fleet", "tree", "unreachable", error="the root does not answer")
        assert "! the root does not answer" in self.drawn(Snapshot(job))


class TestDoctor:
    def found(self, *given: Any) -> dict[str, Finding]:
        return {one.what: one for one in examine(*given)}

    def test_this_machine(self) -> None:
        said = self.found()
        assert said["catchment"].state == "fine"
        assert "pyspark 4" in said["extra spark"].text
        assert {"Java", "clock", "memory", "compiled loops"} <= said.keys()

    def test_loops_that_are_not_compiled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("catchment.native.compiled", lambda: None)
        said = self.found()["compiled loops"]
        assert said.state == "warning" and "catchment.native.build" in (said.hint or "")
        monkeypatch.setenv("CATCHMENT_NATIVE", "0")
        assert self.found()["compiled loops"].text == "not used, as CATCHMENT_NATIVE says"

    def test_a_job(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "job.yaml").write_text(
            "checkpoint: state\n"
            "source: {type: parquet, path: nowhere/}\n"
            "sinks: [{type: parquet, path: out}]\n"
            "queries: [{name: a, select: [sum(v)], window: tumbling(1s)}]\n"
        )
        said = self.found(Path("job.yaml"))
        assert said["source (parquet: path nowhere/)"].state == "failure"
        assert said["sinks[0] (parquet: path out)"].state == "fine"
        assert any(name.startswith("checkpoint") for name in said)
        text = catchment("doctor", "job.yaml", code=1).stdout
        assert "FAIL  source (parquet: path nowhere/)" in text

    def test_what_is_not_there(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            monkeypatch.setattr("catchment.cli.doctor._PORT", taken.getsockname()[1])
            said = self.found()
        assert said["Java"].state == "warning" and "JAVA_HOME" in (said["Java"].hint or "")
        (port,) = (one for name, one in said.items() if name.startswith("port of the page"))
        assert port.state == "warning"

    def test_as_json(self) -> None:
        told = json.loads(catchment("doctor", "--json").stdout)
        assert {"what", "state", "text", "hint"} == set(told[0])


def completed(folder: Path, *words: str) -> list[str]:
    """What a shell offers after these words, the last of which has been begun."""
    done = subprocess.run(
        [sys.executable, "-m", "catchment.cli.main"],
        cwd=folder,
        env=os.environ
        | {
            "_CATCHMENT_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(["catchment", *words]),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.stdout.split()


def test_a_shell_completes_commands_and_names(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB + "nodes:\n  - {id: root}\n  - {id: rack-1}\n")
    assert completed(tmp_path, "do") == ["doctor"]
    assert completed(tmp_path, "node", "ra") == ["rack-1"]
    assert completed(tmp_path, "queries", "rm", "sp") == ["speed"]


def test_help_takes_little_time() -> None:
    """Processor time, at best of three: the clock of a busy machine says nothing."""
    code = (
        "import sys, time\n"
        "from catchment.cli.main import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "heavy = {'numpy', 'pyarrow', 'sqlglot', 'pydantic', 'msgspec', 'yaml'}\n"
        "print('loaded:', *sorted(heavy & set(sys.modules)))\n"
        "print(time.process_time())\n"
    )
    times = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        *_, loaded, seconds = done.stdout.splitlines()
        assert loaded.strip() == "loaded:"
        times.append(float(seconds))
    assert min(times) < 0.3
