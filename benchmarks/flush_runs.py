"""Runs behind the figures and plots of flushing: each is made once, and asked for by both."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.flush_workload import HIGH, LOW, SHAPES, arrivals
from catchment.flush import parse
from catchment.flush.bandwidth import Estimate
from catchment.flush.line import SendQueue
from catchment.simulate.arrivals import Arrivals
from catchment.simulate.edge import run
from catchment.simulate.outcome import Outcome, joined, optimal, streaming

EAGER = ("eager(uniform)", "eager(nonuniform)", "eager(empirical)")
LAZY = ("lazy(pessimistic)", "lazy(optimistic)", "lazy(empirical)")
FIXED = (
    "streaming",
    "batching",
    *EAGER,
    *LAZY,
    "lazy(bounded)",
    "hybrid(0.25)",
    "hybrid(0.5)",
    "hybrid(0.75)",
)
AMPLE = 5.0
"""Capacity over what streaming needs, as in the paper's sections 5.1 to 5.3."""
SKIP = 1
"""The first window has no window before it to go by."""
WEB_LOG = "CATCHMENT_WEB_LOG"
"""Where the web log is: a Parquet file with `ts`, `key` (the page) and `host`."""


@dataclass(frozen=True)
class Load:
    """Arrivals at an edge, and the link above it."""

    name: str
    arrivals: Arrivals
    line: SendQueue


@cache
def edge(shape: str, windows: int, per_window: int = LOW, seed: int = 0) -> Arrivals:
    """One edge's arrivals for a query."""
    return arrivals(SHAPES[shape], windows, per_window, seed)


def done(
    given: Arrivals,
    line: SendQueue,
    policy: str,
    eviction: str = "likely",
    *,
    paced: bool = True,
    believed: float | Estimate | None = None,
) -> Outcome:
    """A policy over an edge; by default what the link carries is learnt on the way."""
    if policy == "streaming":
        return streaming(given, line)
    if policy == "optimal":
        return optimal(given, line)
    believed = Estimate() if believed is None else believed
    return run(given, line, parse(policy), eviction, believed=believed, paced=paced)


@cache
def ample(policy: str, eviction: str, paced: bool, wrong: float, windows: int) -> Outcome:
    """The large query on a link of five times what streaming needs: figures 3 and 4."""
    given = edge("large", windows)
    line = SendQueue.steady(AMPLE * given.rate)
    return done(given, line, policy, eviction, paced=paced, believed=wrong)


@cache
def edges(
    shape: str, count: int, high: bool, policy: str, windows: int, capacity: float = AMPLE
) -> Outcome:
    """Several edges under one center, each with its own arrivals and link: figures 6 to 8."""
    rate = HIGH if high else LOW
    found = []
    for seed in range(count):
        given = edge(shape, windows, rate, seed)
        found.append(done(given, SendQueue.steady(capacity * given.rate), policy))
    return joined(found)


@cache
def narrow(policy: str, times: float, windows: int, paced: bool = True) -> Outcome:
    """The large query on a link of so many times what the optimum needs: figure 10."""
    given = edge("large", windows)
    least = float(given.distinct().max()) / given.length
    return done(given, SendQueue.steady(times * least), policy, paced=paced, believed=1.0)


def capacities() -> list[float]:
    """From 1.2 times what the optimum needs to 5 times what streaming does."""
    given = edge("large", 4)
    top = AMPLE * given.rate / (float(given.distinct().max()) / given.length)
    return [float(times) for times in np.geomspace(1.2, top, 7)]


@cache
def hops(policy: str, parts: int, windows: int) -> Outcome:
    """Hopping windows of so many sub-windows: figure 11; capacity as there, 2.1."""
    given = edge("large", windows)
    line = SendQueue.steady(2.1 * float(given.distinct().max()) / given.length)
    return done(given.hopping(parts), line, policy)


def after(first: Arrivals, second: Arrivals) -> Arrivals:
    """One edge's arrivals, and then another's."""
    begin = first.windows * first.length
    return Arrivals.at(
        np.concatenate([first.times, second.times + begin]),
        np.concatenate([first.keys, second.keys]),
        first.length,
        first.windows + second.windows,
    )


def loads(windows: int) -> list[Load]:
    """Every kind of edge: queries of all sizes on links of all widths, and such that change."""
    made = [
        Load(f"{shape}, capacity {times:g}", edge(shape, windows), _link(shape, windows, times))
        for shape in SHAPES
        for times in (5.0, 2.0, 0.5)
    ]
    large = edge("large", windows)
    rate, middle = large.rate, windows // 2 * large.length
    small, half = edge("small", windows // 2), edge("large", windows // 2)
    made += [
        Load("link seven times narrower half-way", large, _step(middle, 5 * rate, 0.7 * rate)),
        Load("link seven times wider half-way", large, _step(middle, 0.7 * rate, 5 * rate)),
        Load("small, then large query", after(small, half), SendQueue.steady(2 * rate)),
        Load("large, then small query", after(half, small), SendQueue.steady(2 * rate)),
        Load(
            "link down for a third of a window",
            large,
            SendQueue(
                [0, middle - 0.1 * large.length, middle + 0.23 * large.length],
                [2 * rate, 0, 2 * rate],
            ),
        ),
    ]
    return made + web_log()


def _step(at: float, before: float, since: float) -> SendQueue:
    return SendQueue([0.0, at], [before, since])


def _link(shape: str, windows: int, times: float) -> SendQueue:
    return SendQueue.steady(times * edge(shape, windows).rate)


def web_log() -> list[Load]:
    """A day of a real web server, by page and by visitor and page, in windows of half an hour."""
    path = os.environ.get(WEB_LOG)
    if not path or not Path(path).is_file():
        return []
    table = pq.read_table(path, columns=["ts", "key", "host"]).to_pandas()
    made = []
    seconds = table["ts"].astype("int64").to_numpy() / 1e6
    last = seconds > seconds.max() - 86400
    for name, keys in (("page", table["key"]), ("visitor and page", table["host"] + table["key"])):
        codes = np.unique(keys[last].to_numpy().astype(str), return_inverse=True)[1]
        times = seconds[last] - seconds[last].min()
        windows = int(times.max() // 1800)
        inside = times < windows * 1800
        given = Arrivals.at(times[inside], codes[inside], 1800.0, windows)
        made += [
            Load(f"web log by {name}, capacity {n:g}", given, SendQueue.steady(n * given.rate))
            for n in (5.0, 1.0)
        ]
    return made
