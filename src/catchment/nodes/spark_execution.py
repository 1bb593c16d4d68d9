"""How the work of each role is done on Spark: by one streaming query for a node.

A local node's query reads and slices, and each batch is taken in as it comes. A relay and a root
decide a step, write it down for their query, and take in what the query has made of it; one step is
at hand at a time. A relay merges few messages in its own process: a micro-batch takes half a second
or more before any work is done, and a relay keeps no state in Spark.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from catchment.durable.folder import Folder
from catchment.engine.partials import Partials
from catchment.engine.times import now
from catchment.errors import CatchmentError, RefusedError
from catchment.spark.stepping import read_step, write_step
from catchment.tree.charter import Charter
from catchment.tree.inbox import Inbox
from catchment.tree.local import Local, SlicedElsewhere
from catchment.tree.records import RelayStep, RootStep
from catchment.tree.relay import Relay
from catchment.tree.root import Root

if TYPE_CHECKING:
    from catchment.nodes.spark_process import SparkProcess

_FULL = 0.2
"""Seconds between looks at whether there is room for more."""

FEW_BYTES = 4 << 20
"""Messages of so many bytes are merged in less time than a micro-batch takes to begin."""


class Execution(Protocol):
    """The query that does a node's work, as its process sees it."""

    def start(self, charter: Charter) -> None:
        """Starts the query."""

    def go_on(self) -> bool:
        """Hands the query what there is to do, under the node's lock; whether there was any."""
        ...

    def forget(self) -> None:
        """The query has failed: it goes on from what is on disk."""


class ReadingExecution:
    """Carries out the steps of a node that reads events."""

    def __init__(self, node: SparkProcess) -> None:
        self._node = node

    @property
    def _local(self) -> Local:
        machine = self._node.member.machine
        assert isinstance(machine, Local)
        return machine

    def start(self, charter: Charter) -> None:
        source = self._node.given.source
        assert source is not None
        self._node.work.read(charter, source, self._took, self._node.aside)

    def go_on(self) -> bool:
        self._local.refresh(now())
        return False

    def forget(self) -> None:
        return

    def _took(self, batch: SlicedElsewhere, at: int) -> None:
        """A batch was read; called on the query's thread."""
        node = self._node
        while not self._has_room() and not node.stopping.is_set():
            time.sleep(_FULL)  # a batch that waits holds the source back
        with node.lock:
            if node.member.refused is not None:
                raise RefusedError(node.member.refused)  # nothing more may be written down
            self._local.take(batch, at)
        node.news.set()

    def _has_room(self) -> bool:
        flow = self._node.member.flow
        return not self._node.member.full and (flow is None or not flow.crowded)


class Stepwise(ABC):
    """Carries out the steps of a relay or a root on Spark; the role decides what a step is."""

    def __init__(self, node: SparkProcess) -> None:
        self._node = node
        self._at_hand = False

    @property
    def _steps(self) -> Folder:
        return self._node.work.home.sub("steps")

    def go_on(self) -> bool:
        if self._at_hand or self._node.member.full:
            return False
        return self._decided(now())

    @abstractmethod
    def _decided(self, at: int) -> bool:
        """Decides the next step, and carries it out or hands it to the query; False where there is
        nothing to do."""

    def _hand(self, step: RelayStep | RootStep, bodies: list[bytes], full: Partials) -> None:
        """Writes a step down for the query, with the messages that it takes."""
        with self._or_back():
            write_step(self._steps, step, bodies, full)
        self._at_hand = True

    @contextmanager
    def _or_back(self) -> Iterator[None]:
        """Goes back to what is on disk where that fails: a disk may be full; what was decided stays
        decided."""
        try:
            yield
        except CatchmentError:
            self._node.member.reload(now())
            raise

    def forget(self) -> None:
        self._at_hand = False


def taken_bodies(inbox: Inbox, step: RelayStep | RootStep) -> list[bytes]:
    """The messages that a step takes, as they came."""
    return [inbox.body(id, seq) for id, seq in inbox.chosen(step.take)]


class MergingExecution(Stepwise):
    """Carries out the steps of a node in between."""

    @property
    def _relay(self) -> Relay:
        machine = self._node.member.machine
        assert isinstance(machine, Relay)
        return machine

    def start(self, charter: Charter) -> None:
        self._node.work.merge(charter, self._took)

    def _decided(self, at: int) -> bool:
        relay = self._relay
        if f"{1 + relay.number:012d}" in self._steps.names():
            self._at_hand = True  # before a crash
            return True
        step = relay.decide(at)
        if step is None:
            return False
        bodies = taken_bodies(relay.inbox, step)
        if sum(map(len, bodies)) > FEW_BYTES:
            self._hand(step, bodies, Partials())
            return True
        with self._or_back():
            return self._node.member.step(at)

    def _took(self, step: int, partials: Partials, ends: dict[tuple[str, int], int]) -> None:
        """A step was carried out; called on the query's thread."""
        with self._node.lock:
            if step > self._relay.number:
                decided = read_step(self._steps, step).step
                assert isinstance(decided, RelayStep)
                self._relay.carried_out(decided, partials, ends)
            self._at_hand = False
        self._node.news.set()


class AssemblingExecution(Stepwise):
    """Carries out the steps of the root."""

    @property
    def _root(self) -> Root:
        machine = self._node.member.machine
        assert isinstance(machine, Root)
        return machine

    def start(self, charter: Charter) -> None:
        self._node.work.assemble(charter, self._node.given.sinks, self._took)

    def _decided(self, at: int) -> bool:
        root = self._root
        step = root.undone[0] if root.undone else root.decide(at)
        if step is None:
            return False
        step, full = root.count(step)
        self._hand(step, taken_bodies(root.inbox, step), full)
        del root.undone[:1]
        return True

    def _took(self, step: int, counts: dict[str, int], drained: tuple[str, ...]) -> None:
        """A step was carried out; called on the query's thread."""
        with self._node.lock:
            if step > self._root.number:
                decided = read_step(self._steps, step).step
                assert isinstance(decided, RootStep)
                self._root.carried_out(decided, counts, drained)
            self._at_hand = False
        self._node.news.set()
