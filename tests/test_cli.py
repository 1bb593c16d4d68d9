"""The commands, as a person types them: what they print, and that a mistake is one clear line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from msgspec.structs import asdict

from benchmarks.figure import Figure, at_least, plain
from catchment.cli.demo import EVENTS
from catchment.errors import QueryError
from commands import catchment

JOB = """\
queries:
  - name: speed
    select: [avg(v) AS mean]
    by: player
    where: v > 0
    window: sliding(10s, 5s)
  - name: total
    sql: SELECT count(*) AS n FROM events GROUP BY window(ts, '1 minute')
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_version() -> None:
    assert catchment("--version").stdout.startswith("catchment 0.")


def test_help_names_every_command() -> None:
    text = catchment("--help").stdout
    for command in ("demo", "init", "run", "explain", "validate", "queries", "schema", "bench"):
        assert command in text


def test_help_loads_no_command() -> None:
    code = (
        "import sys\n"
        "from catchment.cli.main import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "heavy = {'catchment.cli.demo', 'catchment.cli.run', 'catchment.cli.show',"
        " 'benchmarks', 'polars', 'pyspark'}\n"
        "print('loaded:', *heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].strip() == "loaded:"


def test_an_unknown_command_is_refused() -> None:
    assert "No such command" in catchment("frobnicate", code=2).stderr


def test_explain(job: Path) -> None:
    text = catchment("explain", str(job)).stdout
    assert "speed" in text
    assert "total" in text


def test_validate(job: Path) -> None:
    assert catchment("validate", str(job)).stdout == f"{job} is fine: 2 queries\n"


@pytest.mark.parametrize("command", ["validate", "explain"])
def test_a_typo_in_a_job_file_is_one_line(command: str, job: Path) -> None:
    job.write_text(JOB.replace("window:", "windw:"))
    result = catchment(command, str(job), code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("catchment: ")
    assert len(result.stderr.splitlines()) == 1
    assert "windw" in result.stderr


def test_a_bad_query_in_a_job_file_is_one_line(job: Path) -> None:
    job.write_text(JOB.replace("(10s", "(0s"))
    lines = catchment("validate", str(job), code=2).stderr.splitlines()
    assert len(lines) == 1
    assert "the window length must be positive" in lines[0]
    assert lines[0].endswith("[in the job file: queries[0]]")


def test_a_missing_job_file_is_one_line(tmp_path: Path) -> None:
    result = catchment("validate", str(tmp_path / "none.yaml"), code=2)
    assert len(result.stderr.splitlines()) == 1
    assert "none.yaml" in result.stderr


def test_schema_is_a_json_schema() -> None:
    schema = json.loads(catchment("schema").stdout)
    assert schema["type"] == "object"
    assert "queries" in schema["properties"]


def test_demo() -> None:
    text = catchment("demo", "--embedded", "--seconds", "2").stdout
    assert "What was shared" in text
    assert "100 queries, 100,000 events read once" in text


def test_demo_as_json() -> None:
    found = json.loads(catchment("demo", "--embedded", "--seconds", "3", "--json").stdout)
    assert found["events"] == 150_000
    assert found["late"] == 0
    assert len(found["results"]) == found["queries"] == 100
    # The first window of ten seconds is cut short by the end of input, and still a result.
    assert found["results"]["speed"] == found["results"]["coach"] == 10
    sent = EVENTS.table(150_000)
    seconds = pc.floor_temporal(sent["ts"], unit="second")
    windows = pa.table({"second": seconds, "player": sent["player"]}).group_by(["second", "player"])
    assert found["results"]["speed_1s"] == windows.aggregate([]).num_rows
    assert found["results"]["possession"] == found["results"]["squad"] == 1
    assert found["results"]["rolling"] == (150_000 - 20_000) // 5_000 + 1
    assert found["apart"]["events"] == 100 * found["together"]["events"]
    assert found["apart"]["operator_calls"] > found["together"]["operator_calls"]
    assert found["apart"]["slices"] > found["together"]["slices"]


def test_demo_refuses_no_time() -> None:
    assert "--seconds" in catchment("demo", "--seconds", "0", code=2).stderr


GOOD = at_least("tumbling, 10 keys", 0.4125, "of bincount", 0.25, "some events")
BAD = at_least("sessions", 0.3, "of in order", 0.5, "some events")
PLAIN = plain("density", 100_000, "events/s", "some events")


def bench_gives(monkeypatch: pytest.MonkeyPatch, *figures: Figure) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []

    def run(*arguments: Any) -> list[Figure]:
        calls.append(arguments)
        return list(figures)

    monkeypatch.setattr("benchmarks.run", run)
    return calls


def test_bench_prints_a_line_per_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = bench_gives(monkeypatch, GOOD, PLAIN)
    assert catchment("bench", "engine", "--quick").stdout.splitlines() == [
        "ok    0.4125 of bincount (bar 0.25)  tumbling, 10 keys",
        "      1e+05 events/s  density",
    ]
    assert calls == [("engine", True, ())]


def test_bench_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = bench_gives(monkeypatch, GOOD, PLAIN)
    lines = catchment("bench", "engine", "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [asdict(GOOD), asdict(PLAIN)]
    assert calls == [("engine", False, ())]


def test_bench_measures_parts_of_a_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = bench_gives(monkeypatch, GOOD)
    catchment("bench", "mix", "--only", "engine", "--only", "random")
    assert calls == [("mix", False, ["engine", "random"])]
    told = catchment("bench", "mix", "--only", "engine", "--record", code=2).stderr
    assert told == (
        "catchment: a record is of a whole suite (given: --only); leave out --record or --only\n"
    )


def test_bench_fails_when_a_figure_misses_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    bench_gives(monkeypatch, GOOD, BAD)
    assert "MISS  0.3 of in order (bar 0.5)  sessions" in catchment("bench", code=1).stdout


def test_any_error_of_ours_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: Any) -> None:
        raise QueryError("the figure\nis odd", given=3, hint="try another")

    monkeypatch.setattr("benchmarks.run", run)
    result = catchment("bench", code=2)
    assert result.stderr == "catchment: the figure is odd (given: 3); try another\n"


def test_bench_refuses_an_unknown_suite() -> None:
    told = catchment("bench", "tre", code=2).stderr
    assert told == "catchment: no such suite (given: tre); did you mean 'tree'?\n"
