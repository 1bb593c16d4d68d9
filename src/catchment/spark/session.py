"""A Spark session with sound defaults, and how our code reaches its executors."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from catchment import errors
from catchment.errors import CatchmentError
from catchment.spark.class_archive import java, java_options
from catchment.spark.types import for_spark, spark_schema

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


_LOCAL_SERVER = "SPARK_LOCAL_REMOTE"
"""PySpark sets this where it has started the server of Spark Connect itself."""
_LOGS_STAY = 86_400
"""Seconds for which the log of a session stays, so that a failure can be looked into."""
_TRIES = 4
"""A task whose worker dies is tried again, as it would be on a cluster."""


class SparkError(CatchmentError, RuntimeError):
    """Spark cannot be started or used."""


def log_file() -> Path:
    """Where the logs of a session that we start go."""
    return Path(tempfile.gettempdir()) / f"catchment-spark-{os.getpid()}.log"


def remove_old_logs() -> None:
    """Removes the logs of sessions that ended, or wrote nothing, for a day."""
    for path in log_file().parent.glob("catchment-spark-*.log*"):
        with contextlib.suppress(OSError):  # another's, or gone just now
            if time.time() - path.stat().st_mtime > _LOGS_STAY:
                path.unlink()


def settings(cores: int | None = None) -> dict[str, str]:
    """What a session of ours is started with."""
    log4j = Path(__file__).with_name("log4j2.properties")
    logging = f"-Dlog4j2.configurationFile=file:{log4j} -Dcatchment.log={log_file()}"
    return {
        "spark.master": f"local[{cores or '*'},{_TRIES}]",
        "spark.app.name": "catchment",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"{logging} {java_options()}",
        "spark.python.daemon.module": "catchment.spark.daemon",
        # Over TCP each task waits 40 ms for an acknowledgement that the kernel holds back.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        **streaming(),
    }


def streaming() -> dict[str, str]:
    """What streaming jobs need of a session, whoever started it."""
    return {
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # The frontier is ours: a batch without new data has nothing to do.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }


def session(cores: int | None = None, **options: str) -> SparkSession:
    """The session there is, or a new local one on all cores (or so many)."""
    active = SparkSession.getActiveSession()
    if active is not None and cores is None and not options:
        return active
    if java() is None:
        raise SparkError(
            "Spark needs Java 17 or later, and none was found",
            given=os.environ.get("JAVA_HOME", "java"),
            hint="install one (Debian, Ubuntu: apt install openjdk-17-jre-headless) "
            "or set JAVA_HOME",
        )
    chosen = settings(cores) | options
    use_worker_python(local=chosen["spark.master"].startswith("local"))
    builder: Any = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    remove_old_logs()
    with _errors_to(log_file()):
        made: SparkSession = builder.getOrCreate()
    return made


_SCRIPT = Path(__file__).with_name("worker-python")
"""The Python of workers on this machine: ours, with PySpark from the folder where it is installed.

Spark puts a zip archive of PySpark in front of everything. Python keeps no compiled code of what it
imports from an archive, so every worker would compile PySpark again, for a second.
"""


def use_worker_python(local: bool) -> None:
    """Workers must run what we run, or they would unpickle with another Python.

    What the user has chosen stays. Executors on other machines do not have our environment, which
    the script needs.
    """
    if os.environ.get("PYSPARK_PYTHON", str(_SCRIPT)) not in (str(_SCRIPT), sys.executable):
        return
    if not local or not os.access(_SCRIPT, os.X_OK):  # some tools forget such permissions
        os.environ["PYSPARK_PYTHON"] = sys.executable
        return
    os.environ["PYSPARK_PYTHON"] = str(_SCRIPT)
    os.environ["CATCHMENT_PYTHON"] = sys.executable
    os.environ["CATCHMENT_PYSPARK"] = str(Path(pyspark.__file__).parent.parent)


@contextlib.contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """The JVM, and its workers, take their standard error from us: here it is the log."""
    sys.stderr.flush()
    ours = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        os.close(log)


_CORES: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()
"""How many tasks run at once, of sessions that were asked."""


def cores_of(spark: SparkSession) -> int:
    """How many tasks run at once.

    Where no setting says so, Spark tells it by the partitions that it makes by itself.
    """
    told = spark.conf.get("spark.default.parallelism", None)
    local = re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", _master(spark))
    if told or local:
        return max(1, int(told or (local or "1")[1]))
    if spark not in _CORES:
        numbers = spark.range(1 << 12).select(sf.spark_partition_id().alias("n")).toArrow()
        _CORES[spark] = len(numbers.column("n").unique())
    return _CORES[spark]


def is_connect(spark: SparkSession) -> bool:
    """Whether the session talks to a server of Spark Connect, which has the driver."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(spark: SparkSession) -> bool:
    """Whether executors are threads of a driver on this machine, and see the files that we see."""
    if is_connect(spark) and _LOCAL_SERVER not in os.environ:
        return False
    master = _master(spark)
    return master == "local" or master.startswith("local[")


def _master(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.master", ""))


@contextlib.contextmanager
def configured(spark: SparkSession, needed: dict[str, str]) -> Iterator[None]:
    """A session with settings, which is left as it was; what is set so already is not touched."""
    with _CONFIGURING:
        before = spark.conf.getAll
        changed = {key: value for key, value in needed.items() if before.get(key) != value}
        for key, value in changed.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key in changed:
                if key in before:
                    spark.conf.set(key, before[key])
                else:
                    spark.conf.unset(key)


_CONFIGURING = threading.RLock()
"""Two threads that start queries in one session must not restore each other's settings."""


_SHIPPED: WeakSet[SparkSession] = WeakSet()
"""Sessions whose executors have this package."""
_SHIPPING = threading.Lock()
"""Sessions of one application ship the same archive: Spark refuses another one of its name."""


def ship(spark: SparkSession) -> None:
    """Brings this package to executors on other machines, where nobody installed it.

    `ct.run`, `ct.windows` and jobs do so by themselves. The format `catchment` has no session at
    hand, so whoever uses it on a cluster does this first.
    """
    if is_local(spark):
        return
    with _SHIPPING:
        if spark not in _SHIPPED:
            spark.addArtifacts(_package(), pyfile=True)
            _SHIPPED.add(spark)


@cache
def _package() -> str:
    """An archive of this package, and of the one by which Spark finds the format, made once."""
    archive = Path(tempfile.mkdtemp(prefix="catchment-")) / "catchment-package.zip"
    above = Path(errors.__file__).parent.parent
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for package in ("catchment", "pyspark_catchment"):
            for path in sorted((above / package).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    made.write(path, path.relative_to(above))
    return str(archive)


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """An Arrow table as a DataFrame, with all of its rows, in types that Spark has.

    Spark passes over everything that follows an empty chunk of a table.
    """
    table = table.cast(for_spark(table.schema)).combine_chunks()
    frame: DataFrame = spark.createDataFrame(table, spark_schema(table.schema))
    return frame
