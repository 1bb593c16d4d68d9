"""Real nodes over links that carry so many bytes a second and no more."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import catchment as ct
from benchmarks.figure import Figure, below, plain
from benchmarks.process import environment, python
from benchmarks.tree_latency import Watch, end_process
from catchment.errors import CatchmentError
from catchment.flush import read
from catchment.measure.ports import HOST, free_port
from catchment.measure.proxy import Proxy
from catchment.nodes.bootstrap import NodeConfig
from catchment.nodes.start import process_of
from catchment.tree.charter import Charter, NodePlace
from catchment.tree.root import Root
from catchment.tree.settings import TreeSettings

LENGTH = 5.0
"""Of a window, in seconds."""
PER_WINDOW = 40_000
CARRIES = 40_000.0
"""Bytes a second of a link."""
_PATIENCE = 90.0
_SETTLED = 2
"""Windows that do not count: in them the link becomes known."""


@dataclass(frozen=True)
class Measured:
    """What real nodes did."""

    late: list[float]
    """Seconds from the end of each window to its results at the root."""
    up: int
    """Bytes that went up all links."""
    events: int
    said: dict[str, dict[str, float | None]]
    """What sites told of their links."""


def figures(quick: bool = False) -> Iterator[Figure]:
    windows = 6 if quick else 12
    for engine in ("embedded",) if quick else ("embedded", "spark"):
        found = {
            policy: run(policy, windows, 1, engine)
            for policy in ("batching", "hybrid(0.25)", "auto")
            if engine == "embedded" or policy != "hybrid(0.25)"
        }
        yield from compared(found, windows, engine)
    if not quick:
        three = {policy: run(policy, windows, 3) for policy in ("batching", "auto")}
        yield from compared(three, windows, "embedded, 3 sites")
    wide = {policy: run(policy, 4, 1, carries=0.0) for policy in ("batching", "auto")}
    yield below(
        "bytes on a link that is wide enough, auto",
        wide["auto"].up / wide["batching"].up,
        "of batching's",
        1.02,
        f"{wide['auto'].up:,} and {wide['batching'].up:,} bytes, 4 windows of {LENGTH:g} s",
    )


def compared(found: dict[str, Measured], windows: int, what: str) -> Iterator[Figure]:
    batching = found["batching"]
    for policy, made in found.items():
        if policy == "batching":
            continue
        yield below(
            f"staleness in real nodes, {policy}, {what}",
            mean(made.late) / mean(batching.late),
            "of batching's",
            0.35 if what == "embedded" else 0.6,
            f"{mean(made.late):.2f} and {mean(batching.late):.2f} s on average after the end of "
            f"windows of {LENGTH:g} s, {len(made.late)} of {windows}; links of "
            f"{CARRIES / 1000:g} kB/s through a proxy, large query, {PER_WINDOW:,} events a window "
            f"and site; the links were found to carry {made.said}",
        )
        yield plain(
            f"bytes in real nodes, {policy}, {what}",
            made.up / batching.up,
            "of batching's",
            f"{made.up:,} and {batching.up:,} bytes up",
        )


def run(
    flush: object, windows: int, sites: int, engine: str = "embedded", carries: float = CARRIES
) -> Measured:
    """Runs sites under a root in this process, each behind a link of its own."""
    ids = [f"e{n}" for n in range(1, sites + 1)]
    watch = Watch()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="catchment-flush-")))
        port = free_port()
        listen = f"{HOST}:{port}"
        charter = _charter(ids, flush)
        given = NodeConfig(
            "root", home / "root", None, listen, None, (watch,), charter, None, "embedded"
        )
        root = process_of(given)
        thread = threading.Thread(target=root.run, daemon=True)
        proxies = []
        for n, id in enumerate(ids):
            proxy = Proxy((HOST, port))
            stack.callback(proxy.close)
            if carries:
                proxy.crawl(carries)
            proxies.append(proxy)
            settings = ["large", windows, PER_WINDOW, n, LENGTH]
            where = [id, home / id, proxy.address, engine]
            command = python("benchmarks.flush_site", *where, *settings)
            child = subprocess.Popen(command, env=environment())
            stack.callback(end_process, child)
        thread.start()
        stack.callback(thread.join, 60)
        stack.callback(root.stop)
        thread.join((windows + 2) * LENGTH + _PATIENCE)
        machine = root.member.machine
        assert isinstance(machine, Root)
        counts, said = dict(machine.counts), dict(root.member.links)
    late = [(at - end) / 1e6 for end, at in sorted(watch.seen.items())][_SETTLED : windows - 1]
    if len(late) < windows - _SETTLED - 2:
        raise CatchmentError("too few windows came", given=f"{len(late)} of {windows}")
    return Measured(late, sum(proxy.up for proxy in proxies), counts.get("events", 0), said)


def _charter(ids: list[str], flush: object) -> Charter:
    settings = TreeSettings(rate=PER_WINDOW / LENGTH, flush=read(flush))
    places = {"root": NodePlace("root", 0, None, False)}
    places |= {id: NodePlace(id, n, "root", True) for n, id in enumerate(ids, start=1)}
    query = ct.Query("mean", ct.avg("v"), by="k", window=ct.tumbling(f"{LENGTH:g}s"))
    return Charter("flush", 1, settings, places).with_queries([query])
