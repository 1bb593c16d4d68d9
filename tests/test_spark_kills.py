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
from catchment.sources.generated import Generated
from catchment.testing.compare import assert_same, rows_of
from kill_job import QUERIES, source
from schedules import soaked

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]

KILLS = int(os.environ.get("CATCHMENT_KILLS", "5"))
SEED = int(os.environ.get("CATCHMENT_SEED", "1"))
MASTERS = {
    "local[2,8]": (KILLS, ("driver", "workers", "workers", "workers", "workers", "workers")),
    "local-cluster[1,2,1024]": (max(KILLS // 5, 3), ("executor", "workers", "driver")),
}
"""In local mode the Python workers are all there is to an executor; the other has it apart."""
STALLED = 300
"""Seconds without a batch after which the job is taken to hang, however slow the machine is."""


def batches(kills: int) -> int:
    """How many batches the job has: some pass between two kills, and some follow the last one."""
    return 8 + 5 * kills // 2


class Job:
    """The job's process, with everything it started, in a session of their own."""

    def __init__(self, folder: Path, master: str, batches: int) -> None:
        self.master = master
        self.batches = batches
        self.folder = folder
        script = Path(__file__).with_name("kill_job.py")
        self.log = (folder / "log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(folder), master, str(batches)],
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def kill(self) -> None:
        for part in self.parts(""):
            with contextlib.suppress(ProcessLookupError):
                os.kill(part, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def again(self) -> Job:
        """The job, started again."""
        self.kill()
        return Job(self.folder, self.master, self.batches)

    def parts(self, words: str) -> list[int]:
        """Its processes whose command line holds these words."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                # Spark's Python daemons make process groups of their own, but no sessions.
                if words in command and os.getsid(int(entry.name)) == self.process.pid:
                    found.append(int(entry.name))
            except OSError:
                continue  # it ended just now
        return found

    @property
    def running(self) -> bool:
        return self.process.poll() is None


def progress(folder: Path) -> int:
    """How many batches are through."""
    noted = (folder / "state/catchment/progress").glob("0*.json")
    return max((int(path.stem) + 1 for path in noted), default=0)


def kill_once(job: Job, kind: str, dice: random.Random) -> str:
    """Kills the driver and all with it, or the executor, or one of the Python workers."""
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


def wait_for_batch(job: Job, seen: int) -> None:
    """Waits until there are more batches than were seen, or the job has ended."""
    until = time.monotonic() + STALLED
    while job.running and progress(job.folder) <= seen:
        assert time.monotonic() < until, (job.folder / "log").read_text()[-3000:]
        time.sleep(0.02)


def until_ended(job: Job) -> Job:
    """Lets the job run to its end. The last kill may have failed it; started again, it ends."""
    for last in (False, True):
        while job.running:
            wait_for_batch(job, progress(job.folder))
        if job.process.returncode == 0:
            break
        assert not last, (job.folder / "log").read_text()[-3000:]
        job = job.again()
    return job


def until_killed(
    job: Job, tmp_path: Path, kinds: list[str], dice: random.Random
) -> tuple[Job, dict[str, int]]:
    """Kills so many times, starting the job again where it is gone; the job, and what was hit."""
    killed: dict[str, int] = {}
    seen = 0
    while kinds:
        # Most kills come once a batch is through, so that the job gets on; some before.
        if dice.random() >= 0.1:
            wait_for_batch(job, seen)
        if not job.running:
            assert job.process.returncode == 1, "it ended before all kills were spent"
            job = job.again()
            continue
        time.sleep(dice.random())
        seen = progress(tmp_path)
        kind = kill_once(job, kinds.pop(), dice)
        killed[kind] = killed.get(kind, 0) + 1
        if not job.running:
            job = job.again()
    return job, killed


@pytest.mark.parametrize("master", ["local-cluster[1,2,1024]", soaked("local[2,8]")])
def test_kills(master: str, tmp_path: Path) -> None:
    number, sorts = MASTERS[master]
    print(f"seed {SEED}, {number} kills, {master}")  # noqa: T201
    dice = random.Random(SEED)
    kinds = [sorts[n % len(sorts)] for n in range(number)]
    dice.shuffle(kinds)
    job = Job(tmp_path, master, batches(number))
    try:
        job, killed = until_killed(job, tmp_path, kinds, dice)
        job = until_ended(job)
    finally:
        job.kill()
    print(f"killed {killed}")  # noqa: T201
    check(tmp_path, source(batches(number)), seed=SEED)


def check(folder: Path, read: Generated, seed: int) -> None:
    """The sink holds each result once, equal to an engine that was never disturbed."""
    engine = ct.Engine(QUERIES)
    read.check()
    for split in read.splits(read.start(), read.bound(read.start()), 1):
        for piece in read.read(split, None, None):
            engine.push(piece.events)
    wanted = engine.close()
    sink = ParquetSink(path=f"{folder}/out")
    for query in QUERIES:
        assert_same(
            rows_of(wanted[query.name]), sink.read(query.name), f"seed {seed}, query {query.name}"
        )
