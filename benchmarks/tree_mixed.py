"""Windows of all types: what a thousand of them cost against one of each, and how many round trips
it takes to find edges.

Nodes read a second of events at a time, and then talk with the root until both are silent. Bytes
are counted as `tree_ranks` does, and those of the first seconds are left out: connecting, and the
plan.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np
import pyarrow as pa
from pydantic import PrivateAttr

import catchment as ct
from benchmarks.events import SECOND
from benchmarks.figure import Figure, at_most, plain
from benchmarks.tree_ranks import Talk
from catchment.model.window import Window
from catchment.simulate.memory import EventsInMemory
from catchment.sinks.base import Delivery
from catchment.sources.base import Position

SITES, RATE, KEYS, MARKS = 2, 20_000, 5, 0.0005
"""Nodes, events per second of each, keys, and the share of events that are marks."""
MANY = 1000
_COUNTED = 10_000
"""Events of the smallest count window; the others are multiples of it."""
_TRIPS = 8
"""Round trips that there is time for before the next second is read."""
_ON, _OFF = "m = 1", "m = 2"
_ONE_OF_EACH: tuple[Window, ...] = (
    ct.tumbling("1s"),
    ct.sliding("2s", "1s"),
    ct.cumulate("3s", "1s"),
    ct.tumbling("1d", zone="Europe/Berlin"),
    ct.fixed(2 * SECOND, 5 * SECOND),
    ct.session("1s"),
    ct.cut(_ON),
    ct.between(_ON, _OFF),
    ct.count_tumbling(_COUNTED),
    ct.count_sliding(2 * _COUNTED, _COUNTED),
)


def figures(quick: bool = False) -> Iterator[Figure]:
    """Bytes of many mixed windows, and round trips for edges of each kind."""
    yield mixed(4 if quick else 10)
    for kind, window in (
        ("marks", ct.between(_ON, _OFF)),
        ("sessions", ct.session("300ms")),
    ):
        yield round_trips(kind, window, 4 if quick else 10)
    yield counted_trips(4 if quick else 10)


def mixed(seconds: int) -> Figure:
    """What a second costs with many windows of all types, against one of each."""
    few = per_second(_ONE_OF_EACH, seconds)
    many = per_second(windows(MANY), seconds)
    return at_most(
        f"bytes of {MANY:,} mixed windows",
        many / few,
        "of one of each type",
        1.05,
        f"avg by {KEYS} keys; {many:,.0f} and {few:,.0f} bytes a second of {SITES} nodes of "
        f"{RATE:,} events/s, {MARKS:.2%} of them marks, both ways; the second {seconds} of "
        f"{2 * seconds} s",
    )


def windows(count: int) -> list[Window]:
    """Windows of all types, no two alike; their edges are those of the smallest of each type."""
    made = [*_ONE_OF_EACH, ct.between(_OFF, _ON), ct.between(_ON, _ON), ct.between(_OFF, _OFF)]
    number = 2
    while len(made) < count:
        made += [
            ct.tumbling(f"{number}s"),
            ct.sliding(f"{number + 1}s", "1s"),
            ct.cumulate(f"{number + 2}s", "1s"),
            ct.fixed(2 * SECOND, (5 + number) * SECOND),
            ct.session(f"{1000 + number}ms"),
            ct.count_tumbling(number * _COUNTED),
            ct.count_sliding((number + 1) * _COUNTED, _COUNTED),
        ]
        number += 1
    return made[:count]


def per_second(windows: Sequence[Window], seconds: int) -> float:
    """The bytes of a second, once all have begun."""
    queries = [
        ct.Query(f"q{n}", ct.avg("v"), by="k", window=window) for n, window in enumerate(windows)
    ]
    sizes = []
    for length in (seconds, 2 * seconds):
        talk = PacedTalk({f"e{n}": events(n, length) for n in range(SITES)}, queries)
        talk.run()
        sizes.append(talk.bytes)
    return (sizes[1] - sizes[0]) / seconds


def round_trips(kind: str, window: Window, seconds: int) -> Figure:
    """The most round trips from the moment when all nodes have passed the end of a window to its
    result, beyond those of a window whose edges are known ahead."""
    known = trips(ct.tumbling("300ms"), seconds)
    found = trips(window, seconds)
    return at_most(
        f"extra round trips of edges, {kind}",
        max(found) - max(known),
        "round trips",
        2,
        f"avg by {KEYS} keys, {len(found):,} windows of {SITES} nodes; at most {max(found)} round "
        f"trips after all nodes have read past the end, and {max(known)} where ends are known",
    )


def counted_trips(seconds: int) -> Figure:
    """The same for count windows, of which the root asks closer and closer until it has found the
    edge."""
    found = trips(ct.count_tumbling(_COUNTED), seconds)
    return plain(
        "round trips of edges, count windows",
        median(found),
        "round trips",
        f"windows of {_COUNTED:,} events by {KEYS} keys; the median of {len(found)} windows of "
        f"{SITES} nodes, at most {max(found)}; a second of events comes after {_TRIPS}",
    )


def trips(window: Window, seconds: int) -> list[int]:
    """Of each window, the round trips from when all nodes have read past its end to its result."""
    query = ct.Query("q", ct.avg("v"), by="k", window=window)
    read = {f"e{n}": events(n, seconds) for n in range(SITES)}
    talk = PacedTalk(read, [query])
    talk.run()
    newest = [[_newest(table) for table in tables] for tables in read.values()]
    reached = [min(times) for times in zip(*newest, strict=True)]
    found = []
    for delivery, at in zip(talk.results, talk.delivered, strict=True):
        table = delivery.results.get("q")
        ends = [] if table is None else table.column("window_end").cast(pa.int64()).to_pylist()
        passed = [bisect_right(reached, end) for end in ends]
        # What ends with the input is not waited for.
        found += [at - _TRIPS * batch for batch in passed if batch < seconds]
    return found


def _newest(table: pa.Table) -> int:
    return int(table.column("ts").cast(pa.int64()).to_numpy().max())


class PacedEvents(EventsInMemory):
    """Events of which a batch more is there whenever somebody lets it."""

    _there: list[int] = PrivateAttr(default_factory=list)
    """How many batches are there; the list is shared with who lets them."""

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        ready = position["batch"] < self._there[0]
        return super().latest(position, bound) if ready else position


class PacedTalk(Talk):
    """Nodes that read a batch, and talk with the root so many times before they read the next."""

    def __init__(self, events: dict[str, list[pa.Table]], queries: list[ct.Query]) -> None:
        self._there = [0]
        self._batches = max(map(len, events.values()))
        self.delivered: list[int] = []
        """Of each delivery: after how many exchanges it came, of which each batch has `_TRIPS`."""
        self._exchanges = 0
        super().__init__(events, queries, source=self._source)

    def _source(self, tables: list[pa.Table]) -> PacedEvents:
        made = PacedEvents()
        made._batches, made._there = tables, self._there
        return made

    def deliver(self, delivery: Delivery) -> None:
        super().deliver(delivery)
        self.delivered.append(self._exchanges)

    def run(self) -> None:
        self.greet()
        while not self.over:
            if self._exchanges % _TRIPS == 0:
                self._there[0] = min(self._exchanges // _TRIPS + 1, self._batches)
            self.exchange(beats=False)
            self._exchanges += 1


def events(seed: int, seconds: int) -> list[pa.Table]:
    """Seconds of events; keys pause, so that sessions end."""
    dice = np.random.default_rng(seed)
    made = []
    for second in range(seconds):
        times = second * SECOND + np.sort(dice.integers(0, SECOND, RATE))
        keys = dice.integers(0, KEYS, RATE)
        marks = dice.choice(3, RATE, p=[1 - MARKS, MARKS / 2, MARKS / 2])
        table = pa.table(
            {
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "k": keys,
                "v": dice.random(RATE),
                "m": marks,
            }
        )
        pauses = (keys == 0) & (times % (2 * SECOND) < SECOND // 2)
        made.append(table.filter(pa.array(~pauses)))
    return made
