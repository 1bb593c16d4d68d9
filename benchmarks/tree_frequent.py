"""Exact top_k over many nodes: bytes and round trips, against sending all counts, and every event.

The values of a node follow Zipf's law; they are as frequent at every node, or each node has its own
order of them. Bytes are counted as `tree_ranks` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import catchment as ct
from benchmarks.events import SECOND
from benchmarks.figure import Figure, at_most, below
from benchmarks.tree_ranks import NODES, Talk, central_bytes
from catchment.sinks.base import Delivery

EVENTS = 1_000_000
"""Of a window, at each node."""
VALUES = 100_000
_K = 10


class FrequentBytes(NamedTuple):
    """What was counted of one window, and how."""

    of_counts: float
    """Bytes against those of sending all counts."""
    of_events: float
    rounds: int
    detail: str


def figures(quick: bool = False) -> Iterator[Figure]:
    """Values that are as frequent at every node, and values that are not."""
    for alike in (True, False):
        found = measured(EVENTS // 2 if quick else EVENTS, VALUES, alike)
        of = "" if alike else ", each node another order"
        name = f"bytes of top_k{of}, Zipf"
        yield below(name, found.of_counts, "of all counts'", 0.1, found.detail)
        yield below(f"{name}, events", found.of_events, "of central's", 0.002, found.detail)
        yield at_most(f"round trips of top_k{of}", float(found.rounds), "rounds", 2.0, found.detail)


def measured(events: int, values: int, alike: bool, nodes: int = NODES) -> FrequentBytes:
    """One window of all nodes, by asking and by sending all counts."""
    read = {f"e{n}": [_events(n, events, values, alike)] for n in range(nodes)}
    query = ct.Query("q", ct.top_k("v", _K).alias("top"), window=ct.tumbling("1s"))
    asks, sends = Talk(read, [query]), Talk(read, [query], "send")
    for talk in (asks, sends):
        talk.run()
        _check(talk.results, read)
    central = central_bytes(read)
    detail = (
        f"the {_K} most frequent of {values:,} whole numbers, {nodes} nodes of {events:,} events "
        f"in a window; {asks.bytes:,} bytes of all that members say in this process, both ways, "
        f"against {sends.bytes:,} with all counts and {central:,} of all events in Arrow, zstd"
    )
    return FrequentBytes(asks.bytes / sends.bytes, asks.bytes / central, asks.rounds, detail)


def _events(seed: int, count: int, values: int, alike: bool) -> pa.Table:
    dice = np.random.default_rng(seed)
    weights = 1 / np.arange(1, values + 1)
    ranks = dice.choice(values, count, p=weights / weights.sum())
    order = np.random.default_rng(0 if alike else seed + 1).permutation(values)
    times = np.sort(dice.integers(0, SECOND, count))
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "v": order[ranks]})


def _check(results: list[Delivery], events: dict[str, list[pa.Table]]) -> None:
    """Raises unless the results are those of all values in one place."""
    whole = np.concatenate([table.column("v").to_numpy() for (table,) in events.values()])
    values, times = np.unique(whole, return_counts=True)
    order = np.lexsort((values, -times))[:_K]
    wanted = [{"item": int(values[n]), "count": int(times[n])} for n in order]
    rows = [row for given in results for row in given.results.get("q", pa.table({})).to_pylist()]
    if [row["top"] for row in rows] != [wanted]:
        raise AssertionError(f"{rows} is not {wanted}")
