"""Keeps on disk what a local node must know to answer the root: a log of what it was told, behind a
snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
from msgspec import Struct

from catchment.counting.leaf_by_key import LeafByKey
from catchment.durable.disk import Disk
from catchment.durable.journaled import Journaled
from catchment.engine.bound import BoundPlan
from catchment.engine.codec import from_ipc, to_ipc
from catchment.engine.merger import Merger


class PlanSwitched(Struct, frozen=True, tag="switched"):
    """Another version of the plan: the names of the groups that are asked about."""

    names: tuple[str, ...]


class OrdersReceived(Struct, frozen=True, tag="heard"):
    """Orders of the root."""

    orders: bytes


class EventsReceived(Struct, frozen=True, tag="fed"):
    """Events by the name of their group, and the frontier of the node after them."""

    events: dict[str, bytes]
    frontier: int
    ended: bool


class NotesTaken(Struct, frozen=True, tag="noted"):
    """All that there was to say was said."""


LeafEvent = PlanSwitched | OrdersReceived | EventsReceived | NotesTaken
StepEvents = tuple[LeafEvent, ...]
"""What happened in a step, in its order."""


class LeafState(Struct, frozen=True):
    """A snapshot: the names of the groups that are asked about, and what is kept of them."""

    names: tuple[str, ...]
    leaf: bytes


class LeafMachine(Protocol):
    """What a node keeps to answer the root. All it does follows from what it is told."""

    def switch(self, bound: BoundPlan, groups: dict[str, int]) -> None:
        """Goes on by another version of the plan."""

    def hear(self, data: bytes) -> bool:
        """Takes orders, if they are new; what they ask for is done with the next step."""
        ...

    def feed(self, events: dict[str, pa.Table], frontier: int, ended: bool) -> None:
        """Takes what is to be kept of each group."""

    def notes(self) -> pa.Table | None:
        """What there is to say, as a section of a message."""
        ...

    def to_bytes(self) -> bytes: ...

    def load(self, data: bytes) -> None:
        """Goes on from saved state."""


M = TypeVar("M", bound=LeafMachine)


class StepLog(Generic[M]):
    """What a local node keeps to answer the root, as of a step of its outbox.

    An entry is written before the step it belongs to, and the step says which entry was the last:
    what was written for a step that was never written down is of no account. `name` is that of the
    log and of its snapshot.
    """

    def __init__(
        self,
        name: str,
        leaf: M,
        groups: Mapping[int, str],
        merger: Merger,
        disk: Disk,
        written: int | None = None,
    ) -> None:
        self._merger = merger
        self.leaf = leaf
        self._happened: list[LeafEvent] = []
        """What happened since the last step."""
        self._names: tuple[str, ...] = ()
        self._ids = {name: id for id, name in groups.items()}
        self._journal: Journaled[StepEvents, LeafState] = Journaled(
            disk, name, name, StepEvents, LeafState, upto=written or 0
        )
        saved, self._journal.state = self._journal.state, None
        if saved is not None:
            self._do(PlanSwitched(saved.names))
            self.leaf.load(saved.leaf)
        for entry in self._journal.replay():
            for what in entry:
                self._do(what)
        if self._names != tuple(sorted(self._ids)):
            self.switch(groups)

    # -- what happens -----------------------------------------------------------------------------

    def switch(self, groups: Mapping[int, str]) -> None:
        """Goes on by another version of the plan, which the merger follows already.

        `groups` are those that the root asks about, and their names.
        """
        self._ids = {name: id for id, name in groups.items()}
        what = PlanSwitched(tuple(sorted(self._ids)))
        self._happened.append(what)
        self._do(what)

    def hear(self, orders: bytes) -> None:
        """Takes orders of the root."""
        if self.leaf.hear(orders):
            self._happened.append(OrdersReceived(orders))

    def keep(self, tables: Mapping[str, pa.Table], frontier: int, ended: bool) -> None:
        """Takes what is to be kept, by the name of its group, and moves the frontier on."""
        found = {name: to_ipc(table) for name, table in tables.items()}
        what = EventsReceived(found, frontier, ended)
        self._happened.append(what)
        self._do(what)

    def notes(self) -> pa.Table | None:
        """What there is to say, as a section of a message."""
        self._happened.append(NotesTaken())
        return self.leaf.notes()

    def _do(self, what: LeafEvent) -> None:
        match what:
            case PlanSwitched(names):
                self._names = names
                groups = {name: self._ids[name] for name in names if name in self._ids}
                self.leaf.switch(self._merger.bound, groups)
            case OrdersReceived(orders):
                self.leaf.hear(orders)
            case EventsReceived(events, frontier, ended):
                tables = {name: from_ipc(body) for name, body in events.items()}
                self.leaf.feed(tables, frontier, ended)
            case NotesTaken():
                self.leaf.notes()  # it was said

    # -- on disk ----------------------------------------------------------------------------------

    @property
    def written(self) -> int:
        """The number of the last entry of the log: with a step, it says what must be there."""
        return self._journal.number

    def write(self) -> None:
        """Writes down what happened, as part of a step that is about to be written down."""
        if self._happened:
            self._journal.append(tuple(self._happened))
            self._happened = []

    def compact(self) -> None:
        """Writes all down after a step, once the log is longer than that."""
        if self._journal.due:
            self._journal.compact(LeafState(self._names, self.leaf.to_bytes()))


class LeafLog(StepLog[LeafByKey]):
    """What a local node keeps for count windows."""

    def __init__(
        self,
        groups: Mapping[int, str],
        number: int,
        merger: Merger,
        disk: Disk,
        written: int | None = None,
    ) -> None:
        leaf = LeafByKey(number, merger.bound)
        super().__init__("counted", leaf, groups, merger, disk, written)

    def feed(self, frontier: int, ended: bool) -> None:
        """Takes the events that wait in the merger, and moves the frontier on."""
        waiting = {name: self._merger.take_waiting(id) for name, id in self.leaf.groups.items()}
        found = {name: table for name, table in waiting.items() if table is not None}
        self.keep(found, frontier, ended)
