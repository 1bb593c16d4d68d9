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

import pyarrow as pa
import pyspark

_LONGEST = 600
"""Seconds that it may take to make the archive."""
_QUIET = "-Xlog:disable -Xlog:all=warning:stderr"
"""Whatever Java has to say of the archive must not get among results on standard output."""


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
    return f'-XX:SharedArchiveFile="{path}" -Xshare:auto {_QUIET}'


def make() -> Path:
    """Makes the archive, by a small job that uses of Spark what jobs use."""
    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / "new.jsa"
        # Java writes the archive when it ends, after the process that started it. It has that
        # process's standard output, so this waits for both.
        command = [sys.executable, "-m", "catchment.spark.class_archive", str(made)]
        subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=_LONGEST)
        made.chmod(0o600)
        made.replace(path)
    return path


def _use(made: Path) -> None:
    """Runs a streaming job and a batch job over a few events, with a Java that will write it."""
    from catchment.functions.built_in import count
    from catchment.model.query import Query
    from catchment.model.rules import EventRules
    from catchment.sinks.memory import Memory
    from catchment.sources.generated import Generated
    from catchment.spark.batch import prepared
    from catchment.spark.job import Job
    from catchment.spark.session import session, settings
    from catchment.windows import tumbling

    option = "spark.driver.extraJavaOptions"
    archiving = f'{settings()[option]} -XX:ArchiveClassesAtExit="{made}" {_QUIET}'
    spark = session(cores=1, **{option: archiving})
    query = Query("n", count(), by="player", window=tumbling("1s"))
    source = Generated(events=1_000, per_batch=500)
    state = str(made.parent / "state")
    job = Job(queries=[query], source=source, checkpoint=state, sinks=[Memory()])
    job.start(spark).wait()
    events = pa.table({"ts": pa.array([1], pa.timestamp("us", "UTC")), "player": ["a"]})
    prepared(events, [query], EventRules("ts"), spark).run()
    spark.stop()


def main(arguments: list[str]) -> None:
    if arguments:
        _use(Path(arguments[0]))
    elif not archive_path().is_file():
        said = "Making an archive of Spark's classes, so that it starts sooner (once) ...\n"
        sys.stderr.write(said)
        try:
            make()
        except (OSError, subprocess.SubprocessError) as error:
            # Spark starts without it, too.
            sys.stderr.write(f"catchment: no archive was made: {error}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
