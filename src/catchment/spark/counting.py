"""Count windows of a job that are found by asking: partitions keep events, the driver asks.

Spark keeps state only behind a shuffle, so events of a partition go to one bucket, each partition's
to its own, and stay there; what all of them have to say meets on the driver. What it asks, and the
windows it finds full, are taken by the batch after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from catchment.counting import wire
from catchment.engine import codec
from catchment.engine.assembler import Assembler
from catchment.engine.bound import BoundPlan
from catchment.engine.parcels import share_out
from catchment.engine.partials import NODE, Partials
from catchment.model.frontier import Frontier
from catchment.planner.edges import LATEST
from catchment.spark.planning import KEPT, Counting
from catchment.spark.spec import Control, Spec
from catchment.tree.kept import Kept, from_ipc, to_ipc
from catchment.tree.tally import Tally


@dataclass(frozen=True)
class Told:
    """What the driver says after a batch."""

    tally: bytes = b""
    orders: bytes = b""
    full: Mapping[int, Mapping[str, bytes]] = field(default_factory=dict)
    """Windows that are full, by bucket and name of their group."""

    @classmethod
    def after(cls, spec: Spec, batch: int) -> Told:
        held = spec.home.sub("counting").read(f"{batch:09d}")
        return cls() if held is None else cls(*wire.load(held))

    def save(self, spec: Spec, batch: int) -> None:
        folder = spec.home.sub("counting")
        folder.write(f"{batch:09d}", wire.dump([self.tally, self.orders, self.full]))
        folder.remove(f"{batch - KEPT:09d}")


def nodes_of(spec: Spec, frontier: Frontier) -> list[int]:
    """The partitions that are known, by their numbers."""
    return [spec.node + number for number in range(len(frontier.partitions))]


# -- in a bucket ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """What partitions are told in a batch; part of what its results depend on."""

    nodes: Sequence[int]
    """The partitions of the bucket."""
    orders: bytes
    full: Mapping[str, bytes]
    frontier: int
    finished: bool

    @classmethod
    def of(cls, spec: Spec, control: Control, bucket: int, frontier: int) -> Asked:
        told = Told.after(spec, control.batch - 1)
        nodes = [n for n in nodes_of(spec, control.frontier) if n % spec.buckets == bucket]
        return cls(nodes, told.orders, told.full.get(bucket, {}), frontier, control.finished)

    def to_bytes(self) -> bytes:
        return wire.dump(
            [list(self.nodes), self.orders, dict(self.full), self.frontier, self.finished]
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Asked:
        return cls(*wire.load(data))


class Keepers:
    """The partitions of a bucket: what each keeps."""

    def __init__(self, assembler: Assembler) -> None:
        self.assembler = assembler
        self.kept: dict[int, Kept] = {}

    def step(self, groups: Mapping[int, str], events: Partials, told: Asked) -> list[bytes]:
        """Takes a batch's events and orders; what there is to say to the driver."""
        ids = {name: id for id, name in groups.items()}
        self.assembler.absorb({ids[n]: from_ipc(b) for n, b in told.full.items() if n in ids})
        said: list[bytes] = []
        for node in told.nodes:
            bound = self.assembler.bound
            kept = self.kept.setdefault(node, Kept(node, bound))
            kept.switch(bound, ids)
            if told.orders:
                kept.hear(told.orders)
            mine = {groups[id]: _of_node(table, node) for id, table in events.items()}
            kept.feed(mine, LATEST if told.finished else told.frontier, told.finished)
            notes = kept.notes()
            said += [] if notes is None else [bytes(n.as_py()) for n in notes.column("note")]
        return said

    def to_bytes(self) -> bytes:
        return wire.dump(
            [(node, sorted(kept.groups), kept.to_bytes()) for node, kept in self.kept.items()]
        )

    def load(self, data: bytes, groups: Mapping[int, str]) -> None:
        """Goes on from saved state, by the version of the plan that was in use."""
        for node, names, body in wire.load(data):
            bound = self.assembler.bound
            kept = self.kept[node] = Kept(node, bound)
            kept.switch(bound, {name: id for id, name in groups.items() if name in names})
            kept.load(body)


def _of_node(table: pa.Table, node: int) -> pa.Table:
    return table.filter(pa.array(np.asarray(codec.ints(table, NODE)) == node))


# -- on the driver --------------------------------------------------------------------------------


def count(
    spec: Spec,
    control: Control,
    bound: Callable[[int], BoundPlan],
    frontier: Frontier,
    notes: Iterable[bytes],
) -> Counting | None:
    """Finds edges by what partitions say; what the next batch is told is written down."""
    if not spec.asks:
        return None
    groups, before = spec.asked(control.plan), Told.after(spec, control.batch - 1)
    if not groups:
        if before.tally:  # orders will go on from the last number that partitions have heard
            Told(before.tally).save(spec, control.batch)
        return None
    tally = Tally(spec.count, bound(control.plan), groups, before.tally)
    number = tally.orders.number
    tally.follow(nodes_of(spec, frontier))
    tally.take(pa.table({"note": pa.array(sorted(notes), pa.binary())}))
    full = tally.step([])
    shares = share_out(full, spec.plan(control.plan).plan, spec.buckets)
    by_name = {
        bucket: {groups[id]: to_ipc([table]) for id, table in share.items()}
        for bucket, share in shares.items()
    }
    Told(tally.to_bytes(), tally.orders.since(0), by_name).save(spec, control.batch)
    news = bool(full) or tally.orders.number > number
    unended = tally.not_full() if control.ended else (0, 0)
    return Counting(news, tally.orders.over, *unended)
