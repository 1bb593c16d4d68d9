"""The first keys of each window over many nodes: bytes and round trips, against sending all keys.

The keys of a node follow Zipf's law; they are as frequent at every node, or each node has its own
order of them. Bytes are counted as `tree_ranks` does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import catchment as ct
from benchmarks.events import SECOND
from benchmarks.figure import Figure, at_most, below
from benchmarks.tree_ranks import NODES, Talk
from catchment.sinks.base import Delivery

EVENTS = 100_000
"""Of a window, at each node."""
WINDOWS = 10
KEYS = 20_000
_FIRST = 10


def figures(quick: bool = False) -> Iterator[Figure]:
    """By a sum and by a count, of keys that are as frequent at every node, and that are not."""
    for by, alike, bar in (("sum", True, 0.1), ("count", True, 0.1), ("sum", False, 0.25)):
        windows = 4 if quick else WINDOWS
        share, rounds, detail = measured(EVENTS, windows, by, alike)
        of = f"by {by}" + ("" if alike else ", each node another order")
        yield below(f"bytes of the first keys {of}, Zipf", share, "of all keys'", bar, detail)
        yield at_most(f"round trips of the first keys {of}", rounds, "a window", 2.0, detail)


def measured(
    events: int, windows: int, by: str, alike: bool, nodes: int = NODES
) -> tuple[float, float, str]:
    """Bytes by asking against those of all keys, and rounds for a window."""
    read = {f"e{n}": [_events(n, events, windows, alike)] for n in range(nodes)}
    score = ct.sum("v") if by == "sum" else ct.count()
    query = ct.Query(
        "q",
        score.alias("score"),
        ct.max("v"),
        by="k",
        window=ct.tumbling("1s"),
        order_by=ct.Ordering("score", descending=True),
        limit=_FIRST,
    )
    asks, sends = Talk(read, [query]), Talk(read, [query], "send")
    for talk in (asks, sends):
        talk.run()
        _check(talk.results, read, by)
    detail = (
        f"the first {_FIRST} of {KEYS:,} keys by {by}, {nodes} nodes of about {events:,} events "
        f"in each of {windows} windows; {asks.bytes:,} bytes of all that members say in this "
        f"process, both ways, against {sends.bytes:,} with all keys"
    )
    return asks.bytes / sends.bytes, asks.rounds / windows, detail


def _events(seed: int, each: int, windows: int, alike: bool) -> pa.Table:
    dice = np.random.default_rng(seed)
    count = each * windows
    weights = 1 / np.arange(1, KEYS + 1)
    ranks = dice.choice(KEYS, count, p=weights / weights.sum())
    order = np.random.default_rng(0 if alike else seed + 1).permutation(KEYS)
    times = np.sort(dice.integers(0, windows * SECOND, count))
    values = dice.integers(1, 100, count)
    return pa.table(
        {"ts": pa.array(times, pa.timestamp("us", "UTC")), "k": order[ranks], "v": values}
    )


def _check(results: list[Delivery], events: dict[str, list[pa.Table]], by: str) -> None:
    """Raises unless the results are those of all events in one place."""
    whole = pa.concat_tables([table for (table,) in events.values()])
    window = whole.column("ts").cast(pa.int64()).to_numpy() // SECOND
    wanted = []
    for number in np.unique(window):
        mine = whole.filter(pa.array(window == number))
        keys, values = (mine.column(name).to_numpy() for name in ("k", "v"))
        scores = np.bincount(keys, values if by == "sum" else None).astype(np.int64)
        most = np.zeros(len(scores), np.int64)
        np.maximum.at(most, keys, values)
        first = np.lexsort((np.arange(len(scores)), -scores))[:_FIRST].tolist()
        wanted += [(key, int(scores[key]), int(most[key])) for key in first]
    rows = [row for given in results for row in given.results.get("q", pa.table({})).to_pylist()]
    found = [(row["k"], row["score"], row["max(v)"]) for row in rows]
    if found != wanted:
        raise AssertionError(f"{found} is not {wanted}")
