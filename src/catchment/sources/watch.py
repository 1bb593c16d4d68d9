"""What the process that plans batches says of the source, for those who ask for a job's status.

Planning may be in another process than whoever asks, so what it says is a small file in the
source's folder: which rows were never read and why, and how full the source's buffers are.
"""

from __future__ import annotations

import time

from msgspec import Struct

from catchment.durable.folder import Folder
from catchment.model import records
from catchment.model.capacity import Capacity
from catchment.sources.base import NeverRead, Source

_NOTE = "never_read.json"
_LOOK = 2.0
"""Seconds between looks at what the source has never read."""


class SourceNote(Struct, frozen=True):
    """What the planner says of the source to those who ask for the job's status."""

    never_read: tuple[NeverRead, ...] = ()
    limits: tuple[Capacity, ...] = ()

    @classmethod
    def load(cls, folder: Folder) -> SourceNote:
        return records.decode(cls, folder.read(_NOTE) or b"{}", f"{folder.shown}/{_NOTE}")

    def save(self, folder: Folder) -> None:
        folder.write(_NOTE, records.encode(self))


class SourceWatch:
    """Looks now and then at what the source has never read, and writes down what is new."""

    def __init__(self, folder: Folder, source: Source) -> None:
        self.folder, self.source = folder, source
        self._said = SourceNote.load(folder)
        self._next = 0.0

    def look(self, last: bool) -> None:
        """Looks, if it is time; `last`: the job reads no further."""
        if time.monotonic() < self._next and not last:
            return
        self._next = time.monotonic() + _LOOK
        found = SourceNote(tuple(self.source.never_read()), tuple(self.source.capacities()))
        if found != self._said:
            found.save(self.folder)
            self._said = found
