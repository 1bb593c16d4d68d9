"""From the last event of a window to its result at the root, by how many levels it climbs."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import PrivateAttr

import catchment as ct
from benchmarks.events import SECOND
from benchmarks.figure import Figure, plain
from benchmarks.process import environment, python
from catchment.engine.times import now
from catchment.errors import CatchmentError
from catchment.measure.ports import HOST, free_port
from catchment.nodes.bootstrap import NodeConfig
from catchment.nodes.start import process_of
from catchment.sinks.base import Delivery, Sink
from catchment.tree.charter import Charter, NodePlace
from catchment.tree.settings import TreeSettings

GAP = 1000
"""Microseconds between events, which is also between a window's last event and its end."""
_PATIENCE = 180
"""Seconds beyond the events' own time: several Sparks take long to start on few cores."""
_COUNTED = 40
"""The last windows, which count: those before wait for all nodes to start, above all on Spark."""
_STARTING = {"embedded": 2, "spark": 160}
"""Windows of half a second until all have started and caught up."""


class Watch(Sink):
    """Notes when each window's results come."""

    on_driver: ClassVar[bool] = True

    type: Literal["watch"] = "watch"
    _seen: dict[int, int] = PrivateAttr(default_factory=dict)

    @property
    def seen(self) -> dict[int, int]:
        """When each window came, by its end."""
        return self._seen

    def check(self) -> None:
        return

    def write(self, delivery: Delivery) -> None:
        at = now()
        for table in delivery.results.values():
            ends = table.column("window_end").cast(pa.int64()).to_numpy()
            for end in np.unique(ends).tolist():
                self._seen.setdefault(end, at)

    def close(self) -> None:
        return

    @property
    def delays(self) -> list[float]:
        """Milliseconds from the last event of each window to its result, in order of time."""
        return [(at - (end - GAP)) / 1000 for end, at in sorted(self._seen.items())]


def figures(quick: bool = False) -> Iterator[Figure]:
    """For a root that has a site right below it, and further down; on Spark only in a full run."""
    for engine in ("embedded",) if quick else ("embedded", "spark"):
        counted = 10 if quick else _COUNTED
        for levels in (1, 2, 3):
            delays = climb(levels, counted + _STARTING[engine], engine)[-counted:]
            yield plain(
                f"latency of a window, {levels} link{'s' if levels > 1 else ''}, {engine}",
                median(delays),
                "ms",
                f"every node {engine}, one site, an event each {GAP} us as the clock goes, avg by "
                f"10 keys over windows of 500 ms; from the last event to the result at the root; "
                f"95th percentile {quantiles(delays, n=20)[-1]:.0f} ms of {len(delays)} windows",
            )


def climb(levels: int, windows: int, engine: str) -> list[float]:
    """Runs a chain of nodes under a root in this process; the delay of each window."""
    path = ["root", *(f"m{n}" for n in range(1, levels)), "site"]
    ports = {id: free_port() for id in path[:-1]}
    events = windows * 500_000 // GAP
    watch = Watch()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="catchment-climb-")))
        listen = f"{HOST}:{ports['root']}"
        given = NodeConfig(
            "root", home / "root", None, listen, None, (watch,), _charter(path), None, engine
        )
        root = process_of(given)
        thread = threading.Thread(target=root.run, daemon=True)
        thread.start()
        stack.callback(thread.join, 60)
        stack.callback(root.stop)
        for parent, id in pairwise(path):
            at = f"{HOST}:{ports[id]}" if id in ports else ""
            up = f"{HOST}:{ports[parent]}"
            command = python("benchmarks.tree_clock", id, home / id, up, at, events, engine)
            child = subprocess.Popen(command, env=environment())
            stack.callback(end_process, child)
        thread.join(windows / 2 + _PATIENCE)
    if len(watch.delays) < windows // 2:
        raise CatchmentError("too few windows came", given=f"{len(watch.delays)} of {windows}")
    return watch.delays


def end_process(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.terminate()
        time.sleep(0.1)
        child.kill()
    child.wait(10)


def _charter(path: list[str]) -> Charter:
    settings = TreeSettings(rate=SECOND / GAP)
    places = {
        id: NodePlace(id, n, path[n - 1] if n else None, id == path[-1])
        for n, id in enumerate(path)
    }
    query = ct.Query("mean", ct.avg("v"), by="k", window=ct.tumbling("500ms"))
    return Charter("climb", 1, settings, places).with_queries([query])
