"""Delta and Iceberg with their real jars: each result is in the table once, whatever is killed.

There are no builds for the newest Spark, so these run where `make test-oldest` runs them.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

import catchment as ct
from catchment.testing.compare import assert_same, rows_of

SPARK = ".".join(pyspark.__version__.split(".")[:2])
KINDS = {"4.1": ["delta", "iceberg"], "4.2": ["delta", "delta-job"]}
KILLS = 2
PATIENCE = 900.0

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        "CATCHMENT_TABLES" not in os.environ,
        reason="Delta and Iceberg have no builds for this Spark: make test-oldest runs them",
    ),
]

SCRIPT = Path(__file__).with_name("table_job.py")


class Process:
    """The job in a session of processes of its own, so that all of it can be killed."""

    def __init__(self, what: str, kind: str, folder: Path) -> None:
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), what, kind, str(folder)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Java and the Python workers have groups of their own in the session."""
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getsid(int(entry.name)) == self.process.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue  # it ended just now
        self.process.wait()

    def finish(self) -> None:
        try:
            ended = self.process.wait(PATIENCE)
        finally:
            self.kill()
        assert ended == 0, self.log.read_text()[-4000:]


def batches(folder: Path) -> int:
    """How many batches have begun."""
    return len([p for p in (folder / "state").rglob("offsets/*") if p.name.isdigit()])


@pytest.mark.parametrize("kind", KINDS.get(SPARK, []))
def test_each_result_is_in_the_table_once(kind: str, tmp_path: Path) -> None:
    sys.path.insert(0, str(SCRIPT.parent))
    from table_job import EVENTS, QUERY, write_events

    write_events(tmp_path)
    dice = random.Random(int(os.environ.get("CATCHMENT_SEED", "3")))
    killed = 0
    for _ in range(KILLS):
        begun = batches(tmp_path)
        job = Process("run", kind, tmp_path)
        until = time.monotonic() + PATIENCE
        while job.process.poll() is None and batches(tmp_path) <= begun:
            assert time.monotonic() < until, job.log.read_text()[-4000:]
            time.sleep(0.02)
        time.sleep(2 * dice.random())
        killed += job.process.poll() is None
        job.kill()
    assert killed == KILLS, (tmp_path / "log").read_text()[-4000:]
    Process("run", kind, tmp_path).finish()
    Process("read", kind, tmp_path).finish()

    engine = ct.Engine([QUERY])
    engine.push(EVENTS)
    wanted = engine.advance(int(EVENTS.column("ts").cast("int64").to_numpy().max()))["speed"]
    assert_same(rows_of(wanted), pq.read_table(tmp_path / "found.parquet"), keys=["player"])
