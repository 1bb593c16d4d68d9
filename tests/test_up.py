"""`catchment up`: nodes that die are started again, all end in order, and any node may read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
import yaml

import catchment as ct
from catchment.errors import CatchmentError, JobError
from catchment.job.topology import NodeSection, check_nodes
from catchment.measure.ports import free_port
from catchment.nodes import supervisor
from catchment.nodes.bootstrap import founded, given
from catchment.nodes.node_service import check_move
from catchment.nodes.process import NodeProcess
from catchment.nodes.supervisor import Supervisor
from catchment.sources.generated import Generated
from catchment.testing.compare import assert_same, rows_of
from patience import PATIENCE, wait_for
from schedules import in_soak, soaked

pytestmark = pytest.mark.slow

QUERIES = [
    {"name": "mean", "select": ["avg(v)", "count(*)"], "by": "player", "window": "tumbling(1s)"},
    {"name": "visits", "select": ["count(*)"], "by": "player", "window": "session(300ms)"},
    {"name": "lots", "select": ["sum(seq)"], "window": "count_tumbling(1000)"},
    {"name": "mid", "select": ["median(v)"], "window": "sliding(4s, 2s)"},
]


def source(seed: int, pace: int | None = None, events: int = 6000) -> dict[str, Any]:
    made = {
        "type": "generator",
        "seed": seed,
        "rate": 1000,
        "keys": 4,
        "events": events,
        "per_batch": 250,
        "gaps": ["1s", "2s"],
    }
    return made if pace is None else made | {"pace": pace}


def job_file(home: Path, nodes: list[dict[str, Any]]) -> Path:
    path = home / "job.yaml"
    made = {
        "name": "up",
        "timeout": "10m",
        "queries": QUERIES,
        "nodes": nodes,
        "checkpoint": str(home / "state"),
        "sinks": [{"type": "parquet", "path": str(home / "out"), "roll": 3}],
    }
    path.write_text(yaml.safe_dump(made))
    return path


def command(path: Path) -> list[str]:
    return [sys.executable, "-m", "catchment.cli.main", "up", str(path), "--quiet"]


def nodes_of(path: Path) -> dict[str, int]:
    """The processes of a job's nodes, by id."""
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it may end just now
            words = (entry / "cmdline").read_text().split("\0") if entry.name.isdigit() else []
            if str(path) in words and "node" in words:
                found[words[words.index("node") + 1]] = int(entry.name)
    return found


def assert_exact(home: Path, sources: list[dict[str, Any]]) -> None:
    """The results are those of one engine that is given all events."""
    queries = ct.load_job({"queries": QUERIES}).build()
    engine = ct.Engine(queries)
    plain = ("type", "pace")
    made = [Generated(**{k: v for k, v in one.items() if k not in plain}) for one in sources]
    engine.push(pa.concat_tables([one.generator(0).table(one.events) for one in made]))
    wanted = engine.close()
    for query in queries:
        table = ds.dataset(home / "out" / query.name, format="parquet").to_table()
        assert all(table["complete"].to_pylist())
        found = table.drop_columns(["complete", "missing"])
        assert_same(rows_of(wanted[query.name]), found, query.name, keys=query.keys)


def test_a_killed_node_is_started_again_and_nobody_notices(tmp_path: Path) -> None:
    first, second = source(1, pace=400), source(2, pace=400)
    path = job_file(
        tmp_path,
        [
            {"id": "root", "listen": f"127.0.0.1:{free_port()}"},
            {"id": "a", "parent": "root", "source": first},
            {"id": "b", "parent": "root", "source": second},
        ],
    )
    with subprocess.Popen(command(path), stderr=subprocess.PIPE, text=True) as running:
        before = wait_for(lambda: len(found := nodes_of(path)) == 3 and found)
        wait_for(lambda: (tmp_path / "out" / "mean").exists())
        for id in ("a", "root"):
            os.kill(nodes_of(path)[id], signal.SIGKILL)
            wait_for(lambda id=id: nodes_of(path).get(id, before[id]) != before[id])
        _, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, said
    assert "a has ended (killed by SIGKILL); it is started again in 0.5 s" in said
    assert "root has ended (killed by SIGKILL); it is started again in 0.5 s" in said
    assert "b has ended" not in said
    assert_exact(tmp_path, [first, second])


@pytest.mark.parametrize("number", [signal.SIGINT, soaked(signal.SIGTERM), signal.SIGKILL])
def test_no_node_outlives_its_supervisor(tmp_path: Path, number: signal.Signals) -> None:
    path = job_file(
        tmp_path,
        [
            {"id": "root", "listen": f"127.0.0.1:{free_port()}"},
            {"id": "a", "parent": "root", "source": source(1, pace=100)},
        ],
    )
    with subprocess.Popen(command(path), stderr=subprocess.PIPE, text=True) as running:
        wait_for(lambda: (tmp_path / "out" / "mean").exists())
        running.send_signal(number)
        _, said = running.communicate(timeout=PATIENCE)
    assert "Traceback" not in said
    assert running.returncode == (-9 if number is signal.SIGKILL else 130)
    wait_for(lambda: not nodes_of(path))


def test_a_root_that_cannot_start_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PAUSES", (0.01,))
    said: list[str] = []
    fails, waits = [sys.executable, "-c", "exit(3)"], [sys.executable, "-c", "input()"]
    watched = Supervisor({"r": fails, "a": waits}, {"r": None, "a": "r"}, said.append)
    with pytest.raises(CatchmentError, match=r"the root cannot be started \(given: r, exit code 3"):
        watched.watch()
    assert said == ["r has ended (exit code 3); it is started again in 0.01 s"] * 2
    assert watched.pids == {}


ENDS_ONCE_THERE_IS = """
import sys, time
from pathlib import Path
while not Path(sys.argv[1]).exists():
    time.sleep(0.01)
time.sleep(0.5)
"""


def said_of(code: int, lines: int, end: Path) -> list[str]:
    """What a supervisor says of a node that ends with a code, whose root ends half a second after
    so many lines were said."""
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == lines:
            end.touch()

    commands = {
        "r": [sys.executable, "-c", ENDS_ONCE_THERE_IS, str(end)],
        "a": [sys.executable, "-c", f"exit({code})"],
    }
    Supervisor(commands, {"r": None, "a": "r"}, say).watch(pause=0.01)
    return said


def test_a_node_that_was_turned_away_for_good_is_not_started_again(tmp_path: Path) -> None:
    said = said_of(supervisor.REFUSED, 1, tmp_path / "end")
    assert said == ["a was turned away for good; it is not started again"]


def test_pauses_grow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(supervisor, "PAUSES", (0.01, 0.02, 0.03))
    said = said_of(1, 4, tmp_path / "end")
    assert [line.split()[-2] for line in said[:4]] == ["0.01", "0.02", "0.03", "0.03"]


@pytest.mark.parametrize("where", [soaked("root"), soaked("mid"), "both", soaked("alone")])
def test_a_node_with_children_reads_too(tmp_path: Path, where: str) -> None:
    root: dict[str, Any] = {"id": "root", "listen": f"127.0.0.1:{free_port()}"}
    mid: dict[str, Any] = {"id": "mid", "parent": "root", "listen": f"127.0.0.1:{free_port()}"}
    nodes = [root, mid, {"id": "a", "parent": "mid", "source": source(1)}]
    if where in ("root", "both"):
        root["source"] = source(2)
    if where in ("mid", "both"):
        mid["source"] = source(3)
    if where == "alone":
        nodes = [{"id": "root", "source": source(2)}]
    path = job_file(tmp_path, nodes)
    done = subprocess.run(
        command(path), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert_exact(tmp_path, [node["source"] for node in nodes if "source" in node])


def test_a_root_that_reads_may_be_killed(tmp_path: Path) -> None:
    own, other = source(1, pace=600), source(2, pace=600)
    path = job_file(
        tmp_path,
        [
            {"id": "root", "listen": f"127.0.0.1:{free_port()}", "source": own},
            {"id": "a", "parent": "root", "source": other},
        ],
    )
    with subprocess.Popen(command(path), stderr=subprocess.PIPE, text=True) as running:
        for _ in range(2):
            before = wait_for(lambda: nodes_of(path).get("root"))
            time.sleep(3)
            os.kill(before, signal.SIGKILL)
            wait_for(lambda was=before: nodes_of(path).get("root", was) != was)
        _, said = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, said
    assert_exact(tmp_path, [own, other])


def test_a_root_that_is_made_again_delivers_its_last_step_again(tmp_path: Path) -> None:
    """It does so while its process is made: what delivers must be there by then."""
    path = job_file(tmp_path, [{"id": "root", "engine": "embedded", "source": source(1, pace=900)}])
    config = given(ct.load_job(path), "root")
    results = tmp_path / "out" / "mean"
    for _ in range(2):
        node = NodeProcess(config)
        node.start()
        working = threading.Thread(target=node.run)
        working.start()
        wait_for(results.exists)
        time.sleep(0.5)
        node.stop()
        working.join(PATIENCE)
        assert not working.is_alive() and node.last_error is None


@in_soak
@pytest.mark.spark
def test_a_root_on_spark_reads_too(tmp_path: Path) -> None:
    path = job_file(
        tmp_path,
        [
            {
                "id": "root",
                "listen": f"127.0.0.1:{free_port()}",
                "engine": "spark",
                "source": source(1),
            },
            {"id": "a", "parent": "root", "engine": "embedded", "source": source(2)},
        ],
    )
    done = subprocess.run(
        command(path), capture_output=True, text=True, timeout=3 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert_exact(tmp_path, [source(1), source(2)])


def test_a_reader_is_a_place_but_no_node_of_its_own(tmp_path: Path) -> None:
    nodes: list[dict[str, Any]] = [
        {"id": "root", "listen": "127.0.0.1:1", "source": source(1)},
        {"id": "a", "parent": "root", "source": source(2)},
    ]
    made = founded(ct.load_job(job_file(tmp_path, nodes)))
    places = [(place.id, place.parent, place.source) for place in made.places.values()]
    assert places == [("root", None, False), ("root.reader", "root", True), ("a", "root", True)]
    assert "root.reader" not in made.without("root").places
    with pytest.raises(JobError, match=r"reads for another \(given: root.reader\); name root"):
        check_move(made, "root.reader", "root")
    nodes.append({"id": "root.reader", "parent": "root", "source": source(3)})
    with pytest.raises(JobError, match="two nodes have one id"):
        check_nodes([NodeSection(**node) for node in nodes])
