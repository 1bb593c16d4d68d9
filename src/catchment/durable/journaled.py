"""State that outlives a crash as a snapshot and the entries since.

    a note    the snapshot: the number of the last entry that is in it, and the state
    a log     entries 1, 2, 3, ... of which those up to that number are forgotten

An entry is safe once `append` has returned. `compact` writes the snapshot, and only then forgets
entries: a crash in between leaves entries that are in the snapshot already, and are not replayed.
A start reads the snapshot and all entries after it, so it costs at most about twice the state: the
log is due to be compacted when it is longer than the last snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct

from catchment.durable.disk import Disk, damaged
from catchment.durable.records import RecordLog
from catchment.model import records
from catchment.model.capacity import Capacity

E = TypeVar("E")
S = TypeVar("S")

SHORTEST = 4 << 20
"""A log shorter than this is never worth a snapshot."""
ENTRY = 1 << 10
"""Bytes that an entry counts for at least, however short it is: its place is kept in memory, and a
start replays it."""


class _JournalSnapshot(Struct, frozen=True, array_like=True):
    number: Annotated[int, Meta(ge=0)]
    state: msgspec.Raw


class Journaled(Generic[E, S]):
    """A log of entries of one kind, behind a snapshot of a state.

    `log` and `snapshot` are names on the node's disk; `entry` and `state` are what is there: types,
    or unions of tagged Structs. `upto` is the last entry that counts, where somebody else says so:
    later ones were written for something that was never finished, and the next one takes their
    place.
    """

    def __init__(
        self,
        disk: Disk,
        log: str,
        snapshot: str,
        entry: type[E] | Any,
        state: type[S] | Any,
        upto: int | None = None,
    ) -> None:
        self._disk, self._snapshot = disk, snapshot
        self._log: RecordLog[E] = RecordLog(disk, log, entry)
        self.state: S | None = None
        """The state of the last snapshot, as it was found on the disk; None: there was none."""
        self._base = self._saved_bytes = self._used = 0
        held = disk.get(snapshot)
        if held is not None:
            found = records.unpack(_JournalSnapshot, held, snapshot, damaged)
            self.state = records.unpack(state, found.state, snapshot, damaged)
            self._base, self._saved_bytes = found.number, len(held)
        self.number = max(self._base, self._log.last if upto is None else upto)
        """The number of the last entry."""

    def replay(self) -> Iterator[E]:
        """The entries since the snapshot; raises if they are not all there."""
        gap = self._log.gap(self._base)
        if gap is not None and gap.after < self.number:
            raise gap.error()
        wanted = range(self._base + 1, self.number + 1)
        found = {number: entry for number, entry in self._log.entries() if number in wanted}
        if len(found) < len(wanted):
            lacking = next(number for number in wanted if number not in found)
            raise damaged(self._log.name, f"entry {lacking} of {self.number} is not there")
        self._used += max(self._log.nbytes, len(found) * ENTRY)
        yield from found.values()

    def append(self, entry: E) -> None:
        """Writes the next entry."""
        if self._log.last > self.number:
            if self.number > self._base:
                self._log.rewind(self.number)
            else:  # no entry of the log counts: none before the next one is missing
                self._log.clear()
        self._used += max(self._log.append(self.number + 1, entry), ENTRY)
        self.number += 1

    def grew(self, nbytes: int) -> None:
        """What an entry refers to, and a start must read again, has so many bytes more."""
        self._used += nbytes

    def capacity(self, name: str) -> Capacity:
        """How many bytes the log counts for, and from how many on it is due to be compacted."""
        most, then = max(SHORTEST, self._saved_bytes), "a snapshot takes the place of the log"
        return Capacity(name, self._used, most, "bytes", then)

    @property
    def due(self) -> bool:
        """Whether it is worth it to compact the log."""
        return self._used >= max(SHORTEST, self._saved_bytes)

    def compact(self, state: S, upto: int | None = None) -> None:
        """Writes the state as of an entry, the last one unless it is given; forgets those up to
        it."""
        number = self.number if upto is None else upto
        blob = records.pack(_JournalSnapshot(number, msgspec.Raw(records.pack(state))))
        self._disk.put(self._snapshot, blob)
        self._log.trim(number)
        self._base, self._saved_bytes, self._used = number, len(blob), 0
