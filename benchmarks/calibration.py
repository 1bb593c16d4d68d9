"""What the parts of the work cost here, against the costs that plans are made by.

Plans use recorded costs, so that they are the same everywhere (`CostModel`). This measures three of
them on this machine, in less than a second, so that one can see whether they still hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import process_time

import numpy as np
import pyarrow as pa

import catchment as ct
from benchmarks.figure import Figure, plain
from catchment.model.costs import RECORDED, CostModel
from catchment.model.window import Window

SLICED = CostModel(margin=1e9)
DIRECT = CostModel(margin=1e-9)
"""Costs by which slices win, and accumulators."""
EVENTS = 10_000
BATCH = 2_000
"""Events that come at once: groups have work to do for each batch, however small."""
KEYS = 10
TIMES = 3
FEW = 4
"""Window types whose edges do not meet."""


def figures(quick: bool = False) -> Iterator[Figure]:
    """Measured costs, each with the recorded one."""
    found = measured_costs(1 if quick else TIMES)
    for name in ("group", "update", "edge"):
        what = f"{CostModel.__name__}.{name}, in events sliced; plans reckon with "
        what += f"{getattr(RECORDED, name):g}"
        yield plain(f"cost of {name}", getattr(found, name), "events", what)


def measured_costs(times: int = TIMES) -> CostModel:
    """The costs of this machine: those of what is sliced by the one way and by the other."""
    dense, sparse = _events(EVENTS, 1000.0), _events(EVENTS, 1.0)
    short, long = [ct.sliding("2s", "1s")], [ct.sliding("20s", "1s")]
    unit = _seconds(dense, short, SLICED, times) / EVENTS
    once = _seconds(dense, short, DIRECT, times) / EVENTS / unit
    often = _seconds(dense, long, DIRECT, times) / EVENTS / unit
    update = max((often - once) / 18, 1e-3)
    group = max(once - 2 * update, 1e-3)
    apart: list[Window] = [ct.tumbling(f"{101 + 11 * n}ms") for n in range(FEW)]
    edges = sum(1e6 / window.periods[0].slide for window in apart)  # for each event: one a second
    more = _seconds(sparse, apart, SLICED, times) - _seconds(sparse, apart, DIRECT, times)
    edge = (more / EVENTS / unit + FEW * (group + update) - 1) / edges
    return CostModel(group, update, max(edge, 1e-3))


def _events(count: int, rate: float) -> pa.Table:
    dice = np.random.default_rng(1)
    times = np.sort(dice.integers(0, int(count / rate * 1e6), count))
    keys, values = dice.integers(0, KEYS, count), dice.random(count)
    return pa.table({"ts": pa.array(times, pa.timestamp("us")), "k": keys, "v": values})


def _seconds(events: pa.Table, windows: Sequence[Window], costs: CostModel, times: int) -> float:
    """Processor time to compute a sum over these windows, the least of a few times."""
    named = enumerate(windows)
    queries = [ct.Query(f"q{n}", ct.sum("v"), by="k", window=window) for n, window in named]
    least = float("inf")
    for _ in range(times):
        engine = ct.Engine(queries, schema=events.schema, costs=costs)
        begin = process_time()
        for at in range(0, EVENTS, BATCH):
            batch = events.slice(at, BATCH)
            engine.push(batch)
            engine.advance(batch["ts"][-1].value)
        engine.close()
        least = min(least, process_time() - begin)
    return least
