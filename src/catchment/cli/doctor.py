"""`catchment doctor`: what this machine has of what jobs need, and what to do where it lacks.

Without a job, the machine is examined: Python, packages, Java, clock, disk, memory and the ports
that commands use. With a job file, also all that the job names: its folders, the ports of its
nodes, its sources and sinks. A finding is fine, a warning (something is not as it should be, or a
package that may not be needed is not there), or a failure (jobs, or this job, cannot run).
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer
from msgspec import Struct

from catchment.cli.live import span
from catchment.cli.needs import JAVA, java_path, java_version
from catchment.durable.files import LocalFiles, write_whole
from catchment.errors import EXTRAS, CatchmentError
from catchment.model import records

if TYPE_CHECKING:
    from catchment.job import JobModel

State = Literal["fine", "warning", "failure"]

_PACKAGES = {
    "pyspark": "pyspark",
    "confluent_kafka": "confluent-kafka",
    "paho": "paho-mqtt",
    "psycopg": "psycopg",
    "prometheus_client": "prometheus-client",
    "starlette": "starlette",
    "matplotlib": "matplotlib",
}
"""A package of each extra, by the name that is imported, and as it is installed."""
_PORT = 4600
_SPACE = 1 << 30
"""Bytes that a disk should have left."""
_SYNC = 0.1
"""Seconds that it may take until a small file is safe on disk."""
_AHEAD = 2.0
"""Seconds that the clock of a disk may differ from ours."""
_UNSYNCHRONIZED = 5
"""What Linux' adjtimex returns when nobody keeps the clock right."""
_MARKS = {"fine": "ok  ", "warning": "warn", "failure": "FAIL"}


class Finding(Struct, frozen=True):
    """What was found of one thing."""

    what: str
    state: State
    text: str
    hint: str | None = None


def run(path: Path | None, start: bool, as_json: bool) -> bool:
    """Examines, prints, and says whether nothing has failed."""
    found = list(examine(path, start))
    if as_json:
        typer.echo(json.dumps(records.plain(found)))
    else:
        for one in found:
            hint = f"; {one.hint}" if one.hint else ""
            typer.echo(f"{_MARKS[one.state]}  {one.what}: {one.text}{hint}")
    return all(one.state != "failure" for one in found)


def examine(path: Path | None = None, start: bool = False) -> Iterator[Finding]:
    """All that is found, one after the other."""
    from catchment.job import load_job

    job = None if path is None else load_job(path)
    yield _python()
    yield from _packages()
    yield _loops()
    yield from _java(on_spark=job is not None and not job.nodes)
    if start:
        yield _spark()
    yield _clock()
    yield _memory()
    yield from _folder("temporary files", Path(tempfile.gettempdir()))
    yield _port("port of the page", "127.0.0.1", _PORT, "say --port, or --ui-port")
    if path is not None and job is not None:
        yield from _of_job(path, job)


def _python() -> Finding:
    held = ".".join(map(str, sys.version_info[:3]))
    import catchment as ct

    return Finding("catchment", "fine", f"{ct.__version__}, Python {held}")


def _packages() -> Iterator[Finding]:
    for imported, name in _PACKAGES.items():
        extra = EXTRAS[imported]
        try:
            yield Finding(f"extra {extra}", "fine", f"{name} {version(name)}")
        except PackageNotFoundError:
            hint = f"where it is needed: pip install 'catchment[{extra}]'"
            yield Finding(f"extra {extra}", "warning", f"{name} is not installed", hint)


def _loops() -> Finding:
    from catchment.native import SWITCH, compiled

    if compiled() is not None:
        return Finding("compiled loops", "fine", "used where there are many rows")
    if os.environ.get(SWITCH) == "0":
        return Finding("compiled loops", "warning", f"not used, as {SWITCH} says")
    hint = "where sketches and many functions take long: python -m catchment.native.build"
    return Finding("compiled loops", "warning", "not compiled; NumPy does the same", hint)


def _java(on_spark: bool) -> Iterator[Finding]:
    java = java_path()
    found = java_version(java)
    wrong: State = "failure" if on_spark else "warning"
    hint = f"jobs on Spark need Java {JAVA} or later: install it, or set JAVA_HOME"
    if found is None:
        yield Finding("Java", wrong, f"{java} cannot be run", hint)
    elif found < JAVA:
        yield Finding("Java", wrong, f"{java} is Java {found}", hint)
    else:
        yield Finding("Java", "fine", f"{java}, version {found}")


def _spark() -> Finding:
    from catchment.cli.needs import need_spark

    began = time.monotonic()
    try:
        need_spark()
        from catchment.spark.session import session

        spark = session(None)
        try:
            counted = spark.range(1_000_000).count()
        finally:
            spark.stop()
    except Exception as error:  # noqa: BLE001  (whatever keeps Spark from starting is to be told)
        return Finding("Spark", "failure", " ".join(str(error).split())[:300])
    text = f"started, counted {counted:,} and stopped within {span(time.monotonic() - began)}"
    return Finding("Spark", "fine", text)


def _clock() -> Finding:
    """Whether somebody keeps the clock right. Linux tells; elsewhere nobody is asked."""
    try:
        adjtimex = ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):
        return Finding("clock", "warning", "it is not known whether it is kept right")
    state = adjtimex(ctypes.create_string_buffer(512))  # all zero: only ask
    if state == _UNSYNCHRONIZED:
        hint = "run an NTP client: lateness and idle times are by the clock"
        return Finding("clock", "warning", "Linux says that nobody keeps it right", hint)
    if state < 0:
        return Finding("clock", "warning", "it is not known whether it is kept right")
    return Finding("clock", "fine", "it is kept right, says Linux")


def _memory() -> Finding:
    try:
        size = os.sysconf("SC_PAGE_SIZE")
        total = size * os.sysconf("SC_PHYS_PAGES")
        free = size * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError):
        return Finding("memory", "warning", "the system does not tell")
    cores = os.cpu_count() or 1
    return Finding(
        "memory", "fine", f"{_gib(total)} and {cores} cores; {_gib(free)} are not used at all"
    )


def _folder(what: str, folder: Path) -> Iterator[Finding]:
    """Whether files can be written there, how fast they are safe, and by which clock."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    name = f"{what} ({folder})"
    try:
        began = time.time()
        with tempfile.TemporaryDirectory(dir=there, prefix="catchment-") as probe:
            write_whole(LocalFiles(), probe, "probe", b"0" * 4096)
            took = time.time() - began
            ahead = os.stat(Path(probe, "probe")).st_mtime - began
        free = shutil.disk_usage(there).free
    except OSError as error:
        text = f"nothing can be written: {(error.strerror or str(error)).lower()}"
        yield Finding(name, "failure", text)
        return
    text = f"{_gib(free)} free, 4 KiB are safe after {1e3 * took:.1f} ms"
    if free < _SPACE:
        yield Finding(name, "warning", text, "make room: a full disk stops jobs")
    elif took > _SYNC:
        hint = "each step of a job waits for that; use a disk that is faster"
        yield Finding(name, "warning", text, hint)
    else:
        yield Finding(name, "fine", text)
    if abs(ahead) > _AHEAD:
        hint = "set the clocks of this host and of its file server"
        yield Finding(name, "warning", f"its clock differs by {span(ahead)} from this one", hint)


def _port(what: str, host: str, port: int, hint: str) -> Finding:
    name = f"{what} ({host}:{port})"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        return Finding(name, "warning", (error.strerror or str(error)).lower(), hint)
    return Finding(name, "fine", "free")


def _of_job(path: Path, job: JobModel) -> Iterator[Finding]:
    """What the job names: folders, ports, sources and sinks."""
    from catchment.cli import check

    if job.checkpoint is not None and "://" not in job.checkpoint:
        yield from _folder("checkpoint", Path(job.checkpoint))
    if job.metrics is not None:
        yield _port("port of metrics", "127.0.0.1", job.metrics, "the job may be running")
    for node in job.nodes:
        if node.home is not None:
            yield from _folder(f"folder of {node.id}", Path(node.home))
        if node.listen is not None:
            host, _, port = node.listen.rpartition(":")
            yield _port(f"port of {node.id}", host.strip("[]"), int(port), "it may be running")
    numbers = range(len(job.nodes))
    for place, source in check.sources(job, numbers):
        yield _checked(f"{place} ({check.summary(source)})", source.check)
    for number, sink in enumerate(job.sinks):
        yield _checked(f"sinks[{number}] ({check.summary(sink)})", sink.check)
    found = check.inspect(path)
    for mistake in found.mistakes:
        yield Finding("job file", "failure", mistake.text)
    if not found.mistakes:
        yield Finding("job file", "fine", f"{found.queries} queries fit the events")


def _checked(name: str, check: Callable[[], None]) -> Finding:
    began = time.monotonic()
    try:
        check()
    except CatchmentError as error:
        return Finding(name, "failure", " ".join(str(error).split()))
    return Finding(name, "fine", f"answers within {span(time.monotonic() - began)}")


def _gib(size: int) -> str:
    return f"{size / (1 << 30):,.1f} GiB"
