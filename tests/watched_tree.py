"""A real tree for tests and pictures of the page: five nodes here, of which one can be killed."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import yaml

from catchment.job import load_job
from catchment.measure.ports import free_port
from catchment.nodes.bootstrap import given
from catchment.nodes.start import process_of

QUERIES = [
    {"name": "mean", "select": ["avg(v)", "count(*)"], "by": "player", "window": "tumbling(1s)"},
    {"name": "highest", "select": ["max(v)"], "by": "player", "window": "sliding(4s, 2s)"},
    {"name": "visits", "select": ["count(*)"], "by": "player", "window": "session(300ms)"},
]
_PATIENCE = 240


def job_file(home: Path, **settings: Any) -> Path:
    """A job whose late events are collected, and whose nodes send when slices have ended."""

    def source(seed: int) -> dict[str, Any]:
        pace = {"rate": 1000, "keys": 4, "per_batch": 500, "pace": 1500}
        return {"type": "generator", "seed": seed, "late_share": 0.01, "late_by": "20s", **pace}

    relay = f"127.0.0.1:{free_port()}"
    made = {
        "name": "plant",
        "queries": QUERIES,
        "timeout": "10m",
        "late": "collect",
        "checkpoint": str(home / "state"),
        "sinks": [{"type": "parquet", "path": str(home / "out")}],
        "nodes": [
            {"id": "root", "listen": f"127.0.0.1:{free_port()}"},
            {"id": "hall", "parent": "root", "listen": relay},
            {"id": "press", "parent": "hall", "source": source(1)},
            {"id": "oven", "parent": "hall", "source": source(2)},
            {"id": "yard", "parent": "root", "source": source(3)},
        ],
    }
    path = home / "job.yaml"
    path.write_text(yaml.safe_dump(made | settings))
    return path


class Tree:
    """Nodes that run, in threads; `oven` is a process of its own, so that it can be killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.job = load_job(path)
        self.sites: dict[str, subprocess.Popen[bytes]] = {}
        self._inner: list[tuple[Any, threading.Thread]] = []

    def __enter__(self) -> Tree:
        for node in self.job.nodes:
            if node.id != "oven":
                process = process_of(given(self.job, node.id, engine="embedded"))
                thread = threading.Thread(target=process.run, daemon=True)
                thread.start()
                self._inner.append((process, thread))
            else:
                self.begin(node.id)
        return self

    def begin(self, id: str) -> None:
        command = [sys.executable, "-m", "catchment.cli.main", "node", id, str(self.path)]
        self.sites[id] = subprocess.Popen([*command, "--engine", "embedded"])

    def kill(self, id: str) -> None:
        self.sites[id].kill()
        self.sites[id].wait()

    def __exit__(self, *_: object) -> None:
        for site in self.sites.values():
            site.kill()
            site.wait()
        for process, thread in reversed(self._inner):
            process.stop()
            thread.join(_PATIENCE)
