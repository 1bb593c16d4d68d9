"""A tree of embedded processes on this machine, every link through a proxy that counts bytes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catchment.errors import CatchmentError
from catchment.measure.ports import HOST, free_port
from catchment.measure.proxy import Proxy

JobForm = dict[str, Any]
"""A section of a job file."""
_LEAN = """
import sys
class NoPandas:
    def find_spec(self, name, *_):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoPandas())
from catchment.cli.main import main
main()
"""


@dataclass(frozen=True)
class Layout:
    """Who is whose child, what the leaves read, and what is asked."""

    parents: Mapping[str, str | None]
    """A node comes after its parent; the root is the first."""
    sources: Mapping[str, JobForm]
    queries: Sequence[JobForm]
    options: JobForm = field(default_factory=dict)
    """Other options of the job file."""

    @property
    def root(self) -> str:
        return next(id for id, parent in self.parents.items() if parent is None)


@dataclass(frozen=True)
class Traffic:
    """Bytes that passed a link, as the payload of TCP."""

    up: int
    down: int

    @property
    def both(self) -> int:
        return self.up + self.down


class Bed:
    """The processes of a tree, each child behind its own proxy; all of them end with the block."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.home = Path(tempfile.mkdtemp(prefix="catchment-tree-"))
        inner = {parent for parent in layout.parents.values() if parent is not None}
        self.ports = {id: free_port() for id in layout.parents if id in inner}
        self.proxies = {
            id: Proxy((HOST, self.ports[parent]))
            for id, parent in layout.parents.items()
            if parent is not None
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.job = self.home / "job.yaml"
        self.job.write_text(json.dumps(self._job()))
        self._log = (self.home / "log.txt").open("wb")

    def __enter__(self) -> Bed:
        return self

    def __exit__(self, *_: object) -> None:
        for id in [*self.processes]:
            self.kill(id)
        for proxy in self.proxies.values():
            proxy.close()
        self._log.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def _job(self) -> JobForm:
        nodes = []
        for id, parent in self.layout.parents.items():
            node: JobForm = {"id": id, "parent": parent, "engine": "embedded"}
            if id in self.ports:
                node["listen"] = self.address(id)
            if id in self.layout.sources:
                node["source"] = self.layout.sources[id]
            nodes.append(node)
        return {
            "name": "bed",
            "queries": [*self.layout.queries],
            "nodes": nodes,
            "checkpoint": str(self.home / "state"),
            "sinks": [{"type": "parquet", "path": str(self.out)}],
            **self.layout.options,
        }

    @property
    def out(self) -> Path:
        """Where results go."""
        return self.home / "out"

    def address(self, id: str) -> str:
        return f"{HOST}:{self.ports[id]}"

    def start(self, id: str, lean: bool = False) -> None:
        """Starts a node, or starts it again; a lean one finds no pandas, as without Spark."""
        how = ["-c", _LEAN] if lean else ["-m", "catchment.cli.main"]
        command = [sys.executable, *how, "node", id, str(self.job)]
        if id in self.proxies:
            command += ["--parent", self.proxies[id].address]
        self.processes[id] = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def kill(self, id: str) -> None:
        """Ends a node without a word of warning to it."""
        process = self.processes[id]
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)

    @property
    def done(self) -> bool:
        """Whether the root has everything; raises when a node has failed."""
        for id, process in self.processes.items():
            if process.poll() not in (None, 0, -signal.SIGKILL):
                raise CatchmentError(
                    "a node has ended",
                    given=f"{id}, exit code {process.returncode}",
                    hint=self.words()[-500:],
                )
        return self.processes[self.layout.root].poll() == 0

    def words(self) -> str:
        """What the nodes have said."""
        return (self.home / "log.txt").read_text(errors="replace")

    def begin(self) -> None:
        """Starts all nodes."""
        for id in self.layout.parents:
            self.start(id)

    def run(self, seconds: float) -> dict[str, Traffic]:
        """Starts all, waits until all is done, and gives the bytes of each link."""
        self.begin()
        end = time.monotonic() + seconds
        while not self.done:
            if time.monotonic() > end:
                raise CatchmentError(
                    "a tree did not end in time", given=f"{seconds:.0f} s", hint=self.words()[-500:]
                )
            time.sleep(0.05)
        return self.traffic()

    def traffic(self) -> dict[str, Traffic]:
        return {id: Traffic(proxy.up, proxy.down) for id, proxy in self.proxies.items()}


def stream(seed: int, seconds: int, rate: int, keys: int = 10, pace: float = 1.0) -> JobForm:
    """A generator of some seconds of event time, `pace` of them in a second of the clock."""
    return {
        "type": "generator",
        "seed": seed,
        "keys": keys,
        "rate": rate,
        "events": seconds * rate,
        "per_batch": rate,
        "pace": rate * pace,
        "string_keys": False,
        "markers": 0.0,
    }


def windows(count: int, select: str = "avg(v)") -> list[JobForm]:
    """Tumbling windows of 1 to 10 whole seconds, by key: the slices are of 1 s, however many."""
    return [
        {"name": f"q{n}", "select": [select], "by": "player", "window": f"tumbling({n % 10 + 1}s)"}
        for n in range(count)
    ]
