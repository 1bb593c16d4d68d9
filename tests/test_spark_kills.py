"""Exactly once: a real job on a real Spark, its processes killed at random, again and again.

Executors are processes of their own here, as on a cluster. CATCHMENT_KILLS says how many kills,
CATCHMENT_SEED which; the seed is printed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import catchment as ct
from catchment.sinks.parquet import ParquetSink
from catchment.testing.compare import assert_same, rows_of
from kill_job import QUERIES, SOURCE

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

KILLS = int(os.environ.get("CATCHMENT_KILLS", "30"))
SEED = int(os.environ.get("CATCHMENT_SEED", "0")) or int(time.time())
MASTER = "local-cluster[1,2,1024]"


class Job:
    """The job's process, with everything it started, in a process group."""

    def __init__(self, folder: Path) -> None:
        script = Path(__file__).with_name("kill_job.py")
        self.log = (folder / "log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(folder), MASTER],
            stdout=self.log, stderr=self.log, start_new_session=True,
        )  # fmt: skip

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def parts(self, words: str) -> list[int]:
        """Its processes whose command line holds these words."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if words in command and os.getpgid(int(entry.name)) == self.process.pid:
                    found.append(int(entry.name))
            except OSError:
                continue  # it ended just now
        return found

    @property
    def running(self) -> bool:
        return self.process.poll() is None


def progress(folder: Path) -> int:
    return len(list((folder / "state/catchment/progress").glob("0*.json")))


def kill_once(job: Job, dice: random.Random) -> str:
    """Kills the driver and all with it, or an executor, or some of the Python workers."""
    kind = dice.choice(["driver", "executor", "executor", "workers", "workers"])
    words = {"executor": "CoarseGrainedExecutorBackend", "workers": "-m catchment.spark.daemon"}
    victims = [] if kind == "driver" else job.parts(words[kind])
    if not victims:
        job.kill()
        return "driver"
    for victim in dice.sample(victims, 1 if kind == "workers" else len(victims)):
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return kind


def until_killed(job: Job, tmp_path: Path, dice: random.Random) -> tuple[Job, dict[str, int]]:
    """Kills so many times, starting the job again where it is gone; the job, and what was hit."""
    killed: dict[str, int] = {}
    seen = 0
    while sum(killed.values()) < KILLS:
        # Most kills come once a batch is through, so that the job gets on; some before.
        until = time.monotonic() + 180
        eager = dice.random() < 0.1
        while job.running and not eager and progress(tmp_path) <= seen:
            assert time.monotonic() < until, (tmp_path / "log").read_text()[-3000:]
            time.sleep(0.02)
        if not job.running:
            assert job.process.returncode == 1, "it ended before all kills were spent"
            job.kill()
            job = Job(tmp_path)
            continue
        time.sleep(dice.random() * 1.5)
        seen = progress(tmp_path)
        kind = kill_once(job, dice)
        killed[kind] = killed.get(kind, 0) + 1
        if not job.running:
            job = Job(tmp_path)
    return job, killed


def test_kills(tmp_path: Path) -> None:
    print(f"seed {SEED}, {KILLS} kills")  # noqa: T201
    dice = random.Random(SEED)
    job = Job(tmp_path)
    try:
        job, killed = until_killed(job, tmp_path, dice)
        while job.process.wait(timeout=300):
            job.kill()
            job = Job(tmp_path)
    finally:
        job.kill()
    print(f"killed {killed}")  # noqa: T201
    check(tmp_path, seed=SEED)


def check(folder: Path, seed: int) -> None:
    """The sink holds each result once, equal to an engine that was never disturbed."""
    engine = ct.Engine(QUERIES)
    SOURCE.check()
    for split in SOURCE.splits(SOURCE.start(), SOURCE.bound(SOURCE.start()), 1):
        for piece in SOURCE.read(split, None, None):
            engine.push(piece.events)
    wanted = engine.close()
    sink = ParquetSink(path=f"{folder}/out")
    for query in QUERIES:
        assert_same(
            rows_of(wanted[query.name]), sink.read(query.name), f"seed {seed}, query {query.name}"
        )
