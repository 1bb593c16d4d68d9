"""How a node goes on from another that is gone for good.

The parent of the old node tells the new one what it has (`words.TakeOver`). The new node reads the
same source from its beginning, slices it as the old one did, and forgets what the parent has:

    events of the source      | read by the old node, as far as its last message says |  the rest
    slices that end by its    |
      frontier                | forgotten: the parent has them                        |  late
    rows that were sent ahead | forgotten, as the messages that brought them say      |
    all others                | held, as the old node held them                       |  sliced

So every event counts once. A message says how far the source was read when it was made, and a row
of a slice and key holds all events of these that were read since the last such row: a row that was
sent before its slice ended is forgotten at the place where the old node had sent it.

What cannot be read again is lost: results that may lack it name the old node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from catchment.engine.partials import Partials
from catchment.errors import SourceError
from catchment.tree.charter import Charter
from catchment.tree.message import Head, decode
from catchment.tree.stale_plan import added
from catchment.tree.words import PartitionsRead, TakeOver

NOTE = "take-over"
"""The note of a node that takes over: what its parent told it."""


class ReplayedEvents(NamedTuple):
    """Events that follow each other in a partition, and the place of the first."""

    partition: str
    arrival: int
    events: pa.Table


class SentBefore(NamedTuple):
    """A place in the source at which the old node had sent something ahead of its frontier."""

    read: PartitionsRead
    head: Head
    partials: Partials


class Replay:
    """Divides what is read again at the places where the old node had sent something.

    Events come out in the order in which they were sent: those before a place, then the place.
    """

    def __init__(self, told: TakeOver, charter: Charter) -> None:
        self.take_over = told
        self._upto = told.read or {}
        self._places = [*_sent_before(told, charter)]
        self._queue: list[ReplayedEvents] = []
        self._read: PartitionsRead = {}
        self._first: PartitionsRead = {}
        """The place at which each partition begins."""
        self._alone = False
        """Whether the source has one partition, as far as is known."""
        self.over = False
        """Whether all is read that the old node had read."""
        self.unordered = False
        """Whether events came that are before the frontier as it is found here: the old node may
        have had them in time, or dropped them as late."""

    @property
    def gap(self) -> bool:
        """Whether the source does not begin where it began for the old node."""
        return any(self._first.values())

    def skipped(self) -> bool:
        """Whether events were never read by anybody: the source begins after what was read."""
        return any(first > self._upto.get(name, first) for name, first in self._first.items())

    def add(self, partition: str, arrival: int, events: pa.Table, alone: bool) -> None:
        """Takes events that were read again; `alone` says that the source has one partition."""
        self._alone = alone
        self._first.setdefault(self._known_as(partition), arrival)
        self._queue.append(ReplayedEvents(partition, arrival, events))

    def _known_as(self, partition: str) -> str:
        """What the old node called a partition: where there is one, its folder may have had another
        name."""
        return next(iter(self._upto)) if self._alone and len(self._upto) == 1 else partition

    def parts(self) -> Iterator[ReplayedEvents | SentBefore | None]:
        """What can be sliced by now; None where all is read that the old node had read."""
        while not self.over:
            following = self._places[0].read if self._places else self._upto
            queue, self._queue = self._queue, []
            for part in queue:
                name = self._known_as(part.partition)
                before = following.get(name, 0) - part.arrival
                count = min(max(before, 0), part.events.num_rows)
                if count:
                    yield part._replace(events=part.events.slice(0, count))
                    self._read[name] = part.arrival + count
                if count < part.events.num_rows:
                    rest = part.events.slice(count)
                    self._queue.append(part._replace(arrival=part.arrival + count, events=rest))
            if any(self._reached(name) < upto for name, upto in following.items()):
                return
            if self._places:
                yield self._places.pop(0)
            else:
                self.over = True
                yield None
        queue, self._queue = self._queue, []
        yield from queue

    def _reached(self, name: str) -> int:
        """How far a partition was read; one that begins later has passed what is not there."""
        return max(self._read.get(name, 0), self._first.get(name, 0))

    def check(self, newest: int) -> None:
        """Raises where the events that were read again cannot be those that the old node read."""
        past = self.take_over
        if not self.gap and newest != past.newest:
            raise SourceError(
                "the source does not hold what the node before has read",
                given=f"the newest of those events is at {newest}, it was at {past.newest}",
                hint=f"give it all that {past.old} read, in the same order; without that: "
                "catchment nodes rm, then add it with an empty folder",
            )


def own_windows(charter: Charter) -> list[str]:
    """Queries that came while the tree ran and whose windows are those of one node's stream.

    Such windows began in the middle of the stream: whoever reads it from its beginning would count
    others.
    """
    planned = charter.plans[charter.plan].plan
    by_stream = {group.id for group in planned.groups if group.slicing == "stream"}
    since, first = added(charter, charter.plan), min(charter.plans)
    return sorted(
        name
        for name, (group, _) in planned.names.items()
        if group in by_stream and since.get(name, first) > first
    )


def _sent_before(told: TakeOver, charter: Charter) -> Iterator[SentBefore]:
    for body in told.messages:
        found = decode(body, charter)
        if found.head.read is not None:
            yield SentBefore(found.head.read, found.head, found.partials)
