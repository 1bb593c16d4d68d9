"""What the page sees of real jobs: a tree to its end, a Spark job's folder, a job run with --ui."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner

from catchment.cli.main import app as commands
from catchment.durable.folder import Folder
from catchment.errors import CatchmentError, QueryError, RefusedError
from catchment.job import load_job
from catchment.measure.ports import free_port
from catchment.model import records
from catchment.nodes.bootstrap import given
from catchment.nodes.start import process_of
from catchment.sources.aside_files import AsideFiles, newest_rows
from catchment.sqltext import sql
from catchment.ui.snapshot import JobView, Snapshot
from catchment.ui.tree_job import TreeJob
from patience import PATIENCE, wait_for
from watched_spark import stopped_job

SQL = "SELECT player, sum(v) AS total FROM events GROUP BY player, window(ts, '2 seconds')"
PRINTED = re.compile(r"the page is at (http://127\.0\.0\.1:\d+)(/\?token=\S+)")
MEAN = {"name": "mean", "select": ["avg(v)"], "by": "player", "window": "tumbling(1s)"}


# -- a tree ---------------------------------------------------------------------------------------


def a_tree(home: Path, events: int) -> Path:
    source = {"type": "generator", "rate": 1000, "keys": 4, "events": events, "per_batch": 500}
    made = {
        "name": "plant",
        "queries": [MEAN],
        "checkpoint": str(home / "state"),
        "sinks": [{"type": "parquet", "path": str(home / "out")}],
        "nodes": [
            {"id": "root", "listen": f"127.0.0.1:{free_port()}"},
            {"id": "a", "parent": "root", "source": source},
        ],
    }
    path = home / "job.yaml"
    path.write_text(yaml.safe_dump(made))
    return path


def test_a_tree_is_seen_before_it_starts_while_it_runs_and_after_its_end(tmp_path: Path) -> None:
    job = load_job(a_tree(tmp_path, events=4000))
    watched = TreeJob(job)
    before = watched.look()
    assert before.job.state == "unreachable" and "does not answer" in (before.job.error or "")
    assert [(node.id, node.role, node.state) for node in before.nodes] == [
        ("root", "root", "unknown"),
        ("a", "reads", "unknown"),
    ]
    processes = [process_of(given(job, id, engine="embedded")) for id in ("root", "a")]
    processes[0].start()
    while_idle(watched)
    threads = [threading.Thread(target=process.run) for process in processes]
    for thread in threads:
        thread.start()
    wait_for(lambda: watched.look().counts.get("results"))
    for thread in threads:
        thread.join(PATIENCE)
    # Whoever saw the tree run, and whoever comes only now, sees the same end.
    for late in (watched, TreeJob(job)):
        end = late.look()
        assert (end.job.state, end.job.queries, end.counts["events"]) == ("ended", 1, 4000)
        assert end.job.results == f"Parquet files in {tmp_path / 'out'}"
        assert all(node.state == "ended" for node in end.nodes)
        planned = late.planned()
        assert planned is not None and list(planned.queries) == ["mean"]
    assert (tmp_path / "state" / "root" / "notes").is_dir()


@pytest.mark.slow
def test_a_tree_that_is_started_with_a_page_has_one_until_it_ends(tmp_path: Path) -> None:
    path = a_tree(tmp_path, events=3000)
    text = path.read_text().replace("type: generator", "type: generator\n    pace: 1500")
    path.write_text(text)
    command = [sys.executable, "-m", "catchment.cli.main", "up", str(path), "--quiet", "--ui"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run([*command, "--ui-port", port], capture_output=True, text=True)
        assert done.returncode == 1
        assert f"the page cannot have port {port}" in done.stderr
        assert not (tmp_path / "state").exists()
    with subprocess.Popen([*command, "--ui-port", "0"], stderr=subprocess.PIPE, text=True) as up:
        assert up.stderr is not None
        found = PRINTED.search(up.stderr.readline())
        assert found is not None
        with httpx.Client(base_url=found[1], follow_redirects=True, timeout=PATIENCE) as browser:
            assert browser.get(found[2]).status_code == 200
            wait_for(lambda: first_update(browser)["job"]["state"] == "running")
        _, said = up.communicate(timeout=PATIENCE)
    # The root may need long to start, which its children say.
    wrong = [line for line in said.splitlines() if "a: nobody listens there" not in line]
    assert (up.returncode, wrong) == (0, [])


def while_idle(watched: TreeJob) -> None:
    """A tree whose root runs and whose site does not: queries are checked, added and removed."""
    found = watched.look()
    assert {node.id: node.state for node in found.nodes} == {"root": "connected", "a": "missing"}
    assert found.job.plan == 1 and found.job.queries == 1
    new = sql(SQL, "total")
    watched.check(new)
    assert watched.look().job.queries == 1
    watched.add(new)
    with pytest.raises(RefusedError, match=r"two queries have one name \(given: total\)"):
        watched.check(new)
    assert watched.look().job.queries == 2
    watched.remove("total", drain=False)
    with pytest.raises(RefusedError, match="no such query"):
        watched.remove("total", drain=False)
    assert watched.look().job.queries == 1


# -- a job on Spark -------------------------------------------------------------------------------


@pytest.fixture
def spark_job(tmp_path: Path) -> Any:
    return stopped_job(tmp_path, [{"type": "console"}])


def test_a_spark_job_is_seen_by_its_folder(spark_job: Any) -> None:
    found: Snapshot = spark_job.look()
    assert (found.job.kind, found.job.state, found.job.batch) == ("spark", "stopped", 7)
    assert (found.job.queries, found.job.plan, found.job.frontier) == (1, 1, 5_000_000)
    assert (found.counts["accepted"], found.counts["late"]) == (98, 2)
    assert found.partitions == {"0": 8_000_000}
    assert found.job.results is None
    # Its own process counts as the one that runs it: the lock's file names a process that lives.
    from catchment.durable.lock import hold

    with hold(spark_job.home):
        assert spark_job.look().job.state == "running"


def test_queries_of_a_spark_job_are_checked_as_the_command_does(spark_job: Any) -> None:
    new = sql(SQL, "total")
    spark_job.check(new)
    with pytest.raises(CatchmentError, match="nowhere"):
        spark_job.check(sql(SQL.replace("sum(v)", "sum(nowhere)"), "total"))
    with pytest.raises(QueryError, match="two queries have one name"):
        spark_job.check(sql(SQL, "mean"))
    spark_job.add(new)
    with pytest.raises(QueryError, match="two queries have one name"):
        spark_job.add(new)
    spark_job.remove("total", drain=False)
    spark_job.add(new)


def test_a_folder_that_cannot_be_read_is_told(spark_job: Any) -> None:
    spark_job.home.sub("progress").write("000000008.json", b"{")
    found = spark_job.look()
    assert found.job.state == "unreachable"
    assert "the progress of batch 8 cannot be read" in (found.job.error or "")


def test_rows_set_aside_are_read_without_touching_them(tmp_path: Path) -> None:
    files = AsideFiles(Folder(str(tmp_path)))
    for batch in range(3):
        files.keep(batch, {"bad": [pa.table({"reason": [f"{batch}/{n}" for n in range(4)]})]}, [])
    before = sorted(path.name for path in tmp_path.rglob("*"))
    found = newest_rows(Folder(str(tmp_path)), "bad", 6)
    assert found["reason"].to_pylist() == ["1/2", "1/3", "2/0", "2/1", "2/2", "2/3"]
    assert newest_rows(Folder(str(tmp_path)), "late", 6).num_rows == 0
    assert newest_rows(Folder(str(tmp_path / "nowhere")), "bad", 6).num_rows == 0
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_a_job_without_a_checkpoint_cannot_be_found(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({"queries": [MEAN], "source": {"type": "generator"}}))
    done = CliRunner().invoke(commands, ["ui", str(path), "--port", "0"])
    assert done.exit_code == 2
    assert "where does the job run? its file names no checkpoint" in done.stderr


@pytest.mark.spark
@pytest.mark.slow
def test_a_job_run_with_a_page_shows_results_and_costs(tmp_path: Path) -> None:
    source = {"type": "generator", "rate": 1000, "keys": 4, "per_batch": 2000, "pace": 2000}
    path = tmp_path / "job.yaml"
    made = {"queries": [MEAN], "checkpoint": str(tmp_path / "state"), "source": source}
    path.write_text(yaml.safe_dump(made))
    command = [sys.executable, "-m", "catchment.cli.main", "run", str(path), "--cores", "1"]
    command += ["--ui", "--ui-port", "0", "--quiet"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            said = running.stderr.readline()
            found = PRINTED.search(said)
            assert found is not None, said
            with httpx.Client(
                base_url=found[1], follow_redirects=True, timeout=PATIENCE
            ) as browser:
                assert browser.get(found[2]).status_code == 200
                view = wait_for(lambda: running_view(browser))
                assert (view.kind, view.queries) == ("spark", 1)
                rows = wait_for(lambda: rows_of(browser))
                assert rows["keys"] == ["player"] and rows["columns"][0] == "player"
        finally:
            running.terminate()
            running.communicate(timeout=PATIENCE)


def first_update(browser: httpx.Client) -> dict[str, Any]:
    """The sections that a page is sent first."""
    with browser.stream("GET", "/api/jobs/0/events") as stream:
        line = next(stream.iter_lines())
    update = records.decode(dict[str, Any], line.removeprefix("data: ").encode(), "an update")
    sections: dict[str, Any] = update["set"]
    return sections


def running_view(browser: httpx.Client) -> JobView | None:
    """The job as the first update says it, once it runs and has told what batches cost."""
    sections = first_update(browser)
    view = records.convert(JobView, sections["job"], "the job")
    assert view.error is None, view.error
    return view if view.state == "running" and sections["cost"] else None


def rows_of(browser: httpx.Client) -> dict[str, Any] | None:
    found: dict[str, Any] = browser.get("/api/jobs/0/results", params={"query": "mean"}).json()
    return found if found["rows"] else None
