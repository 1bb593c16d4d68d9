"""A real tree of processes, killed and cut off at random: in the end all is as if nothing was."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import catchment as ct
from catchment.errors import CatchmentError, RefusedError
from catchment.measure.ports import free_port
from catchment.measure.proxy import Proxy
from catchment.sources.generated import Generated
from catchment.testing.compare import assert_same, rows_of
from notes import ask
from patience import PATIENCE
from servers.namespaces import Network, missing_namespaces

FAULTS = int(os.environ.get("CATCHMENT_FAULTS", "20"))
SEED = int(os.environ.get("CATCHMENT_SEED", "1"))

QUERIES = [
    {"name": "mean", "select": ["avg(v)", "count(*)"], "by": "player", "window": "tumbling(1s)"},
    {"name": "slide", "select": ["max(v)"], "window": "sliding(5s, 1s)"},
    {"name": "mid", "select": ["median(v)"], "by": "player", "window": "tumbling(2s)"},
    {
        "name": "top",
        "select": ["top_k(cast(v * 10 AS int), 3)", "mode(player)"],
        "window": "sliding(4s, 2s)",
    },
    {"name": "visits", "select": ["count(*)"], "by": "player", "window": "session(300ms)"},
    {"name": "lots", "select": ["sum(seq)"], "window": "count_tumbling(1000)"},
    {
        "name": "trips",
        "select": ["avg(v)", "count(*)"],
        "by": "player",
        "window": "between(event = 'start', event = 'end')",
    },
]
UPDATES = {"late": "update", "keep": "1h", "timeout": "3s"}
ASKS = {"late": "drop", "timeout": "5m", "quantiles": "ask"}
"""Settings of the job: late events correct results; or nodes are waited for, and keep values and
events between marks back until the root asks for them."""
CLOCKS = {"e1": "+3h", "mid": "-5h"}
"""How wrong the clocks of some nodes are, where libfaketime can be had (`scripts/servers`)."""
PARENTS = {"root": None, "mid": "root", "e1": "mid", "e2": "mid", "e3": "root"}


Mishap = Callable[["Tree", random.Random, dict[str, float]], None]


def source(seed: int, events: int) -> dict[str, Any]:
    return {
        "type": "generator",
        "seed": seed,
        "rate": 500,
        "keys": 4,
        "events": events,
        "per_batch": 100,
        "pace": 250,
        "gaps": ["1s", "2s"],
        "markers": 0.01,
    }


class Tree:
    """The processes of a tree.

    Each child reaches its parent through a proxy of its own; or each is in a namespace.
    """

    def __init__(
        self,
        home: Path,
        events: int,
        stack: ExitStack,
        network: Network | None = None,
        settings: dict[str, Any] = UPDATES,
    ) -> None:
        self.home = home
        self.settings = settings
        self.network = network
        self.ports = {id: free_port() for id in ("root", "mid")}
        self.proxies = {
            id: stack.enter_context(Proxy(("127.0.0.1", self.ports[parent])))
            for id, parent in PARENTS.items()
            if parent is not None and network is None
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.due: list[str] = []
        self.moves = 0
        self.sources = {f"e{n}": source(n, events) for n in (1, 2, 3)}
        self.log = stack.enter_context((home / "log.txt").open("wb"))
        for id in PARENTS:
            (home / f"{id}.yaml").write_text(json.dumps(self.job(id)))

    def job(self, id: str) -> dict[str, Any]:
        nodes = []
        for other, parent in PARENTS.items():
            node: dict[str, Any] = {"id": other, "parent": parent, "engine": "embedded"}
            if other in self.ports:
                node["listen"] = self.address(other)
            if other in self.sources:
                node["source"] = self.sources[other]
            nodes.append(node)
        return {
            "name": "chaos",
            **self.settings,
            "queries": QUERIES,
            "checkpoint": str(self.home / "state"),
            "nodes": nodes,
            "security": None if self.network is None else "none",
            "sinks": [{"type": "parquet", "path": str(self.home / "out")}],
        }

    def address(self, id: str) -> str:
        host = "127.0.0.1" if self.network is None else self.network.address(id)
        return f"{host}:{self.ports[id]}"

    def within(self, id: str) -> list[str]:
        return [] if self.network is None else self.network.within(id)

    def start(self, id: str) -> None:
        command = [*self.within(id), sys.executable, "-m", "catchment.cli.main", "node", id]
        command.append(str(self.home / f"{id}.yaml"))
        if id in self.proxies:
            command += ["--parent", f"127.0.0.1:{self.proxies[id].port}"]
        self.processes[id] = subprocess.Popen(
            command, stdout=self.log, stderr=self.log, env=os.environ | wrong_clock(id)
        )

    def move(self) -> None:
        """Asks for the moves that are due; the root may be down, or the node on its way already."""
        # A command takes long to start on a busy machine: none is started to find nobody there.
        while self.due and self.processes["root"].poll() is None:
            done = self._asked(self.due[0])
            if done is None:
                return
            self.moves += done
            del self.due[0]

    def _asked(self, parent: str) -> bool | None:
        """Whether e2 moves now; None: nobody answers."""
        if self.network is None:
            try:
                ask(self.address("root"), "move node", {"id": "e2", "parent": parent}, timeout=1)
            except RefusedError:
                return False
            except CatchmentError:
                return None
            return True
        command = [*self.within("root"), sys.executable, "-m", "catchment.cli.main", "nodes"]
        command += ["mv", "e2", "--parent", parent, "--root", self.address("root")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = " ".join(done.stderr.split())
        refused = "already" in told or "takes nobody in" in told
        return None if done.returncode and not refused else not done.returncode

    def kill(self, id: str) -> None:
        process = self.processes[id]
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()

    def calm(self) -> None:
        for proxy in self.proxies.values():
            proxy.mend()
        for id in PARENTS if self.network is not None else ():
            self.network.plug(id)
        for id, process in self.processes.items():
            if process.poll() not in (None, 0):
                self.start(id)


def wrong_clock(id: str) -> dict[str, str]:
    """What makes a process's clock wrong; its monotonic clock stays."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None or id not in CLOCKS:
        return {}
    return {"LD_PRELOAD": str(library), "FAKETIME": CLOCKS[id], "DONT_FAKE_MONOTONIC": "1"}


def unplugged(tree: Tree, dice: random.Random, restart: dict[str, float]) -> None:
    """One mishap in a network of namespaces."""
    assert tree.network is not None
    id = dice.choice([*PARENTS])
    kind = dice.choice(["kill", "unplug", "unplug", "plug", "plug", "move"])
    if kind == "move":
        tree.due = ["mid" if tree.moves % 2 else "root"]
    elif kind == "kill" and id not in restart:
        tree.kill(id)
        restart[id] = time.monotonic() + dice.random() * 2
    elif kind == "unplug":
        tree.network.unplug(id)
    else:
        tree.network.plug(id)


def fault(tree: Tree, dice: random.Random, restart: dict[str, float]) -> None:
    """One mishap."""
    id = dice.choice([*PARENTS])
    proxy = tree.proxies.get(id)
    kind = dice.choice(["kill", "kill", "cut", "sever", "delay", "crawl", "hold", "mend", "move"])
    if kind == "move":
        tree.due = ["mid" if tree.moves % 2 else "root"]
    elif kind == "kill" or proxy is None:
        if id not in restart:
            tree.kill(id)
            restart[id] = time.monotonic() + dice.random() * 2
    elif kind == "cut":
        proxy.cut()
    elif kind == "sever":
        proxy.sever(dice.randrange(2000))
    elif kind == "hold":
        proxy.hold()
    elif kind == "delay":
        proxy.delay(dice.random() * 0.2)
    elif kind == "crawl":
        proxy.crawl(dice.choice([500, 5000]))
    else:
        proxy.mend()


@pytest.mark.slow
def test_faults(tmp_path: Path) -> None:
    go_wrong(tmp_path, FAULTS, fault)


@pytest.mark.slow
def test_faults_in_a_network_of_namespaces(tmp_path: Path) -> None:
    reason = missing_namespaces()
    if reason is not None:
        pytest.skip(reason)  # the proxies of the other test cut and hold connections anyway
    with Network([*PARENTS]) as network:
        go_wrong(tmp_path, FAULTS // 4, unplugged, network)


@pytest.mark.slow
def test_values_that_are_asked_for(tmp_path: Path) -> None:
    go_wrong(tmp_path, FAULTS // 2, fault, settings=ASKS)


def go_wrong(
    tmp_path: Path,
    faults: int,
    fault: Mishap,
    network: Network | None = None,
    settings: dict[str, Any] = UPDATES,
) -> None:
    """Runs a tree through faults, then leaves it alone; in the end all must be there."""
    sys.stdout.write(f"CATCHMENT_SEED={SEED} CATCHMENT_FAULTS={FAULTS}\n")
    dice = random.Random(SEED)
    events = 60 * max(faults, 10)  # enough for a full count window
    with ExitStack() as stack:
        tree = Tree(tmp_path, events, stack, network, settings)
        stack.callback(lambda: [tree.kill(id) for id in [*tree.processes]])
        for id in PARENTS:
            tree.start(id)
        restart: dict[str, float] = {}
        for _ in range(faults):
            fault(tree, dice, restart)
            time.sleep(dice.random() * 0.5)
            tree.move()
            for id in [id for id, at in restart.items() if at <= time.monotonic()]:
                del restart[id]
                tree.start(id)
        for id in restart:
            tree.start(id)
        end = time.monotonic() + 2 * PATIENCE
        while tree.processes["root"].poll() != 0:
            tree.calm()
            tree.move()
            assert time.monotonic() < end, (tmp_path / "log.txt").read_text()[-3000:]
            time.sleep(0.5)
    assert tree.moves or faults < 40  # a few faults need not have a move among them
    check(tmp_path / "out", tree)


def check(out: Path, tree: Tree) -> None:
    """Every window once, as one engine computes it over all events."""
    job = ct.load_job({"queries": QUERIES})
    engine = ct.Engine(job.build())
    tables = []
    for made in tree.sources.values():
        held = Generated(**{k: v for k, v in made.items() if k not in ("type", "pace")})
        tables.append(held.generator(0).table(made["events"]))
    engine.push(pa.concat_tables(tables))
    wanted = engine.close()
    for query in job.build():
        table = ds.dataset(out / query.name, format="parquet").to_table()
        held: dict[Any, dict[str, Any]] = {}
        said: set[Any] = set()
        for row in rows_of(table):
            ids = ("window_start", "window_end", "window_index")
            identity = tuple(row.get(c) for c in (*query.by, *ids))
            revision = row.get("revision", 0)
            assert (identity, revision) not in said, f"{query.name}: {identity} twice"
            said.add((identity, revision))
            if identity not in held or held[identity].get("revision", 0) < revision:
                held[identity] = row
        last = [row for row in held.values() if not row.get("retracted")]
        assert all(row["complete"] for row in last), f"{query.name}: not all are complete"
        plain = [
            {n: v for n, v in row.items() if n in wanted[query.name].column_names} for row in last
        ]
        assert_same(
            rows_of(wanted[query.name]), pa.Table.from_pylist(plain), query.name, keys=query.by
        )
