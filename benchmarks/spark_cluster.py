"""A Spark standalone cluster on this machine: a master and workers as processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from benchmarks.process import importable
from catchment.measure.ports import HOST, free_port
from catchment.spark.session import SparkError, session

_PATIENCE = 240.0


@contextmanager
def cluster(workers: int = 2, cores: int = 1, **options: str) -> Iterator[SparkSession]:
    """A session on a cluster of its own, for tests and benchmarks; all of it ends with the block.

    The executors' Python cannot import this package by itself: it must reach them. What Spark runs
    in Python beside the driver, such as the planning of a stream, finds it where the driver does.
    """
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="catchment-cluster-") as folder:
        stack.enter_context(importable())
        stack.enter_context(_workers_run(_python_without_us(Path(folder, "python"))))
        port = free_port()
        master = f"spark://{HOST}:{port}"
        common = ["--host", HOST, "--webui-port", "0"]
        _process(stack, folder, "master", ["master.Master", "--port", str(port), *common])
        _wait_for(port)
        for number in range(workers):
            sizes = ["--cores", str(cores), "--memory", "1g"]
            work = ["--work-dir", f"{folder}/work-{number}"]
            command = ["worker.Worker", master, *sizes, *work, *common]
            _process(stack, folder, f"worker-{number}", command)
        active = SparkSession.getActiveSession()
        if active is not None:
            active.stop()
        total = workers * cores
        made = session(
            None,
            **{
                "spark.master": master,
                "spark.executor.memory": "512m",
                "spark.cores.max": str(total),
                "spark.default.parallelism": str(total),
                "spark.python.daemon.module": "pyspark.daemon",
                "spark.executor.extraJavaOptions": "",
                **options,
            },
        )
        stack.callback(made.stop)
        yield made


def _python_without_us(place: Path) -> str:
    """A Python that has all packages of this one but Catchment, as on machines of a cluster.

    Packages are found in our folder of packages. Files there that name other folders, as that of a
    checkout does, are not followed: Python follows them in its own folder alone.
    """
    venv.create(place, symlinks=True)
    own = sysconfig.get_path("purelib", vars={"base": str(place)}, scheme="posix_prefix")
    Path(own, "packages.pth").write_text(str(Path(pyspark.__file__).parent.parent))
    return str(place / "bin/python")


@contextmanager
def _workers_run(python: str) -> Iterator[None]:
    """Spark takes the Python of workers from the environment of the driver."""
    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = python
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYSPARK_PYTHON"]
        else:
            os.environ["PYSPARK_PYTHON"] = before


def _process(stack: ExitStack, folder: str, name: str, command: list[str]) -> None:
    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_NO_DAEMONIZE": "1",
    }
    environment.pop("PYTHONPATH", None)
    log = os.open(f"{folder}/{name}.log", os.O_WRONLY | os.O_CREAT, 0o600)
    stack.callback(os.close, log)
    started = subprocess.Popen(
        [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{command[0]}", *command[1:]],
        env=environment,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    stack.callback(started.wait)
    stack.callback(started.terminate)


def _wait_for(port: int) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.1)
    raise SparkError("the master of the cluster does not answer", given=f"{HOST}:{port}")
