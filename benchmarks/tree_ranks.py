"""Exact quantiles over many nodes: bytes and round trips, against sending every event.

The nodes are members in this process that talk to each other as over links; what is counted are all
bytes that they say, both ways: messages, beats, replies with questions, greetings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

import catchment as ct
from benchmarks.events import SECOND
from benchmarks.figure import Figure, at_most, below
from benchmarks.tree_machines import charter
from catchment.measure.central import BATCH, encoded
from catchment.model.settings import QuantileMode
from catchment.simulate.memory import EventsInMemory, MemoryDisk
from catchment.sinks.base import Delivery
from catchment.sources.base import Source
from catchment.tree.member import GRACE, Member
from catchment.tree.root import Root
from catchment.tree.words import said

NODES = 8
VALUES = 1_000_000
"""Of a window, at each node."""
KEYS = 100
_QUANTILES = (0.5, 0.95, 0.99)


class Talk:
    """A root and nodes below it, and the bytes that they say."""

    def __init__(
        self,
        events: dict[str, list[pa.Table]],
        queries: list[ct.Query],
        quantiles: QuantileMode = "auto",
        source: Callable[[list[pa.Table]], Source] = EventsInMemory.of,
    ) -> None:
        parents: dict[str, str | None] = {"root": None, **dict.fromkeys(events, "root")}
        ruled = charter(parents, queries, next(iter(events.values()))[0].schema, quantiles)
        self.bytes = 0
        self.now = GRACE + SECOND
        self.results: list[Delivery] = []
        self.root = Member("root", MemoryDisk(), 0, deliver=self.deliver, charter=ruled)
        self.nodes = {
            id: Member(id, MemoryDisk(), 0, parent="root", source=partial(source, tables))
            for id, tables in events.items()
        }

    def deliver(self, delivery: Delivery) -> None:
        """Takes results of the root."""
        self.results.append(delivery)

    def run(self) -> None:
        """Until all events are in windows that are given."""
        self.greet()
        while not self.over:
            self.exchange()

    @property
    def over(self) -> bool:
        """Whether the root has all that there is."""
        return self.root.machine is not None and self.root.machine.done

    def greet(self) -> None:
        """All nodes say hello."""
        for node in self.nodes.values():
            hello = node.hello()
            reply = self.root.on_hello(hello, self.now)
            self.bytes += len(said(hello)) + len(said(reply))
            node.heard(reply, self.now)

    def exchange(self, beats: bool = True) -> None:
        """Every node does what there is to do, and talks with the root once.

        Without `beats`, a beat is counted only where the root has something to say to it: otherwise
        nobody would have sent it.
        """
        self.now += SECOND
        for id, node in self.nodes.items():
            while node.step(self.now):
                pass
            for body in node.outgoing(self.now):
                reply = self.root.on_message(id, body, self.now)
                self.bytes += len(body) + len(said(reply))
                node.heard(reply, self.now)
            beat = node.beat(self.now)
            reply = self.root.on_beat(id, beat, self.now)
            if beats or any((reply.orders, reply.questions, reply.edges, reply.due)):
                self.bytes += len(said(beat)) + len(said(reply))
            node.heard(reply, self.now)
        while self.root.step(self.now):
            pass

    @property
    def rounds(self) -> int:
        """Questions that the root has asked of any group."""
        machine = self.root.machine
        assert isinstance(machine, Root) and machine.ranking is not None
        return max(group.next - 1 for group in machine.ranking.groups.values())


def figures(quick: bool = False) -> Iterator[Figure]:
    """One window without keys, and one of many keys."""
    values = VALUES // 10 if quick else VALUES
    for keys, bar in ((None, 0.01), (KEYS, 0.10)):
        share, rounds, detail = measured(values, keys)
        of = "" if keys is None else f" of {keys} keys"
        yield below(f"bytes of quantiles{of}, random values", share, "of central's", bar, detail)
        yield at_most(f"round trips of quantiles{of}", float(rounds), "rounds", 2.0, detail)


def measured(values: int, keys: int | None, nodes: int = NODES) -> tuple[float, int, str]:
    """Bytes against sending all events, rounds, and what was measured."""
    events = {f"e{n}": [_events(n, values, keys)] for n in range(nodes)}
    aggregates = [ct.quantile("v", q) for q in _QUANTILES]
    query = ct.Query("q", *aggregates, by=() if keys is None else "k", window=ct.tumbling("1s"))
    talk = Talk(events, [query])
    talk.run()
    _check(talk.results, events, keys)
    central = central_bytes(events)
    each = values if keys is None else values // keys
    detail = (
        f"p50, p95 and p99 of {nodes} nodes, {each:,} random doubles in a window of each node"
        f"{'' if keys is None else ' and key'}; {talk.bytes:,} bytes of all that members say "
        f"in this process, both ways, against {central:,} of all events in Arrow, zstd"
    )
    return talk.bytes / central, talk.rounds, detail


def central_bytes(events: dict[str, list[pa.Table]]) -> int:
    """The bytes of all events, sent as they are."""
    batches = [b for (table,) in events.values() for b in table.to_batches(max_chunksize=BATCH)]
    return sum(len(encoded(batch)) for batch in batches)


def _events(seed: int, count: int, keys: int | None) -> pa.Table:
    dice = np.random.default_rng(seed)
    times = np.sort(dice.integers(0, SECOND, count))
    columns = {"ts": pa.array(times, pa.timestamp("us", "UTC")), "v": pa.array(dice.random(count))}
    if keys is not None:
        columns["k"] = pa.array(dice.integers(0, keys, count))
    return pa.table(columns)


def _check(results: list[Delivery], events: dict[str, list[pa.Table]], keys: int | None) -> None:
    """Raises unless the results are those of all values in one place."""
    whole = pa.concat_tables([table for (table,) in events.values()])
    values = whole.column("v").to_numpy()
    code = np.zeros(len(values), np.int64) if keys is None else whole.column("k").to_numpy()
    order = np.argsort(code, kind="stable")
    values, ends = values[order], np.searchsorted(code[order], np.arange((keys or 1) + 1))
    rows = [row for given in results for row in given.results.get("q", pa.table({})).to_pylist()]
    if len(rows) != (keys or 1):
        raise AssertionError(f"{len(rows)} results")
    for row in rows:
        key = row.get("k", 0)
        mine = np.quantile(values[ends[key] : ends[key + 1]], _QUANTILES)
        found = [value for name, value in row.items() if name.startswith("quantile")]
        if not np.allclose(found, mine, rtol=1e-12, atol=0):
            raise AssertionError(f"{found} is not {mine.tolist()}")
