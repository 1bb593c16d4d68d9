"""A streaming job on Spark and a tree of nodes that run for long: nothing that they hold grows.

Skipped unless CATCHMENT_SOAK says for how many seconds each is to run; `make soak` says two hours.
Keys come and go, some rows are late and some have no time. Once warm (a third of the run, at most
ten minutes), memory, threads, descriptors and the files of the checkpoint are measured every few
seconds, and their slopes must be those of something flat.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

SECONDS = float(os.environ.get("CATCHMENT_SOAK", "0"))
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not SECONDS, reason="CATCHMENT_SOAK says for how many seconds"),
    pytest.mark.timeout(0),
]
WARM = min(SECONDS / 3, 600)
QUERIES = [
    {"name": "each", "select": ["count(*)", "avg(v)"], "by": "k", "window": "tumbling(2s)"},
    {"name": "all", "select": ["median(v)"], "window": "sliding(6s, 2s)"},
    {"name": "visits", "select": ["count(*)"], "by": "k", "window": "session(3s)"},
    {"name": "tens", "select": ["sum(v)"], "window": "count_tumbling(1000)"},
]
TYPES = {"ts": "timestamp", "k": "string", "v": "bigint"}


@dataclass(frozen=True)
class Limit:
    """How much something may grow from the end of the warm-up to the end: a share, and a number."""

    share: float
    least: float


LIMITS = {
    "python MB": Limit(0.10, 24),
    "java heap MB": Limit(0.10, 24),
    # What Java has of the system follows the heap's largest size of late, not what lives in it.
    "java MB": Limit(0.50, 256),
    "threads": Limit(0.05, 6),
    "descriptors": Limit(0.05, 12),
    "files": Limit(0.10, 60),
    "file MB": Limit(0.20, 16),
}


class Feeder(threading.Thread):
    """Writes a small file of events now and then, and removes those that were read long ago."""

    def __init__(self, folder: Path, every: float, rows: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.every, self.rows = folder, every, rows
        self.dice = random.Random(seed)
        self.stopping = threading.Event()
        self.written = 0
        folder.mkdir(parents=True)

    def run(self) -> None:
        number = 0
        while not self.stopping.wait(self.every):
            body = "\n".join(self._row() for _ in range(self.rows)) + "\n"
            beside = self.folder / f".{number:07d}"
            beside.write_text(body)
            beside.rename(self.folder / f"{number:07d}.jsonl")
            self.written += self.rows
            (self.folder / f"{number - 300:07d}.jsonl").unlink(missing_ok=True)
            number += 1

    def _row(self) -> str:
        now = time.time()
        chance = self.dice.random()
        if chance < 0.01:
            return json.dumps({"ts": None, "k": "nobody", "v": 1})
        if chance < 0.012:
            return "{not json"
        late = 30 if chance < 0.03 else self.dice.random() * 0.2
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now - late))
        key = f"{int(now) // 20}-{self.dice.randrange(50)}"
        return json.dumps({"ts": f"{at}Z", "k": key, "v": self.dice.randrange(100)})


# -- measuring ------------------------------------------------------------------------------------


def family(pid: int) -> list[int]:
    """A process and all that it started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


def sample(pid: int, folder: Path, each: dict[str, float]) -> dict[str, float]:
    """What all processes hold together; `each` is told the memory of every one."""
    made = dict.fromkeys(LIMITS, 0.0)
    each.clear()
    for one in family(pid):
        try:
            if Path(f"/proc/{one}/comm").read_text().strip() == "java":
                made["java heap MB"] += live_heap(one)
            status = dict(
                line.split(":\t", 1)
                for line in Path(f"/proc/{one}/status").read_text().splitlines()
                if ":\t" in line
            )
            # Forked workers share pages: what each has for itself is what grows. Pages of
            # libraries are shared with all processes of the machine, which come and go.
            rollup = Path(f"/proc/{one}/smaps_rollup").read_text()
            pss = next(int(line.split()[1]) for line in rollup.splitlines() if "Pss_Anon:" in line)
            made["java MB" if status["Name"] == "java" else "python MB"] += pss / 1024
            words = Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")
            each[f"{one} {status['Name']} {b' '.join(words[1:4]).decode()[:60]}"] = pss / 1024
            made["threads"] += int(status["Threads"])
            made["descriptors"] += len(os.listdir(f"/proc/{one}/fd"))
        except (OSError, KeyError, StopIteration):
            continue  # it has ended meanwhile
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                made["files"] += 1
                made["file MB"] += path.stat().st_size / 2**20
        except OSError:
            continue
    return made


def live_heap(pid: int) -> float:
    """Megabytes that live in Java's heap, once it gave up what nobody holds any more."""
    if not shutil.which("jcmd"):
        return 0.0
    subprocess.run(["jcmd", str(pid), "GC.run"], capture_output=True, timeout=60)
    told = subprocess.run(["jcmd", str(pid), "GC.heap_info"], capture_output=True, timeout=60)
    used = re.search(rb"heap +total.*? used (\d+)K", told.stdout)
    return int(used[1]) / 1024 if used else 0.0


def slope(samples: list[tuple[float, float]]) -> float:
    """By Theil and Sen: the median of the slopes between samples, per second."""
    if len(samples) > 400:
        samples = samples[:: len(samples) // 400]
    found = [
        (v1 - v0) / (t1 - t0)
        for n, (t0, v0) in enumerate(samples)
        for t1, v1 in samples[n + 1 :]
        if t1 > t0
    ]
    return statistics.median(found)


PLATEAU = {"files": 2_000.0, "file MB": 64.0}
"""What Spark and we keep of the last hundreds of batches, and logs in segments of 8 MB: below, a
short run has not come to it."""


def flat(samples: list[tuple[float, dict[str, float]]]) -> list[str]:
    """What grew by more than it may; prints the slopes."""
    wrong = []
    took = samples[-1][0] - samples[0][0]
    for name, limit in LIMITS.items():
        series = [(at, values[name]) for at, values in samples]
        middle = statistics.median(value for _, value in series)
        if not middle:
            continue
        grown = slope(series) * took
        allowed = max(limit.share * middle, limit.least)
        told = f"{name}: {series[0][1]:,.1f} to {series[-1][1]:,.1f}, median {middle:,.1f}; "
        told += f"slope {grown / took * 3600:+,.2f} an hour, {grown:+,.2f} in {took:.0f} s"
        print(f"{told} (allowed {allowed:,.1f})")  # noqa: T201
        if grown > allowed and series[-1][1] > PLATEAU.get(name, 0):
            wrong.append(told)
    return wrong


def measured(pid: int, folder: Path, alive: Callable[[], bool]) -> list[str]:
    begun = time.monotonic()
    samples: list[tuple[float, dict[str, float]]] = []
    first: dict[str, float] = {}
    each: dict[str, float] = {}
    every = max(2.0, SECONDS / 500)
    while time.monotonic() - begun < SECONDS:
        time.sleep(every)
        assert alive(), "a process has ended"
        at = time.monotonic() - begun
        if at >= WARM:
            samples.append((at, sample(pid, folder, each)))
            first = first or dict(each)
    for name, held in sorted(each.items(), key=lambda one: first.get(one[0], 0.0) - one[1]):
        print(f"{first.get(name, 0.0):8.1f} to {held:8.1f} MB: {name}")  # noqa: T201
    return flat(samples)


def until(met: Callable[[], bool], seconds: float = 600) -> None:
    """Waits for what must come, such as the first batch: Spark takes its time to start."""
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end
        time.sleep(0.2)


@contextmanager
def running(command: list[str], cwd: Path) -> Iterator[subprocess.Popen[bytes]]:
    log = (cwd / "out.log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-m", "catchment.cli.main", *command], cwd=cwd, stdout=log, stderr=log
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(90)
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()


def source(folder: str) -> dict[str, Any]:
    return {
        "type": "jsonl",
        "path": folder,
        "schema": TYPES,
        "settle": "0s",
        "max_known_files": 1000,
    }


# -- what runs ------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_streaming_job_stays_as_it_is(tmp_path: Path) -> None:
    job = {
        "queries": QUERIES,
        "source": source("in"),
        "sinks": [{"type": "memory", "limit": 10_000}],
        "checkpoint": "state",
        "late": "collect",
        "lateness": "1s",
        "aside_disk_bytes": 2 << 20,
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    feeder = Feeder(tmp_path / "in", 0.5, 200, seed=1)
    feeder.start()
    time.sleep(1.5)
    with running(["run", "job.yaml", "--json"], tmp_path) as process:
        until(lambda: "{" in (tmp_path / "out.log").read_text())
        wrong = measured(process.pid, tmp_path / "state", lambda: process.poll() is None)
        feeder.stopping.set()
    lines = (tmp_path / "out.log").read_text().splitlines()
    told = [json.loads(line) for line in lines if line.startswith("{")]
    last = told[-1]
    print({n: last[n] for n in ("batch", "events", "late", "bad", "results")})  # noqa: T201
    assert not wrong, wrong
    assert last["batch"] > 5
    assert last["late"] and last["bad"]
    assert last["accepted"] + last["late"] + last["bad"] + last["duplicates"] == last["events"]
    for limit in last["limits"]:
        assert limit["used"] <= 1.1 * limit["limit"], limit


def test_a_tree_stays_as_it_is(tmp_path: Path) -> None:
    with socket.socket() as probe, socket.socket() as other:
        probe.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        root, relay = probe.getsockname()[1], other.getsockname()[1]
    nodes: list[dict[str, Any]] = [
        {"id": "root", "listen": f"127.0.0.1:{root}"},
        {"id": "relay", "parent": "root", "listen": f"127.0.0.1:{relay}"},
    ]
    nodes += [{"id": f"site{n}", "parent": "relay", "source": source(f"in{n}")} for n in range(2)]
    job = {
        "queries": QUERIES,
        "nodes": nodes,
        "checkpoint": "state",
        "late": "collect",
        "lateness": "1s",
        "sinks": [{"type": "memory", "limit": 10_000}],
        "aside_disk_bytes": 1 << 20,
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    feeders = [Feeder(tmp_path / f"in{n}", 0.3, 100, seed=n) for n in range(2)]
    for feeder in feeders:
        feeder.start()
    time.sleep(1.5)
    with running(["up", "job.yaml", "--engine", "embedded", "--quiet"], tmp_path) as process:
        wrong = measured(process.pid, tmp_path / "state", lambda: process.poll() is None)
        found = subprocess.run(
            [sys.executable, "-m", "catchment.cli.main", "status", "--job", "job.yaml", "--json"],
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
        for feeder in feeders:
            feeder.stopping.set()
    status = json.loads(found.stdout)
    print(status["counts"])  # noqa: T201
    assert not wrong, wrong
    assert status["counts"]["results"] and status["counts"]["late"] and status["counts"]["bad"]
    for limit in status["limits"]:
        assert limit["used"] <= 1.1 * limit["limit"], limit
