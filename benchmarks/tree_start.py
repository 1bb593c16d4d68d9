"""What a small device must have: a local node's memory, and how soon it is there."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from statistics import median

from benchmarks.figure import Figure, below, plain
from catchment.errors import CatchmentError
from catchment.measure.bed import Bed, Layout, stream, windows
from catchment.nodes.questions import AskStatus, ask
from catchment.nodes.status import NodeStatus

MEGABYTE = 1_000_000
_RATE = 100_000


def figures(quick: bool = False) -> Iterator[Figure]:
    """Several starts, each beside a root that is up already."""
    found = [start(3 if quick else 10, lean=True) for _ in range(2 if quick else 5)]
    starts, sizes = zip(*found, strict=True)
    what = f"an embedded local node, avg by 10 keys, {_RATE:,} events/s; {len(found)} starts"
    yield below(
        "start-up of a local node",
        median(starts),
        "s",
        2.0,
        f"from its start to its first hello at the parent: {min(starts):.2f} to {max(starts):.2f} "
        f"s; {what}",
    )
    yield below(
        "memory of a local node",
        max(sizes) / MEGABYTE,
        "MB",
        150.0,
        f"the largest resident size while it works, installed without the Spark extra; {what}",
    )
    yield plain(
        "memory of a local node beside pandas",
        start(3 if quick else 10, lean=False)[1] / MEGABYTE,
        "MB",
        "the same where the Spark extra is installed: Arrow loads pandas if it finds it",
    )


def start(seconds: int, lean: bool) -> tuple[float, int]:
    """Seconds until a node has said hello, and the bytes it takes while it works."""
    source = stream(1, seconds + 60, _RATE)
    with Bed(Layout({"root": None, "e1": "root"}, {"e1": source}, windows(1))) as bed:
        bed.start("root")
        _until(bed, "root is up", lambda: bool(_children(bed)))
        began = time.monotonic()
        bed.start("e1", lean)
        _until(bed, "hello", lambda: _children(bed)["e1"])
        took = time.monotonic() - began
        largest, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            largest = max(largest, resident(bed.processes["e1"].pid))
            time.sleep(0.2)
        return took, largest


def _children(bed: Bed) -> dict[str, bool]:
    """Whether each child of the root is connected; nothing while the root is not there."""
    try:
        found = ask(bed.address("root"), AskStatus(), NodeStatus, timeout=1.0)
    except CatchmentError:
        return {}
    return {id: child.connected for id, child in (found.children or {}).items()}


def _until(bed: Bed, what: str, happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not happened():
        if time.monotonic() > end:
            raise CatchmentError("a node did not start", given=what, hint=bed.words()[-500:])
        time.sleep(0.005)


def resident(pid: int) -> int:
    """The bytes of memory that a process has."""
    found = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return int(found.stdout.strip() or 0) * 1024
