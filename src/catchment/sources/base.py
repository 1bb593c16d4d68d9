"""What a source of events can do. Runtimes plan with it in one place and read in others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from catchment.durable.folder import Folder
from catchment.model.capacity import Capacity
from catchment.model.section import SectionByType, registry_of_types, type_of

Position = dict[str, int]
"""How far a source has been read, kept in the checkpoint as the offset: a place for each name, such
as the next message of each partition."""

_BAD: list[pa.Field[Any]] = [
    pa.field("origin", pa.string()),
    pa.field("place", pa.int64()),
    pa.field("reason", pa.string()),
    pa.field("body", pa.binary()),
]
BAD = pa.schema(_BAD)
"""Rows set aside: where they came from, where in there, why, and the bytes as they were read."""


@dataclass(frozen=True, slots=True)
class Split:
    """A share of the source that one task reads. The same split always gives the same events."""

    partition: str
    """The partition it belongs to. Frontiers are kept by partition."""
    arrival: int
    """The place of its first event in the partition's order; the next events take the next places.
    Rows where they can be counted, bytes or offsets otherwise: it only has to grow, by at least
    one an event."""
    body: Any
    """What the source needs to find it again: a record of its own, which only its `read` looks at.
    It can be pickled."""
    weight: int = 1
    """Roughly how much there is to read, in rows or bytes, to share splits out evenly."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some events of a split in order, and what could not be read as events."""

    events: pa.Table
    bad: pa.Table | None = None
    arrival: int | None = None
    """The place of the first event, where it does not follow from the events before it."""


@dataclass(frozen=True, slots=True)
class NeverRead:
    """Rows that are in a source and that no batch has read, and why."""

    origin: str
    """A file or a partition."""
    reason: str
    nbytes: int = 0
    rows: int | None = None
    """None: nobody knows how many."""
    waiting: bool = False
    """Whether the source looks at them again, and may still read them."""


_NAMED = 100
"""Files or partitions of which it is said one by one that rows of them were never read."""


def abridged(found: Iterable[NeverRead]) -> list[NeverRead]:
    """The first of them by name, and one for all the others together."""
    named: list[NeverRead] = []
    others: list[NeverRead] = []
    for one in sorted(found, key=lambda one: (one.waiting, one.origin)):
        (named if len(named) < _NAMED else others).append(one)
    if others:
        rows = [one.rows for one in others]
        known = None if None in rows else sum(count or 0 for count in rows)
        reason = f"and {len(others)} others, for reasons such as: {others[0].reason}"
        size = sum(one.nbytes for one in others)
        named.append(NeverRead("others", reason, size, known, others[0].waiting))
    return named


class Source(SectionByType, ABC):
    """A source: its options are its fields, so that it is checked, documented and pickled.

    On the driver, `open` comes first; then `start`, `latest`, `bound`, `splits`, `commit`, `ended`
    and `partitions` may be called, from one process. `read` is called in executors, on a copy that
    was never opened.
    """

    registry = registry_of_types("source", "catchment.sources", "catchment.sources")
    replays: ClassVar[bool] = True
    """Whether another process that starts anew, on another machine too, reads the same events in
    the same order from the beginning."""

    @abstractmethod
    def check(self) -> None:
        """Raises SourceError when nothing can be read: no such file, broker, topic or column."""

    @abstractmethod
    def event_schema(self) -> pa.Schema:
        """The columns of its events."""

    def table(self) -> str | None:
        """What SQL may call its events in FROM, such as a topic; None where they have no name."""
        return None

    def open(self, home: Folder) -> None:
        """Gets ready to plan. `home` is a folder of its own that outlives restarts."""
        return

    @abstractmethod
    def start(self) -> Position:
        """Where a new job begins."""

    @abstractmethod
    def latest(self, position: Position, bound: Position | None = None) -> Position:
        """How far the next batch reads: at most one batch's worth of events, at most to `bound`.

        Equal to `position` when there is nothing new. It must not lose its place when the answer is
        never used: after a crash it is asked again from the same position.
        """

    @abstractmethod
    def bound(self, position: Position) -> Position:
        """The end of what there is now: where a job that takes what is available stops."""

    @abstractmethod
    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        """What lies between two positions, in shares for about `parallel` tasks at once."""

    @abstractmethod
    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        """The events of a split in order, only with `columns` (None: all).

        Events that do not meet `where` (a condition in SQL) may be left out, but need not be.
        """

    def commit(self, position: Position) -> None:
        """Everything before the position is safely processed and is not asked for again."""
        return

    def ended(self, position: Position) -> bool:
        """Whether the source is finite and nothing can come after this position."""
        return False

    def partitions(self, position: Position) -> list[str]:
        """Partitions known to exist, events or not. Others become known by their events."""
        return []

    def waiting(self) -> dict[str, str]:
        """What planning has met and not taken, such as a file that is not whole, and why."""
        return {}

    def never_read(self) -> list[NeverRead]:
        """Looks for rows that are there now and that no batch has read, though it should have.

        What will be read by the next batches is not among them. Asked where batches are planned.
        """
        return []

    def capacities(self) -> list[Capacity]:
        """What grows where batches are planned, how large it is and may get."""
        return []

    def close(self) -> None:
        """Lets go of connections."""
        return


SourceType = TypeVar("SourceType", bound=Source)


def register_source(source: type[SourceType]) -> type[SourceType]:
    """Makes a source known by its `type`."""
    Source.registry.add(type_of(source), source)
    return source
