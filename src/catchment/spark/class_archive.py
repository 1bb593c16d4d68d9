"""An archive of the classes that Spark loads when it starts: with it, Spark starts much sooner.

A Java machine that starts Spark spends most of its time reading thousands of classes from some
hundred files, and checking them. It can map them from one archive instead, which it has written
itself before (class data sharing). `python -m catchment.spark.class_archive` makes the archive
once; every session that we start then uses it. An archive of another Java, or of other files, is
passed over by Java itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyspark

_LEAVES = 180
"""Seconds that Java may take to write the archive when it ends."""


def java() -> str | None:
    """The Java that Spark will be started with."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java")) if home else "java")


def archive_path() -> Path:
    """Where the archive is, or would be: one for each Java and each Spark."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    told = f"{os.path.realpath(java() or '')} {Path(pyspark.__file__).parent}"
    digest = hashlib.sha256(told.encode()).hexdigest()[:12]
    return cache / "catchment" / f"spark-{pyspark.__version__}-{digest}.jsa"


def java_options() -> str:
    """What Java is started with, so that it uses the archive; nothing if there is none."""
    path = archive_path()
    if not path.is_file():
        return ""
    # Whatever Java has to say of the archive must not get among results on standard output.
    return f'-XX:SharedArchiveFile="{path}" -Xshare:auto -Xlog:disable -Xlog:all=warning:stderr'


def make() -> Path:
    """Makes the archive, by a small job that uses of Spark what jobs use."""
    from pyspark import SparkContext

    from catchment.spark.session import session, settings

    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / "new.jsa"
        option = "spark.driver.extraJavaOptions"
        plain = settings()[option].replace(java_options(), "")
        log = "-Xlog:disable -Xlog:all=warning:stderr"
        spark = session(cores=1, **{option: f'{plain} -XX:ArchiveClassesAtExit="{made}" {log}'})
        _use(spark, Path(folder))
        gateway: Any = SparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_LEAVES)
        made.chmod(0o600)
        made.replace(path)
    return path


def _use(spark: pyspark.sql.SparkSession, folder: Path) -> None:
    """A streaming job and a batch job over a few events."""
    import pyarrow as pa

    import catchment as ct
    from catchment.sinks.memory import Memory
    from catchment.sources.generated import Generated

    query = ct.Query("n", ct.count(), by="player", window=ct.tumbling("1s"))
    source = Generated(events=1_000, per_batch=500)
    checkpoint = str(folder / "state")
    ct.Job(queries=[query], source=source, checkpoint=checkpoint, sinks=[Memory()]).start(
        spark
    ).wait()
    events = pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC")), "player": ["a"]})
    ct.run(events, [query], spark=spark)


if __name__ == "__main__":
    if archive_path().is_file():
        sys.exit()
    sys.stderr.write("Making an archive of Spark's classes, so that it starts sooner (once) ...\n")
    try:
        make()
    except (OSError, subprocess.TimeoutExpired) as error:
        # Spark starts without it, too.
        sys.stderr.write(f"catchment: no archive was made: {error}\n")
