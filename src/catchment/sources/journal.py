"""Which files were taken in which batch, written down before it is read: none is lost or doubled.

Entry n is a small file of its own. Once batches are safely processed, entries are folded into one
file of all names taken so far, so that a job of many years opens as fast as a new one.

This is not a `durable.journaled.Journaled`: the folder may be in a store of objects, which cannot
append to a log, and entries that are not folded yet are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from msgspec import Struct

from catchment.durable.folder import Folder
from catchment.errors import SourceError, StateError
from catchment.model import records

_T = TypeVar("_T")

FOLD = 256
"""Entries that are kept apart before they are folded."""

_FOLDED = ".folded.json"


Stamp = tuple[int, int]
"""A file's size, and when it was last written (in nanoseconds)."""


class TakenFile(Struct, frozen=True):
    """A file of a batch. `base` is where its first event stands in its partition."""

    path: str
    partition: str
    size: int
    mtime_ns: int
    rows: int | None
    groups: list[int] | None
    base: int
    span: int
    """How many places it takes: its rows where they are known, else more than it can have."""


class Entry(Struct, frozen=True):
    """The files of a batch."""

    files: list[TakenFile]


class Folded(Struct, frozen=True):
    """All that older entries said."""

    seen: dict[str, Stamp]
    """Every file that was taken, as it was then."""
    ends: dict[str, int]
    """By partition: where its next event stands."""
    born: dict[str, int]
    """By partition: the entry with its first file."""


class Journal:
    """The entries of a source, in a folder of its own."""

    def __init__(self, home: Folder) -> None:
        self._home = home
        self.last = 0
        self.seen: dict[str, Stamp] = {}
        """Every file that was taken, as it was then."""
        self._entries: dict[int, list[TakenFile]] = {}
        self._ends: dict[str, int] = {}
        self._born: dict[str, int] = {}
        self._folded = 0
        self._load()

    def __getitem__(self, n: int) -> list[TakenFile]:
        if n not in self._entries:
            raise SourceError(
                "the journal of files has no such entry",
                given=f"{n} in {self._home.shown}",
                hint="the checkpoint is older than what was committed, or its folder was changed",
            )
        return self._entries[n]

    def base(self, partition: str) -> int:
        """Where the next event of a partition stands."""
        return self._ends.get(partition, 0)

    def partitions(self, n: int) -> list[str]:
        """Those that have appeared up to an entry."""
        return sorted(name for name, born in self._born.items() if born <= n)

    def add(self, files: list[TakenFile]) -> int:
        """Writes the next entry; it counts from the moment its file is in place."""
        n = self.last + 1
        self._home.write(f"{n:09d}.json", records.encode(Entry(files)))
        self._take(n, files)
        return n

    def commit(self, n: int) -> None:
        """Entries up to n are not asked for again."""
        if n - self._folded < FOLD:
            return
        ends: dict[str, int] = dict(self._ends)
        seen = dict(self.seen)
        for later in range(n + 1, self.last + 1):
            for file in self._entries[later]:
                seen.pop(file.path, None)
                ends[file.partition] = min(ends[file.partition], file.base)
        born = {name: first for name, first in self._born.items() if first <= n}
        state = Folded(dict(sorted(seen.items())), ends, born)
        self._home.write(f"{n:09d}{_FOLDED}", records.encode(state))
        before, self._folded = self._folded, n
        for old in range(before + 1, n + 1):
            self._entries.pop(old, None)
            self._home.remove(f"{old:09d}.json")
        self._home.remove(f"{before:09d}{_FOLDED}")

    def forget(self, paths: Iterable[str]) -> None:
        """Names of files that are not there any more: one that comes back is a new file."""
        for path in paths:
            self.seen.pop(path, None)

    def _take(self, n: int, files: list[TakenFile]) -> None:
        self.last = n
        self._entries[n] = files
        for file in files:
            self.seen[file.path] = file.size, file.mtime_ns
            self._ends[file.partition] = file.base + file.span
            self._born.setdefault(file.partition, n)

    def _load(self) -> None:
        names = self._home.names()
        folded = [name for name in names if name.endswith(_FOLDED)]
        if folded:
            state = self._read(folded[-1], Folded)
            self._folded = self.last = int(folded[-1].removesuffix(_FOLDED))
            self.seen = state.seen
            self._ends, self._born = state.ends, state.born
        entries = [name for name in names if name.removesuffix(".json").isdigit()]
        for name in entries:
            n = int(name.removesuffix(".json"))
            if n > self._folded:  # older ones were folded; a crash kept them from being removed
                self._take(n, self._read(name, Entry).files)

    def _read(self, name: str, kind: type[_T]) -> _T:
        data = self._home.read(name)
        try:
            return records.decode(kind, data or b"", "the journal of files")
        except StateError as error:
            raise SourceError(
                "the journal of files cannot be read",
                given=f"{self._home.shown}/{name}",
                hint="restore it, or start the job with a new checkpoint",
            ) from error
