"""Events for count windows: nodes whose rates change, and what one node would make of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from msgspec import Struct

from benchmarks.count_simulation import NodeArrivals
from catchment.counting.wire import Columns, dump
from catchment.measure.central import encoded
from catchment.operators.ragged import Ints

SECOND = 1_000_000
TICK = 10_000
"""Events that come in so many microseconds are read, and by `central` sent, at once."""


class LeanEvents(Struct, frozen=True, array_like=True):
    """Events of a node, as `counting` would write them."""

    node: int
    times: Ints
    arrivals: Ints
    data: Columns


@dataclass(frozen=True)
class Load:
    """Nodes and their events: on average a window lasts a second, and rates change every second."""

    nodes: int = 8
    window: int = 1_000_000
    change: float = 0.01
    windows: int = 12
    shape: str = "even"
    """even; unequal (each node has twice the rate of the next); step (one triples half-way);
    burst (one has all its events in a tenth of the time); silent (one has none)."""
    seed: int = 1

    @property
    def text(self) -> str:
        return (
            f"{self.nodes} nodes ({self.shape}), windows of {self.window:,} events, rates change "
            f"by {100 * self.change:g} %, {self.windows} windows"
        )


def streams(load: Load) -> dict[int, NodeArrivals]:
    """The events of every node: times at random by its rate, which is drawn anew each second."""
    dice = np.random.default_rng(load.seed)
    weights = np.ones(load.nodes)
    if load.shape == "unequal":
        weights = weights * 0.5 ** np.arange(load.nodes)
    if load.shape == "silent":
        weights[-1] = 0
    rates = load.window * weights / max(weights.sum(), 1e-9)
    return {node: _stream(load, node, rates[node], dice) for node in range(load.nodes)}


def _stream(load: Load, node: int, rate: float, dice: np.random.Generator) -> NodeArrivals:
    parts: list[Ints] = []
    for second in range(load.windows + 1):
        now = rate * (1 + load.change * dice.uniform(-1, 1))
        if load.shape == "step" and node == 0 and second >= load.windows // 2:
            now *= 3
        count = int(dice.poisson(now))
        width = SECOND
        if load.shape == "burst" and node == 0:
            width = SECOND // 10
        parts.append(second * SECOND + np.sort(dice.integers(0, width, count)))
    times = np.concatenate(parts)
    values = dice.integers(0, 100_000, len(times)).astype(np.float64)
    return NodeArrivals.of(times, {"v": values})


def messages(found: dict[int, NodeArrivals], lean: bool = False) -> Iterator[bytes]:
    """All events, sent as they come: in Arrow record batches, or as `count/` writes pieces."""
    for node, stream in found.items():
        last = int(stream.comes[-1]) if len(stream.comes) else 0
        cuts = np.searchsorted(stream.comes, np.arange(0, last + TICK, TICK)).tolist()
        for low, high in zip(cuts, [*cuts[1:], len(stream.comes)], strict=True):
            if high > low:
                yield _lean(node, stream, low, high) if lean else _batch(stream, low, high)


def _lean(node: int, stream: NodeArrivals, low: int, high: int) -> bytes:
    data = {name: column[low:high] for name, column in stream.data.items()}
    return dump(LeanEvents(node, stream.times[low:high], np.zeros(high - low, np.int64), data))


def _batch(stream: NodeArrivals, low: int, high: int) -> bytes:
    columns = {"ts": stream.times, **stream.data}
    return encoded(pa.record_batch({n: column[low:high] for n, column in columns.items()}))


def truth(found: dict[int, NodeArrivals], window: int) -> tuple[list[float], list[dict[int, int]]]:
    """The sum of each window, and how many events of each node it ends after."""
    times = np.concatenate([s.times for s in found.values()])
    nodes = np.concatenate([np.full(len(s.times), n) for n, s in found.items()])
    values = np.concatenate([s.data["v"] for s in found.values()])
    order = np.argsort(times, kind="stable")  # nodes follow each other, each in its own order
    full = len(order) // window
    sums = values[order][: full * window].reshape(full, window).sum(axis=1)
    of = nodes[order][: full * window].reshape(full, window)
    counts = np.array([[(row == n).sum() for n in found] for row in of]).reshape(full, len(found))
    ends = np.cumsum(counts, axis=0)
    return sums.tolist(), [dict(zip(found, map(int, row), strict=True)) for row in ends]
