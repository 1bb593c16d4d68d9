"""Sources whose messages cannot be read again: they are kept in a spool, and read from there.

A receiver in the process that plans batches writes the spool; whoever reads a split reads its range
of bytes. What is not yet processed outlives a crash, and is freed when its batch is committed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple, cast
from urllib.parse import urlparse
from urllib.request import url2pathname

import pyarrow as pa
from pydantic import Field, PrivateAttr

from catchment.durable.folder import Folder
from catchment.errors import SourceError
from catchment.model.capacity import Capacity
from catchment.sources.aside import Aside, aside
from catchment.sources.base import NeverRead, Piece, Position, Source, Split, abridged
from catchment.sources.spool import Spool, SpoolDamage, SpoolPosition, Stored, runs

_SEGMENT = 16 << 20


class SpoolShare(NamedTuple):
    """The messages between two places of the spool."""

    folder: str
    start: SpoolPosition
    end: SpoolPosition


SpoolReader = Callable[[list[Stored], int], tuple[pa.Table, list[Aside]]]
"""Reads some messages, of which the first has this place: their events, and what are none."""


class SpooledSource(Source):
    """A source with a spool. A class below says what fills it, and how messages are read."""

    replays: ClassVar[bool] = False
    partition: ClassVar[str]
    """The name of its one partition."""
    when_full: ClassVar[str]
    """What happens to messages while the spool is full."""
    batch_bytes: ClassVar[int] = 64 << 20
    """About so many bytes of messages are read in one batch."""

    max_per_batch: int = Field(1_000_000, gt=0, description="messages per batch")
    max_spool: int = Field(1 << 30, gt=0, description="bytes of unprocessed messages on disk")

    _spool: Spool | None = PrivateAttr(None)
    _folder: Path | None = PrivateAttr(None)

    @abstractmethod
    def failure(self) -> SourceError | None:
        """Why nothing more is received; None as long as all is well."""

    @abstractmethod
    def reader(self, columns: list[str] | None) -> SpoolReader:
        """What reads the messages of a split as events, with these columns (None: all)."""

    @abstractmethod
    def blocks(self, stored: Iterator[Stored]) -> Iterator[list[Stored]]:
        """The messages in runs that are read at once, and that memory can hold."""

    @abstractmethod
    def spread(self) -> int:
        """How far apart the places of messages are in the order of arrival."""

    def open_spool(self, home: Folder) -> Spool:
        """The spool in the folder of the source, which must be on a disk of this machine."""
        self._folder = self._local(home) / "spool"
        self._spool = Spool(self._folder, max(1, min(_SEGMENT, self.max_spool // 4)))
        return self._spool

    def capacities(self) -> list[Capacity]:
        if self._spool is None:
            return []
        size = self._spool.size()
        return [Capacity("spool of messages", size, self.max_spool, "bytes", self.when_full)]

    def never_read(self) -> list[NeverRead]:
        if self._spool is None:
            return []
        lost = [
            NeverRead(str(one.path), one.reason, one.size, one.messages)
            for one in self._spool.damage()
        ]
        strange = [
            NeverRead(str(path), "no segment of the spool: the file is left as it is", rows=0)
            for path in self._spool.strange()
        ]
        return abridged([*lost, *strange])

    def start(self) -> Position:
        return _position(self.spool().first())

    def bound(self, position: Position) -> Position:
        return _position(self.spool().end)

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        spool = self.spool()
        failure = self.failure()
        if failure is not None:
            raise failure
        found = spool.upto(_spot(position), self.max_per_batch, self.batch_bytes)
        return _position(found if bound is None else min(found, _spot(bound)))

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        made = []
        for low, high in self.spool().ranges(_spot(start), _spot(end), parallel):
            body = SpoolShare(str(self._folder), low, high)
            arrival = low.messages * self.spread()
            made.append(Split(self.partition, arrival, body, high.byte - low.byte))
        return made

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        folder, start, end = cast(SpoolShare, split.body)
        read = self.reader(columns)
        place = start.messages
        lost: list[tuple[SpoolDamage, bytes]] = []
        for run in runs(Path(folder), start, end, lost):
            place = run.first
            for block in self.blocks(run.messages):
                events, bad = read(block, place)
                yield Piece(events, aside(bad), place * self.spread())
                place += len(block)
        if lost:  # no copy could be kept beside the spool, so nobody else tells of it
            events, _ = read([], place)
            told = [Aside(str(one.path), one.first, one.reason, data) for one, data in lost]
            yield Piece(events, aside(told), place * self.spread())

    def commit(self, position: Position) -> None:
        self.spool().free(_spot(position))

    def partitions(self, position: Position) -> list[str]:
        return [self.partition]

    def spool(self) -> Spool:
        """The spool of a source that is open."""
        if self._spool is None:
            raise SourceError("the source is not open", hint="call open() with a folder first")
        return self._spool

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()
        self._spool = None

    def _local(self, home: Folder) -> Path:
        if home.uri.startswith("file:"):
            return Path(url2pathname(urlparse(home.uri).path))
        if "://" in home.uri:
            raise SourceError(
                f"messages of a source of type {self.type} are kept on local disk",
                given=home.uri,
                hint="give the job a checkpoint on a local or shared disk",
            )
        return Path(home.uri)


def _position(spot: SpoolPosition) -> Position:
    return {"segment": spot.segment, "offset": spot.byte, "count": spot.messages}


def _spot(position: Position) -> SpoolPosition:
    return SpoolPosition(position["segment"], position["offset"], position["count"])
