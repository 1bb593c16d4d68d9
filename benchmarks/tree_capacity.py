"""How much a root, a node in between and a local node do on one core, and what that makes of many
sites."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

import numpy as np
import pyarrow as pa

from benchmarks.events import SECOND, workload
from benchmarks.figure import Figure, at_least, plain
from benchmarks.timing import Action, in_turns, typical
from benchmarks.tree_machines import RATE, by_key, charter, local, run
from catchment.errors import CatchmentError
from catchment.simulate.memory import MemoryDisk
from catchment.sinks.base import Delivery
from catchment.tree.charter import Charter
from catchment.tree.member import Member
from catchment.tree.message import Head, encode, spoken
from catchment.tree.words import Hello, Reply

KEYS = 10_000
CHILDREN = 50
SITES = (1, 2, 4, 8)
_LOCAL_KEYS = 10
_RUNS = 3
_BAR = 5e6
_COLUMNS: dict[str, pa.DataType] = {
    "ts": pa.timestamp("us", "UTC"),
    "k": pa.int64(),
    "v": pa.float64(),
}
_SCHEMA = pa.schema(_COLUMNS)

Messages = list[list[tuple[str, bytes]]]
"""By slice: each child, and what it says."""


def figures(quick: bool = False) -> Iterator[Figure]:
    """The root alone, a node in between, a local node alone, and the sum."""
    slices, children = (3, 20) if quick else (10, CHILDREN)
    yield from root_capacity(slices, children)
    yield from relay_capacity(slices, children)
    yield from on_paper(2 if quick else 5, 3 if quick else 5)


# -- the root -------------------------------------------------------------------------------------


def climbing(ruled: Charter, keys: int, slices: int) -> Messages:
    """What children send of slices of 1 s in which every key has some events."""
    children = [id for id, place in ruled.places.items() if place.source]
    random = np.random.default_rng(3)
    made: Messages = []
    for number in range(slices):
        bound = ruled.bound(ruled.plan)
        slicer, merger = bound.slicer(), bound.merger()
        times = np.full(2 * keys, number * SECOND) + np.repeat([1, 500_000], keys)
        code = np.tile(np.arange(keys), 2)
        values = pa.array(random.random(2 * keys))
        events = pa.table([pa.array(times), pa.array(code), values], schema=_SCHEMA)
        for sliced in slicer.slice(events):
            merger.add(sliced)
        partials = merger.take()
        end = (number + 1) * SECOND
        heads = [
            Head(id, number + 1, ruled.plan, end, end, (), end - 1, {"events": 2 * keys})
            for id in children
        ]
        made.append([(head.node, spoken(1, encode(head, partials, ruled))) for head in heads])
    return made


class Absorbing:
    """A root that is given messages, one round a second of event time."""

    def __init__(self, ruled: Charter, made: Messages) -> None:
        self.made = made
        self.rows = 0
        """Delivered."""
        self.root = Member("root", MemoryDisk(), 0, deliver=self._deliver, charter=ruled)
        for id in ruled.children("root"):
            self.root.on_hello(Hello(id), 0)

    def _deliver(self, delivery: Delivery) -> None:
        self.rows += sum(table.num_rows for table in delivery.results.values())

    def __call__(self) -> None:
        for now, messages in enumerate(self.made, start=1):
            for id, body in messages:
                self.root.on_message(id, body, now)
            self.root.step(now)


def ruling(windows: int, children: int) -> Charter:
    parents: dict[str, str | None] = {"root": None}
    parents |= {f"e{number}": "root" for number in range(children)}
    return charter(parents, by_key(windows), _SCHEMA)


def rate_of(windows: int, children: int, keys: int, slices: int) -> tuple[float, int]:
    """Partials a second, and rows delivered."""
    ruled = ruling(windows, children)
    made = climbing(ruled, keys, slices)
    runs: list[Absorbing] = []

    def prepare() -> Action:
        runs.append(Absorbing(ruled, made))
        return runs[-1]

    times = in_turns(_RUNS, [prepare], clock=process_time)
    return keys * children * slices / typical(times, 0), runs[-1].rows


def root_capacity(slices: int, children: int) -> Iterator[Figure]:
    for windows in (1, 1000):
        speed, rows = rate_of(windows, children, KEYS, slices)
        partials = KEYS * children * slices
        yield at_least(
            f"partials a root takes, {windows:,} window{'s' if windows > 1 else ''}",
            speed,
            "partials/s",
            _BAR,
            f"in a second of processor time, no network, a disk in memory: {children} children, "
            f"messages of {KEYS:,} keys, {slices} slices of 1 s; received, checked, decoded, "
            f"merged, assembled: {partials:,} partials became {rows:,} results; median of "
            f"{_RUNS} runs",
        )


# -- a node in between -----------------------------------------------------------------------------


class Merging:
    """A node in between that is given messages, one round a second of event time."""

    def __init__(self, ruled: Charter, made: Messages) -> None:
        self.made = made
        self.node = Member("m", MemoryDisk(), 0, parent="root")
        self.node.adopt(ruled, 0)
        self.node.heard(Reply(life=1), 0)
        for id in ruled.children("m"):
            self.node.on_hello(Hello(id), 0)

    def __call__(self) -> None:
        for now, messages in enumerate(self.made, start=1):
            for id, body in messages:
                self.node.on_message(id, body, now)
            self.node.step(now)
            flow = self.node.flow
            assert flow is not None
            flow.acknowledged(flow.outbox.sent)

    @property
    def passed_on(self) -> int:
        """Up to which time slices have gone up, in slices."""
        flow = self.node.flow
        return 0 if flow is None else flow.frontier // SECOND


def relay_rate(windows: int, children: int, keys: int, slices: int) -> float:
    """Partials a second that a node in between takes and passes on."""
    parents: dict[str, str | None] = {"root": None, "m": "root"}
    parents |= {f"e{number}": "m" for number in range(children)}
    ruled = charter(parents, by_key(windows), _SCHEMA)
    made = climbing(ruled, keys, slices)
    runs: list[Merging] = []

    def prepare() -> Action:
        runs.append(Merging(ruled, made))
        return runs[-1]

    times = in_turns(_RUNS, [prepare], clock=process_time)
    if any(run.passed_on < slices for run in runs):
        raise CatchmentError("a node in between did not pass on all slices")
    return keys * children * slices / typical(times, 0)


def relay_capacity(slices: int, children: int) -> Iterator[Figure]:
    for windows in (1, 1000):
        yield at_least(
            f"partials a node in between takes, {windows:,} window{'s' if windows > 1 else ''}",
            relay_rate(windows, children, KEYS, slices),
            "partials/s",
            _BAR,
            f"in a second of processor time, no network, a disk in memory: {children} children, "
            f"messages of {KEYS:,} keys, {slices} slices of 1 s; received, checked, decoded, "
            f"merged, and written down as one message for the parent; median of {_RUNS} runs",
        )


# -- a local node, and many -----------------------------------------------------------------------


def on_paper(seconds: int, runs: int) -> Iterator[Figure]:
    """What sites do together if each has a core: a sum, not a measurement."""
    load = workload(seconds * RATE, RATE, batch=RATE // 4, keys=_LOCAL_KEYS)

    def prepare() -> Action:
        machine = local(load, by_key(1))
        return lambda: run(machine)

    times = in_turns(runs, [prepare])
    speed = load.events / typical(times, 0)
    yield plain(
        "events a local node slices",
        speed,
        "events/s",
        f"one core, events and disk in memory; avg by key, 1 s slices; {load.detail}",
    )
    taken, _ = rate_of(1, CHILDREN, _LOCAL_KEYS, 20)
    yield plain(
        f"partials a root takes of messages of {_LOCAL_KEYS} keys",
        taken,
        "partials/s",
        f"{CHILDREN} children; so small a message costs the root its head more than its partials",
    )
    per_partial = RATE / _LOCAL_KEYS
    for sites in SITES:
        yield plain(
            f"events of {sites} local node{'s' if sites > 1 else ''}, on paper",
            min(sites * speed, taken * per_partial),
            "events/s",
            f"not measured but computed: {sites} times a local node's {speed / 1e6:.1f} M events/s,"
            f" at most what the root takes, {taken:,.0f} partials/s of {per_partial:,.0f} events "
            f"each",
        )
