"""Spark Connect from where there is no Java: PySpark's package `pyspark-client` alone.

It has to be of the server's version, and the newest Spark has none yet; `make test-oldest` makes an
environment with it, and names its Python.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest

CLIENT = os.environ.get("CATCHMENT_CLIENT")
HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        CLIENT is None, reason="needs an environment with pyspark-client: make test-oldest"
    ),
]


def test_frames_from_where_there_is_no_java(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = Path(pyspark.__file__).parent
    log = tmp_path / "server.log"
    settings = [
        "spark.connect.grpc.binding.address=127.0.0.1",
        f"spark.connect.grpc.binding.port={port}",
        "spark.sql.shuffle.partitions=2",
        "spark.ui.enabled=false",
    ]
    service = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [str(home / "bin/spark-submit"), "--class", service, "--master", "local[2]"]
    command += [word for setting in settings for word in ("--conf", setting)]
    told = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    with log.open("wb") as out:
        server = subprocess.Popen(
            [*command, "spark-internal"],
            env=os.environ | told | {"SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=out,
            stderr=out,
        )
    try:
        until = time.monotonic() + 120
        while not _answers(port):
            assert server.poll() is None and time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(0.2)
        client = str(CLIENT)
        done = subprocess.run(
            [client, str(HERE / "client_job.py"), f"sc://127.0.0.1:{port}", str(tmp_path)],
            env={"PATH": str(Path(client).parent), "PYTHONPATH": str(HERE.parent / "src")},
            capture_output=True,
            text=True,
            timeout=900,
        )
    finally:
        server.terminate()
        server.wait(60)
    assert done.returncode == 0, done.stderr[-4000:] + log.read_text()[-2000:]


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
