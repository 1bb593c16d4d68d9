"""On a real Spark: nothing is lost without being counted, and what is kept is bounded."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import catchment as ct
from catchment.cli import show
from catchment.cli.live import Ending, line
from catchment.generator import Generator
from catchment.job import load_job
from catchment.sinks.memory import Memory
from catchment.sources.csv_file import Csv
from catchment.sources.generated import Generated
from catchment.spark.batch_job import run_bounded
from catchment.spark.handle import Status
from catchment.testing.compare import rows_of

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parent.parent

EVENTS = Generator(seed=5, keys=3, rate=100, markers=0.02).table(5_000)
QUERIES = [
    ct.Query("hundreds", ct.count(), ct.sum("v"), by="player", window=ct.count_tumbling(700)),
    ct.Query("large", ct.count(), window=ct.count_sliding(4_000, 2_000)),
    ct.Query("laps", ct.count(), by="player", window=ct.cut("v < 1")),
]


def expected(events: pa.Table) -> tuple[int, int]:
    """Windows that are open at the end, and the events in them, by an engine of its own."""
    engine = ct.Engine(QUERIES)
    engine.push(events)
    engine.close()
    return engine.stats.open_windows, engine.stats.open_events


def test_a_batch_counts_windows_that_never_end(spark: SparkSession) -> None:
    windows, inside = expected(EVENTS)
    players = Counter(EVENTS["player"].to_pylist())
    rest = sum(count % 700 for count in players.values())
    assert inside > rest + 1_000 and windows > 4
    results = ct.run(EVENTS, QUERIES, spark=spark)
    assert (results.counts["open_windows"], results.counts["open_events"]) == (windows, inside)
    assert "complete" not in results["large"].column_names
    emitted = ct.run(EVENTS, QUERIES, spark=spark, incomplete="emit")
    assert emitted.counts["open_windows"] == windows
    rows = [row for query in QUERIES for row in rows_of(emitted[query.name])]
    assert sum(not row["complete"] for row in rows) == windows
    open_large = [r for r in rows_of(emitted["large"]) if not r["complete"]]
    assert [(r["window_index"], r["count(*)"]) for r in open_large] == [(1, 3000), (2, 1000)]


@pytest.mark.parametrize("incomplete", ["count", "emit"])
def test_a_stream_that_ends_counts_them(
    spark: SparkSession, tmp_path: Path, incomplete: str
) -> None:
    source = Generated(seed=5, keys=3, rate=100, markers=0.02, events=5_000, per_batch=3_000)
    job = ct.Job(
        queries=QUERIES,
        source=source,
        checkpoint=str(tmp_path / "state"),
        sinks=[Memory()],
        incomplete=incomplete,
    )
    handle = job.start(spark)
    status = handle.wait()
    assert status.state == "ended" and status.events == 5_000
    assert (status.open_windows, status.open_events) == expected(EVENTS)
    shown = [row for query in QUERIES for row in rows_of(handle.results[query.name])]
    if incomplete == "emit":
        assert sum(not row["complete"] for row in shown) == status.open_windows
    else:
        assert not any("complete" in row for row in shown)
    told = {
        row.split("|")[1].strip()
        for row in (ROOT / "docs" / "reference" / "limits.md").read_text().splitlines()
        if row.startswith("| ")
    }
    assert status.limits and {one.name for one in status.limits} <= told
    assert all(one.used <= one.limit for one in status.limits)
    show.ending(Ending(status))


def text_job(tmp_path: Path, **options: Any) -> ct.Job:
    types = {"ts": "timestamp", "v": "int"}
    given = {
        "queries": [ct.Query("n", ct.count(), window=ct.tumbling("1s"))],
        "trigger": "available-now",
        "source": Csv(path=str(tmp_path / "in"), types=types, settle="0s"),
        "checkpoint": str(tmp_path / "state"),
        "sinks": [Memory()],
        "late": "collect",
    }
    return ct.Job(**(given | options))


def write(tmp_path: Path, name: str, *lines: str) -> Path:
    path = tmp_path / "in" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_stream_tells_what_it_never_read(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grown = write(tmp_path, "a.csv", "ts,v", "2026-01-01T00:00:01Z,1")
    lacking = write(tmp_path, "b.csv", "ts,w", "2026-01-01T00:00:01Z,1", "2026-01-01T00:00:02Z,1")
    status = text_job(tmp_path).start(spark).wait()
    assert status.events == 1
    assert status.waiting == {str(lacking): "it has no column 'v'"}
    assert [(one.origin, one.rows) for one in status.never_read] == [(str(lacking), 2)]
    with grown.open("a") as file:
        file.write("2026-01-01T00:00:02Z,1\n2026-01-01T00:00:03Z,1\n2026-01-01T00:00:04Z,1\n")
    status = text_job(tmp_path).start(spark).wait()
    assert status.never_read_rows == 5
    assert "never read 5" in line(status)
    assert Status.from_dict(json.loads(json.dumps(status.to_dict()))) == status
    show.ending(Ending(status))
    told = capsys.readouterr().out
    assert re.search(r"rows that were never read\s*│\s*5", told)
    assert f"never read: {grown}: 69 bytes came after the file was read (3 rows)" in told
    assert f"file waiting: {lacking}: it has no column 'v'" in told


def aside_rows(tmp_path: Path, kind: str) -> list[int]:
    files = (tmp_path / "state/catchment/aside" / kind).glob("*.parquet")
    return sorted(v for path in files for v in pq.read_table(path)["v"].to_pylist())


def with_bad_rows(tmp_path: Path, name: str, first: int) -> None:
    times = [None if n % 2 else f"2026-01-01T00:00:{n % 50:02d}Z" for n in range(200)]
    write(tmp_path, name, "ts,v", *(f"{t or ''},{first + n}" for n, t in enumerate(times)))


@pytest.mark.parametrize("memory", [64 << 20, 100])
def test_rows_set_aside_are_kept_once(spark: SparkSession, tmp_path: Path, memory: int) -> None:
    bad = []
    for number in range(3):
        with_bad_rows(tmp_path, f"{number}.csv", 1000 * number)
        bad += [1000 * number + n for n in range(1, 200, 2)]
        status = text_job(tmp_path, aside_bytes=memory).start(spark).wait()
    assert (status.bad, status.aside_dropped) == (300, 0)
    assert aside_rows(tmp_path, "bad") == bad
    # The last batch runs again, after a crash that came before it was committed.
    for path in (tmp_path / "state/spark/commits").iterdir():
        if path.name.lstrip(".").startswith("2"):
            path.unlink()
    (tmp_path / "state/catchment/progress/000000002.json").unlink()
    status = text_job(tmp_path, aside_bytes=memory).start(spark).wait()
    assert status.bad == 300 and aside_rows(tmp_path, "bad") == bad


def test_what_is_too_much_for_the_disk_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        with_bad_rows(tmp_path, f"{number}.csv", 1000 * number)
        options = {"aside_bytes": 100, "aside_disk_bytes": 2000}
        status = text_job(tmp_path, **options).start(spark).wait()
    kept = len(aside_rows(tmp_path, "bad")) + len(aside_rows(tmp_path, "late"))
    assert kept < status.bad + status.late == kept + status.aside_dropped
    assert "not kept" in line(status)


def test_a_batch_job_keeps_rows_set_aside_in_its_folder(
    spark: SparkSession, tmp_path: Path
) -> None:
    with_bad_rows(tmp_path, "a.csv", 0)
    write(tmp_path, "b.csv", "ts,v", "nonsense,1", "2026-01-01T00:00:01Z,1")
    job = load_job(
        {
            "queries": [{"name": "n", "select": ["sum(v)"], "window": "tumbling(1s)"}],
            "source": {
                "type": "csv",
                "path": str(tmp_path / "in"),
                "settle": "0s",
                "schema": {"ts": "timestamp", "v": "int"},
            },
            "checkpoint": str(tmp_path / "state"),
            "trigger": "batch",
            "sinks": [{"type": "memory"}],
        }
    )
    status = run_bounded(job, spark, lambda *_: None)
    assert (status.events, status.bad, status.aside_dropped) == (202, 101, 0)
    assert aside_rows(tmp_path, "bad") == list(range(1, 200, 2))
    unread = pq.read_table(tmp_path / "state/catchment/aside/unread")
    assert unread["body"].to_pylist() == [b"nonsense,1"]
