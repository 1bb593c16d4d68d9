"""Processes that a benchmark starts: they find the benchmarks, and the package that is measured."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import catchment as ct
from catchment.errors import CatchmentError

ROOT = Path(__file__).resolve().parent.parent
"""The checkout that the benchmarks are in."""


def environment() -> dict[str, str]:
    """This process's environment, with what it imports from on PYTHONPATH."""
    source = Path(ct.__file__).resolve().parent.parent
    paths = [str(ROOT), str(source), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(filter(None, paths)))}


@contextmanager
def importable() -> Iterator[None]:
    """Within the block, whatever is started finds the benchmarks too, such as Spark's workers."""
    before = os.environ.get("PYTHONPATH")
    os.environ.update(environment())
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def python(module: str, *words: object) -> list[str]:
    """The command that runs a module in a process of its own.

    >>> python("benchmarks.million", 1000)[1:]
    ['-m', 'benchmarks.million', '1000']
    """
    return [sys.executable, "-m", module, *map(str, words)]


def gigabytes() -> float:
    """The most memory this process has held."""
    if sys.platform == "linux":
        # A child's ru_maxrss starts at what its parent held when it was forked; this does not.
        return peak_bytes(os.getpid()) / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def peak_bytes(pid: int) -> int:
    """The most memory that a process has held, where Linux tells; it must still be there."""
    status = Path(f"/proc/{pid}/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise CatchmentError(
        "the peak of a process's memory is not known",
        given=f"process {pid}",
        hint="the benchmark needs Linux, and a process that has not ended",
    )
