"""A job's checkpoint in a store of objects: killed and started again, each result is there once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

import catchment as ct
from catchment.durable.folder import Folder
from catchment.sinks.parquet import ParquetSink
from catchment.testing.compare import assert_same, rows_of
from numbered_files import write_numbered
from object_job import EVENTS, FILES, QUERIES
from patience import PATIENCE
from schedules import in_soak
from servers.object_server import ObjectServer, missing_objects, objects

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800), in_soak]

SCRIPT = Path(__file__).with_name("object_job.py")


def hadoop() -> str:
    """The release of Hadoop that this Spark has."""
    jars = Path(pyspark.__file__).parent / "jars"
    return next(jars.glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]


@contextmanager
def started(server: ObjectServer, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The job, in a process of its own, which is killed with Java at the end of the block.

    Spark fetches what it needs for S3 by itself.
    """
    packages = {"spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop()}"}
    settings = json.dumps(server.settings() | packages)
    words = [str(folder / "in"), server.uri("jobs/one"), server.uri("out"), settings]
    command = [sys.executable, str(SCRIPT), *words]
    with (folder / "log").open("ab") as log:
        job = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield job
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def through(server: ObjectServer) -> int:
    """How many batches are through."""
    noted = Folder(server.uri("jobs/one")).sub("catchment").sub("progress").names()
    return len([name for name in noted if name.startswith("0")])


def test_a_checkpoint_in_a_store_of_objects(tmp_path: Path) -> None:
    if why := missing_objects():
        pytest.skip(why)
    for number in range(FILES):
        write_numbered(tmp_path / "in", number, EVENTS.slice(number * 1000, 1000))
    with objects(tmp_path / "server") as server:
        until = time.monotonic() + 3 * PATIENCE
        with started(server, tmp_path) as job:
            while through(server) < 2:
                said = (tmp_path / "log").read_text()[-4000:]
                assert job.poll() is None and time.monotonic() < until, said
                time.sleep(0.05)
        # The lease of the process that was killed runs out within a minute.
        ended = 1
        while ended:
            with started(server, tmp_path) as job:
                ended = job.wait(3 * PATIENCE)
            said = (tmp_path / "log").read_text()[-4000:]
            assert not ended or "another process works in this folder" in said, said
            assert not ended or time.monotonic() < until, said
        engine = ct.Engine(QUERIES)
        engine.push(EVENTS)
        wanted = engine.advance(int(EVENTS["ts"].cast("int64").to_numpy().max()))
        sink = ParquetSink(path=server.uri("out"))
        for query in QUERIES:
            assert_same(rows_of(wanted[query.name]), sink.read(query.name), query.name)
