"""Which files were taken in which batch, written down before it is read: none is lost or doubled.

Entry n is a small file of its own. Once batches are safely processed, entries are folded into one
file of all names taken so far, so that a job of many years opens as fast as a new one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from catchment.durable.folder import Folder
from catchment.errors import SourceError

FOLD = 256
"""Entries that are kept apart before they are folded."""

_FOLDED = ".folded.json"


Stamp = tuple[int, int]
"""A file's size, and when it was last written (in nanoseconds)."""


@dataclass(frozen=True, slots=True)
class Taken:
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


class Journal:
    """The entries of a source, in a folder of its own."""

    def __init__(self, home: Folder) -> None:
        self._home = home
        self.last = 0
        self.seen: dict[str, Stamp | None] = {}
        """Every file that was taken, as it was then (None: an older version did not note it)."""
        self._entries: dict[int, list[Taken]] = {}
        self._ends: dict[str, int] = {}
        self._born: dict[str, int] = {}
        self._folded = 0
        self._load()

    def __getitem__(self, n: int) -> list[Taken]:
        if n not in self._entries:
            raise SourceError(
                "the journal of files has no such entry",
                given=f"{n} in {self._home.uri}",
                hint="the checkpoint is older than what was committed, or its folder was changed",
            )
        return self._entries[n]

    def base(self, partition: str) -> int:
        """Where the next event of a partition stands."""
        return self._ends.get(partition, 0)

    def partitions(self, n: int) -> list[str]:
        """Those that have appeared up to an entry."""
        return sorted(name for name, born in self._born.items() if born <= n)

    def add(self, files: list[Taken]) -> int:
        """Writes the next entry; it counts from the moment its file is in place."""
        n = self.last + 1
        text = json.dumps({"files": [asdict(file) for file in files]}, separators=(",", ":"))
        self._home.write(f"{n:09d}.json", text.encode())
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
        state = {"seen": dict(sorted(seen.items())), "ends": ends, "born": born}
        self._home.write(f"{n:09d}{_FOLDED}", json.dumps(state).encode())
        before, self._folded = self._folded, n
        for old in range(before + 1, n + 1):
            self._entries.pop(old, None)
            self._home.remove(f"{old:09d}.json")
        self._home.remove(f"{before:09d}{_FOLDED}")

    def forget(self, paths: Iterable[str]) -> None:
        """Names of files that are not there any more: one that comes back is a new file."""
        for path in paths:
            self.seen.pop(path, None)

    def _take(self, n: int, files: list[Taken]) -> None:
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
            state = self._read(folded[-1])
            self._folded = self.last = int(folded[-1].removesuffix(_FOLDED))
            known = state["seen"]
            old = known if isinstance(known, dict) else dict.fromkeys(known)
            self.seen = {path: None if at is None else (at[0], at[1]) for path, at in old.items()}
            self._ends, self._born = state["ends"], state["born"]
        entries = [name for name in names if name.removesuffix(".json").isdigit()]
        for name in entries:
            n = int(name.removesuffix(".json"))
            if n > self._folded:  # older ones were folded; a crash kept them from being removed
                self._take(n, [Taken(**file) for file in self._read(name)["files"]])

    def _read(self, name: str) -> Any:
        data = self._home.read(name)
        try:
            return json.loads(data or b"")
        except ValueError as error:
            raise SourceError(
                "the journal of files cannot be read",
                given=f"{self._home.uri}/{name}",
                hint="restore it, or start the job with a new checkpoint",
            ) from error
