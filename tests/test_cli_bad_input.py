"""What commands say to mistakes and missing things: one sentence, before Spark is started."""

from __future__ import annotations

import json
import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from catchment.cli import live
from catchment.cli.main import app
from catchment.errors import StateError
from catchment.model.capacity import Capacity
from catchment.sources.base import NeverRead
from catchment.spark import past
from catchment.spark.handle import Status
from catchment.spark.metrics import Metrics

pytestmark = pytest.mark.spark

JOB = """\
source: {type: generator, events: 1000}
sinks: [{type: parquet, path: results}]
checkpoint: state
queries:
  - {name: total, select: [count(*) AS n], window: tumbling(1s)}
"""
RUNNING = Status(
    "running", "live-1", batch=3, events=100, accepted=90, late=6, bad=3, duplicates=1, updates=2,
    results=40, frontier=1_767_225_641_500_000, lag=2.0, rate=5_000.0, queries=2,
    partitions={"a": 1_767_225_643_500_000, "b": None}, rejected={"x.yaml": "why"},
    waiting={"y.parquet": "not whole"},
)  # fmt: skip


def catchment(*words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, list(words))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result


def refused(*words: str, code: int) -> str:
    """The one sentence that the command ends with."""
    lines: list[str] = catchment(*words, code=code).stderr.splitlines()
    assert lines[-1].startswith("catchment: ")
    return lines[-1]


@pytest.fixture(autouse=True)
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(*_: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("catchment.spark.session.session", session)


@pytest.mark.usefixtures("no_spark")
class TestBeforeSpark:
    def test_no_job_file(self) -> None:
        assert "none.yaml" in refused("run", "none.yaml", code=2)

    def test_an_unknown_source(self, job: Path) -> None:
        job.write_text(JOB.replace("generator, events: 1000", "parket, path: x"))
        assert "did you mean 'parquet'?" in refused("run", "job.yaml", code=2)

    def test_an_unknown_sink(self, job: Path) -> None:
        job.write_text(JOB.replace("type: parquet", "type: memry"))
        assert "did you mean 'memory'?" in refused("run", "job.yaml", code=2)

    def test_a_source_without_a_type(self, job: Path) -> None:
        job.write_text(JOB.replace("type: generator, ", ""))
        assert "source.type" in refused("run", "job.yaml", code=2)

    def test_no_source(self, job: Path) -> None:
        job.write_text(JOB.replace("source: {type: generator, events: 1000}", ""))
        assert "the job has no source" in refused("run", "job.yaml", code=2)

    def test_a_source_that_is_not_there(self, job: Path) -> None:
        job.write_text(JOB.replace("generator, events: 1000", "parquet, path: nowhere/"))
        assert "nowhere" in refused("run", "job.yaml", code=1)
        assert "nowhere" in refused("validate", "job.yaml", "--connect", code=1)
        assert "is fine" in catchment("validate", "job.yaml").stdout
        assert "it cannot be read now" in catchment("explain", "job.yaml").stdout

    def test_a_query_of_a_column_that_is_not_there(self, job: Path) -> None:
        job.write_text(JOB.replace("count(*)", "sum(nothing)"))
        assert "nothing" in refused("run", "job.yaml", code=2)

    def test_an_unknown_trigger(self) -> None:
        sentence = refused("run", "job.yaml", "--trigger", "sometimes", code=2)
        assert "no such trigger" in sentence

    def test_a_checkpoint_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        assert "file" in refused("run", "job.yaml", "--checkpoint", "file/state", code=1)

    def test_a_port_in_use(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            sentence = refused("run", "job.yaml", "--metrics", str(port), code=1)
        assert "metrics cannot be served" in sentence and str(port) in sentence

    def test_no_java(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        for words in (("run", "none.yaml"), ("demo",)):
            sentence = refused(*words, code=1)
            assert "Java 17 or later is needed" in sentence and "none was found" in sentence

    def test_an_old_java(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text("#!/bin/sh\necho 'java version \"1.8.0_412\"' >&2\n")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert "this one is Java 8" in refused("run", "none.yaml", code=1)


def test_init_does_not_overwrite(job: Path) -> None:
    assert "--force" in refused("init", code=2)
    assert job.read_text() == JOB
    catchment("init", "--force")
    assert "generator" in job.read_text()
    assert "5 queries" in catchment("validate", "job.yaml", "--connect").stdout
    catchment("init", "deep/other.yaml")


def test_explain_says_how_a_job_will_run(job: Path) -> None:
    text = catchment("explain", "job.yaml").stdout
    assert "source: generator: events 1000; 1 partition(s) known" in text
    assert "columns read: ts (1 of 7)" in text
    assert "sink: parquet: path results" in text
    job.write_text(JOB.replace("window:", "where: v > 5, window:") + "trigger: batch\n")
    assert "all but (v > 5)" in catchment("explain", "job.yaml").stdout


# -- queries -------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Any:
    """The folder of a job that has run."""
    folder = past.home_of(str(tmp_path / "state"))
    folder.write("job.json", json.dumps({"job": "live-1", "time": "ts"}).encode())
    return folder


@pytest.mark.usefixtures("home")
def test_queries_come_and_go(tmp_path: Path) -> None:
    where = ("--checkpoint", "state")
    sql = "SELECT player, avg(v) AS mean FROM events WHERE v > 5 GROUP BY player, window(ts, '5s')"
    catchment("queries", "add", "--sql", sql, "--name", "speed", *where)
    (tmp_path / "two.yaml").write_text(
        "- {name: a, select: [count(*)], window: tumbling(1s)}\n"
        "- {name: b, select: [count(*)], window: session(2s)}\n"
    )
    catchment("queries", "add", "two.yaml", "--job", "job.yaml")
    listed = json.loads(catchment("queries", "ls", "--json", *where).stdout)
    assert [query["name"] for query in listed["queries"]] == ["a", "b", "speed"]
    assert listed["queries"][2]["text"] == (
        "avg(v) AS mean by player where v > 5 over tumbling(5s)"
    )
    assert "two queries have one name" in refused("queries", "add", "two.yaml", *where, code=2)
    catchment("queries", "rm", "a", "speed", *where)
    assert "did you mean 'b'?" in refused("queries", "rm", "bb", *where, code=2)
    (tmp_path / "state" / "catchment" / "queries" / "odd.yaml").write_text("name: [")
    text = catchment("queries", "ls", *where).stdout
    assert "session(2s)" in text and "rejected: odd.yaml" in text


def test_queries_of_no_job() -> None:
    assert "no job has run there" in refused("queries", "ls", "--job", "job.yaml", code=2)
    assert "--checkpoint" in refused("queries", "ls", code=2)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "either a file or --sql"),
        (("--sql", "SELECT 1"), "add --name"),
        (("--sql", "SELEC", "--name", "q"), "SQL"),
        (("none.yaml",), "none.yaml"),
    ],
)
def test_queries_that_cannot_be_added(words: tuple[str, ...], expected: str) -> None:
    assert expected in refused("queries", "add", "--checkpoint", "state", *words, code=2)


# -- what the job's folder tells -----------------------------------------------------------------


def test_a_stream_and_a_batch_job_do_not_share_a_checkpoint(home: Any) -> None:
    past.only("stream", home)
    past.only("batch", home)
    home.write(past.DONE, json.dumps(RUNNING.to_dict()).encode())
    assert past.ended_batch(home) == RUNNING
    with pytest.raises(StateError, match="of a batch job"):
        past.only("stream", home)
    home.remove(past.DONE)
    home.write("given.json", b"[]")
    with pytest.raises(StateError, match="of a stream"):
        past.only("batch", home)


# -- metrics and lines ---------------------------------------------------------------------------


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    served = Metrics(0)
    yield served
    served.close()


def test_metrics(metrics: Metrics) -> None:
    metrics._job.heard(RUNNING)
    metrics.spark.name = "live-1"
    state = SimpleNamespace(
        numRowsTotal=4, memoryUsedBytes=1234, customMetrics={"rocksdbSstFileSize": 99}
    )
    batch = SimpleNamespace(
        name="live-1", batchDuration=2500, processedRowsPerSecond=8.0, stateOperators=[state]
    )
    metrics.spark.onQueryProgress(SimpleNamespace(progress=batch))
    other = SimpleNamespace(name="other", batchDuration=9_000_000)
    metrics.spark.onQueryProgress(SimpleNamespace(progress=other))
    with urllib.request.urlopen(metrics.address, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    for expected in (
        'catchment_events_total{job="live-1"} 100.0',
        'catchment_late_total{job="live-1"} 6.0',
        'catchment_results_total{job="live-1"} 40.0',
        'catchment_frontier_seconds{job="live-1"} 1.7672256415e+09',
        'catchment_lag_seconds{job="live-1"} 2.0',
        'catchment_state{job="live-1",state="running"} 1.0',
        'catchment_state{job="live-1",state="failed"} 0.0',
        'catchment_partition_newest_seconds{job="live-1",partition="a"} 1.7672256435e+09',
        'catchment_batch_seconds_sum{job="live-1"} 2.5',
        'catchment_state_rows{job="live-1"} 4.0',
        'catchment_state_file_bytes{job="live-1"} 99.0',
    ):
        assert expected in lines


COUNTED = replace(
    RUNNING, open_windows=4, open_events=30, aside_dropped=2,
    never_read=(NeverRead("a.csv", "8 bytes came after the file was read", 8, 5),),
    limits=(Capacity("outbox", 7, 9, "bytes", "nothing is read"),),
)  # fmt: skip


def test_metrics_of_what_is_counted_and_bounded(metrics: Metrics) -> None:
    metrics._job.heard(COUNTED)
    with urllib.request.urlopen(metrics.address, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    for expected in (
        'catchment_open_windows{job="live-1"} 4.0',
        'catchment_open_events{job="live-1"} 30.0',
        'catchment_aside_dropped_total{job="live-1"} 2.0',
        'catchment_never_read_rows{job="live-1"} 5.0',
        'catchment_used{job="live-1",of="outbox",unit="bytes"} 7.0',
        'catchment_limit{job="live-1",of="outbox",unit="bytes"} 9.0',
    ):
        assert expected in lines


def test_the_summary_tells_what_is_in_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    live.Plain().end(live.Ending(COUNTED, [], "state", 1.0))
    out = capsys.readouterr().out
    for what, count in (
        ("windows that never ended", 4), ("  accepted events in them", 30),
        ("late and bad rows that were not kept", 2), ("rows that were never read", 5),
    ):  # fmt: skip
        assert re.search(rf"{what}\s*│\s*{count}\b", out), what
    assert "never read: a.csv: 8 bytes came after the file was read (5 rows)" in out
    assert "never read 5  not kept 2" in live.line(COUNTED)


def test_the_live_line() -> None:
    assert live.line(RUNNING) == (
        "100 events  5,000 events/s  frontier 2026-01-01 00:00:41.5  lag 2.0 s  late 6  "
        "results 40  bad 3  1 query file(s) rejected  1 file(s) waiting"
    )
    assert live.line(RUNNING, brief=True).startswith(
        "100 events  5,000/s  frontier 00:00:41  lag 2.0 s  late 6  results 40"
    )
    assert live.line(Status("starting", "j")) == "0 events  late 0  results 0"


def test_plain_lines_come_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([100.0, 100.0, 101.0, 106.0, 106.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with live.Plain() as voice:
        for _ in range(3):
            voice.heard(RUNNING)
        voice.phase("reading splits", 0, 4)
        voice.phase("reading splits", 1, 4)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert lines[-1] == "catchment: reading splits (4)"


def test_the_line_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with live.Line() as voice:
        voice.phase("reading splits", 1, 4)
        voice.note("a sentence")
        voice.heard(RUNNING)
    assert "a sentence" in capsys.readouterr().err


def test_the_summary_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    live.Plain().end(live.Ending(RUNNING, ["parquet: path results"], "state", 1.0))
    out = capsys.readouterr().out
    for expected in ("live-1: running", "90", "results: parquet: path results",
                     "bad rows: state/catchment/aside", "query file rejected: x.yaml: why",
                     "file waiting: y.parquet: not whole"):  # fmt: skip
        assert expected in out


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with live.voice(as_json=True, quiet=True) as voice:
        voice.note("x")
        voice.phase("x")
        voice.heard(RUNNING)
        voice.end(live.Ending(RUNNING))
    assert capsys.readouterr() == ("", "")
