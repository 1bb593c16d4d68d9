"""The machines of nodes in this process, without a network: charters, a local node, a root."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

import catchment as ct
from benchmarks.events import SECOND, Workload, tumbling
from catchment.durable.disk import Disk
from catchment.model.settings import QuantileMode
from catchment.simulate.memory import EventsInMemory, MemoryDisk
from catchment.tree.charter import Charter, NodePlace
from catchment.tree.local import Local
from catchment.tree.message import spoken
from catchment.tree.settings import TreeSettings

RATE = 1_000_000
"""Events per second of event time of each node, where nothing else is said."""


def charter(
    parents: Mapping[str, str | None],
    queries: Iterable[ct.Query],
    schema: pa.Schema,
    quantiles: QuantileMode = "auto",
) -> Charter:
    """A charter for nodes and their parents; nodes without children read events."""
    places = {
        id: NodePlace(id, number, parent, id not in parents.values())
        for number, (id, parent) in enumerate(parents.items())
    }
    settings = TreeSettings(rate=float(RATE), quantiles=quantiles, count="auto")
    return Charter("bench", 1, settings, places).with_queries(queries).with_schema(schema)


def by_key(windows: int, aggregate: ct.Aggregate | None = None) -> list[ct.Query]:
    """Tumbling windows of 1 to 10 whole seconds by key: slices of 1 s, however many there are."""
    lengths = [(1 + number % 10) * SECOND for number in range(windows)]
    return tumbling(lengths, aggregate or ct.avg("v"), by="k")


def local(load: Workload, queries: Iterable[ct.Query], disk: Disk | None = None) -> Local:
    """A local node that reads events in memory, and sends all that it has."""
    tables = [step.table for step in load.steps]
    ruled = charter({"root": None, "e1": "root"}, queries, tables[0].schema, "send")
    return Local("e1", disk or MemoryDisk(), ruled, EventsInMemory.of(tables))


def run(machine: Local) -> None:
    """Reads all there is; what it passes up counts as acknowledged at once."""
    now = 0
    while machine.step(now):
        now += SECOND
        machine.flow.acknowledged(machine.flow.outbox.sent)


def messages(machine: Local) -> Iterator[bytes]:
    """Reads all there is, and gives the messages that a parent would get."""
    now, seen = 0, 0
    while machine.step(now):
        now += SECOND
        for seq, body in machine.flow.outbox.after(seen):
            seen = seq
            yield spoken(1, body)
