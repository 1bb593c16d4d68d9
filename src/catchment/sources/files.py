"""Files as a stream: what all formats share. New files are found, journaled, and shared out.

A file is taken once, by its path. One that cannot be read, or lacks columns, waits and is looked at
again: `never_read` names it, with the reason and its rows. One that turns bad after it was taken is
read as far as it can be, and the rest is counted. What is appended to a file after it was taken, or
replaces it, is not read either, and `never_read` names that too. Folders may name columns and their
values (`hive.py`).
"""

from __future__ import annotations

import errno
import time
import zlib
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import pyarrow as pa
from msgspec import Struct
from pydantic import ConfigDict, Field, PrivateAttr, field_validator

from catchment.durable.folder import Folder
from catchment.errors import SourceError, UnreachableError
from catchment.model import records
from catchment.model.capacity import Capacity
from catchment.model.section import duration_option
from catchment.model.settings import not_negative
from catchment.sources.aside import reason_of
from catchment.sources.base import NeverRead, Piece, Position, Source, Split, abridged
from catchment.sources.hive import (
    folder_fields,
    folder_values,
    having,
    replaced,
    with_folders,
    without_folders,
)
from catchment.sources.journal import Journal, Stamp, TakenFile
from catchment.sources.listing import ListedFile, check_paths, find
from catchment.sources.sharing import FileShare, Part, shares
from catchment.sources.types import misfit, schema_of

_SCHEMA = "schema.json"
UNREADABLE = (OSError, pa.ArrowException, EOFError, UnicodeError, zlib.error)
"""What reading a broken file may raise. Arrow's errors are not all of one kind."""
_PASSING = {
    errno.EACCES,
    errno.EPERM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.ESTALE,
    errno.ETIMEDOUT,
}


def refuse_passing(error: BaseException) -> None:
    """Raises again what may be over at the next try: nothing is given up for that."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) in _PASSING:
        raise error


@dataclass(frozen=True, slots=True)
class ExaminedFile:
    """What a look at a file tells: its columns, and the rows of its parts where it says."""

    schema: pa.Schema | None
    groups: list[int] | None = None


@dataclass(frozen=True, slots=True)
class _Waiting:
    size: int
    mtime_ns: int
    reason: str
    again: bool
    """Whether it is looked at again although it has not changed."""
    rows: int | None = None


class KeptSchema(Struct, frozen=True):
    """The columns of the events, kept beside the journal."""

    given: dict[str, str] | None
    """As the job file said; others begin anew."""
    schema: bytes
    """The schema, in Arrow's format."""


class FileSource(Source):
    """Files of one format: those there are, and those that come."""

    model_config = ConfigDict(populate_by_name=True)
    endings: ClassVar[tuple[str, ...]]

    path: str | tuple[str, ...] = Field(description="a file, a folder, a pattern, or several")
    types: dict[str, str] | None = Field(
        default=None,
        alias="schema",
        description="column names and types; by default the first file's",
    )
    max_files_per_batch: int = Field(default=64, gt=0)
    settle: Annotated[str, duration_option("settle time")] = Field(
        default="1s", description="how long lines must be unchanged"
    )
    max_known_files: int = Field(
        default=1_000_000, gt=0, description="names of files that are remembered as read"
    )

    _journal: Journal | None = PrivateAttr(None)
    _home: Folder | None = PrivateAttr(None)
    _schema: pa.Schema | None = PrivateAttr(None)
    _waiting: dict[str, _Waiting] = PrivateAttr(default_factory=dict)
    _met: dict[str, tuple[int, int, float]] = PrivateAttr(default_factory=dict)
    _remembered: bool = PrivateAttr(False)
    _first: tuple[pa.Schema, ListedFile] | None = PrivateAttr(None)
    _grown: dict[str, tuple[Stamp, NeverRead]] = PrivateAttr(default_factory=dict)

    @field_validator("types")
    @classmethod
    def _known_types(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        schema_of(value or {})
        return value or None

    def table(self) -> str | None:
        """The name of the one file or folder, without its ending: `rides` for data/rides.csv.gz."""
        paths = (self.path,) if isinstance(self.path, str) else self.path
        name = paths[0].rstrip("/").rpartition("/")[2].partition(".")[0] if len(paths) == 1 else ""
        return name if name and not set("*?[") & set(name) else None

    # What a format adds.

    @abstractmethod
    def examine(self, found: ListedFile) -> ExaminedFile:
        """A cheap look at a file; raises one of UNREADABLE when it is not whole."""

    @abstractmethod
    def infer(self, found: ListedFile) -> pa.Schema:
        """The columns of a file, where none were given; raises one of UNREADABLE."""

    @abstractmethod
    def pieces(self, part: Part, schema: pa.Schema, where: str | None) -> Iterator[Piece]:
        """The events of a part of a file in these columns, and what of it could not be read."""

    def span(self, found: ListedFile) -> int:
        """More places than a file has events, where its rows are not known."""
        return found.size

    def may_grow(self, found: ListedFile) -> bool:
        """Whether a half-written file of this kind looks like a whole one."""
        return False

    def rows_after(self, path: str, start: int) -> int | None:
        """The rows of a file after a byte, where that can be told; 0 is its beginning."""
        if start:
            return None
        try:
            groups = self.examine(ListedFile(path, "", 0, 0)).groups
        except UNREADABLE:
            return None
        return None if groups is None else sum(groups)

    def refine(self, schema: pa.Schema, found: ListedFile) -> pa.Schema:
        """The schema with the types that are fastest to read."""
        return schema

    # The schema.

    def check(self) -> None:
        check_paths(self._paths)
        files = self._list()
        schema, found = self._first_readable(files)
        if found is None:
            if files:
                raise self._none_readable(files[0])
            return
        self._first = schema, found
        have = self._having(found, self.examine(found), schema)
        if have is not None and (lacking := misfit(have, schema)):
            raise SourceError("a file does not fit the schema", given=found.path, hint=lacking)

    def event_schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self._checked_schema()
        if self._schema is None:
            schema, found = self._first_readable(self._list())
            self._schema = schema if found is None else self.refine(schema, found)
        return self._schema

    def _checked_schema(self) -> pa.Schema | None:
        """The schema of the file that `check` found; None where it is not there any more."""
        try:
            return None if self._first is None else self.refine(*self._first)
        except UNREADABLE:
            return None

    def _first_readable(self, files: list[ListedFile]) -> tuple[pa.Schema, ListedFile | None]:
        """The schema as given, or as the first file that can be read has it; and that file."""
        for found in files:
            try:
                self.examine(found)
                schema = schema_of(self.types) if self.types else self._inferred(found, files)
            except UNREADABLE:
                continue
            return schema.remove_metadata(), found
        if self.types is not None:
            return schema_of(self.types), None
        check_paths(self._paths)
        raise self._none_readable(files[0]) if files else self._nothing_yet()

    def _inferred(self, found: ListedFile, files: list[ListedFile]) -> pa.Schema:
        """The columns of a file, and those that folders name."""
        return replaced(self.infer(found), folder_fields(file.partition for file in files))

    def _having(
        self, found: ListedFile, examined: ExaminedFile, wanted: pa.Schema
    ) -> pa.Schema | None:
        """The columns that a file and its folders have, where that can be told."""
        have = examined.schema
        return None if have is None else having(have, found.partition, wanted)

    def _none_readable(self, first: ListedFile) -> SourceError:
        try:
            self.examine(first)
            self.infer(first)
            why = ""
        except UNREADABLE as error:
            why = f"{first.path}: {reason_of(error)}"
        return SourceError("no file can be read", given=self.path, hint=why)

    def _nothing_yet(self) -> SourceError:
        return UnreachableError(
            "the columns are not known: there is no file yet",
            given=self.path,
            hint="give them, as in schema: {ts: timestamp, v: double}",
        )

    def _remember_schema(self) -> None:
        """Keeps the schema with the journal: the first file may be gone after a restart."""
        if self._home is None or self._remembered:
            return
        columns = KeptSchema(self.types, self.event_schema().serialize().to_pybytes())
        self._home.write(_SCHEMA, records.encode(columns))
        self._remembered = True

    # Planning, on the driver.

    def open(self, home: Folder) -> None:
        self._home, self._journal = home, Journal(home)
        held = home.read(_SCHEMA)
        what = f"{home.shown}/{_SCHEMA}"
        known = None if held is None else records.decode(KeptSchema, held, what)
        self._remembered = known is not None and known.given == self.types
        if known is not None and self._remembered:
            self._schema = pa.ipc.read_schema(pa.py_buffer(known.schema))

    def start(self) -> Position:
        return {"n": 0}

    def latest(self, position: Position, bound: Position | None = None) -> Position:
        n = position["n"]
        if n > self._opened.last:
            raise SourceError(
                "the journal of files is behind the checkpoint",
                given=f"{n}",
                hint="its folder was changed: restore it, or start with a new checkpoint",
            )
        if bound is not None and n >= bound["n"]:
            return position
        if self._opened.last > n:
            return {"n": n + 1}
        if bound is not None:
            return position
        fresh = self._fresh_files(self._list(), self.max_files_per_batch)
        return {"n": self._add(fresh)} if fresh else position

    def bound(self, position: Position) -> Position:
        fresh = self._fresh_files(self._settled_files(), None)
        for first in range(0, len(fresh), self.max_files_per_batch):
            self._add(fresh[first : first + self.max_files_per_batch])
        return {"n": max(self._opened.last, position["n"])}

    def splits(self, start: Position, end: Position, parallel: int) -> list[Split]:
        taken = [file for n in range(start["n"] + 1, end["n"] + 1) for file in self._opened[n]]
        return shares(taken, parallel, self.event_schema()) if taken else []

    def commit(self, position: Position) -> None:
        self._opened.commit(position["n"])

    def partitions(self, position: Position) -> list[str]:
        return self._opened.partitions(position["n"])

    def waiting(self) -> dict[str, str]:
        """Files that are not taken yet, and why."""
        return {path: entry.reason for path, entry in self._waiting.items()}

    def never_read(self) -> list[NeverRead]:
        files = {found.path: found for found in self._list()}
        seen = self._opened.seen
        found = [
            NeverRead(path, entry.reason, entry.size, entry.rows, waiting=True)
            for path, entry in self._waiting.items()
            if path in files and path not in seen
        ]
        self._grown = {
            path: self._changed(files[path], taken)
            for path, taken in seen.items()
            if path in files and files[path][2:] != taken
        }
        return abridged([*found, *(grown for _, grown in self._grown.values())])

    def _changed(self, found: ListedFile, taken: Stamp) -> tuple[Stamp, NeverRead]:
        """What came into a file after it was taken."""
        now = found.size, found.mtime_ns
        known = self._grown.get(found.path)
        if known is not None and known[0] == now:
            return known
        more = found.size - taken[0]
        if more > 0 and self.may_grow(found):
            reason = f"{more} bytes came after the file was read"
            rows = self.rows_after(found.path, taken[0])
        else:
            reason, more = "the file was written anew after it was read", found.size
            rows = self.rows_after(found.path, 0)
        return now, NeverRead(found.path, reason, more, rows)

    def capacities(self) -> list[Capacity]:
        known = 0 if self._journal is None else len(self._journal.seen)
        then = "names of files that are gone are forgotten; if none is, the job fails"
        return [Capacity("files known as read", known, self.max_known_files, "entries", then)]

    # Reading, in executors.

    def read(self, split: Split, columns: list[str] | None, where: str | None) -> Iterator[Piece]:
        share: FileShare = split.body
        schema = share.schema
        if columns:
            schema = pa.schema([schema.field(name) for name in columns])
        values = {n: v for n, v in folder_values(split.partition).items() if n in schema.names}
        own = without_folders(schema, values) if values else schema
        if where is not None and any(name in where for name in values):
            where = None  # files do not hold what it asks for
        for part in share.parts:
            for piece in self.pieces(part, own, where):
                if values:
                    piece = replace(piece, events=with_folders(piece.events, schema, values))
                yield piece

    # Discovery.

    @property
    def _opened(self) -> Journal:
        if self._journal is None:
            raise SourceError("the source is not open", hint="call open(home) first")
        return self._journal

    @property
    def _paths(self) -> tuple[str, ...]:
        return (self.path,) if isinstance(self.path, str) else self.path

    def _list(self) -> list[ListedFile]:
        return find(self._paths, self.endings)

    def _fresh_files(
        self, there: list[ListedFile], most: int | None
    ) -> list[tuple[ListedFile, ExaminedFile]]:
        """Files not taken yet, by their times, that can be read now; `there` is a listing.

        A listing may lack a file that came while it was made and have one that came later. So what
        is new is listed once more: files that are put in place one after the other are read in
        this order, and no event is late because its file was overlooked.
        """
        seen = self._opened.seen
        files = [found for found in there if found.path not in seen]
        listed, latest = {f.path for f in files}, max((f.mtime_ns for f in files), default=0)
        if files:
            files = [found for found in self._list() if found.path not in seen]
        self._forget_gone({found.path for found in files})
        files = [f for f in files if f.path in listed or f.mtime_ns <= latest]
        fresh: list[tuple[ListedFile, ExaminedFile]] = []
        for found in sorted(files, key=lambda f: (f.mtime_ns, f.path)):
            if len(fresh) == most:
                break
            examined = self._examined(found)
            if examined is not None:
                fresh.append((found, examined))
        return fresh

    def _examined(self, found: ListedFile) -> ExaminedFile | None:
        """A look at a file, unless it is not ready; then it waits."""
        before = self._waiting.get(found.path)
        same = before is not None and (before.size, before.mtime_ns) == found[2:]
        if before is not None and same and not before.again:
            return None
        examined: ExaminedFile | None = None
        try:
            if self.may_grow(found) and not self._settled(found):
                return None
            examined = self.examine(found)
            have = self._having(found, examined, self.event_schema())
            reason, again = have is not None and misfit(have, self.event_schema()), False
        except UNREADABLE as error:
            reason, again = reason_of(error), True
        if reason:
            rows = None if examined is None else self._rows(found, examined)
            self._waiting[found.path] = _Waiting(*found[2:], reason, again, rows)
            return None
        self._waiting.pop(found.path, None)
        self._met.pop(found.path, None)
        return examined

    def _rows(self, found: ListedFile, examined: ExaminedFile) -> int | None:
        """How many rows a file has, where it or its lines say so."""
        return self.rows_after(found.path, 0) if examined.groups is None else sum(examined.groups)

    def _settled(self, found: ListedFile) -> bool:
        """Unchanged for long enough, by its own time or, where clocks differ, by ours."""
        least = not_negative(self.settle, "settle time") / 1e6
        size, mtime, since = self._met.get(found.path, (-1, -1, 0.0))
        now = time.monotonic()
        if (size, mtime) != found[2:]:
            since = now
            self._met[found.path] = (*found[2:], since)
        return time.time() - found.mtime_ns / 1e9 >= least or now - since >= least

    def _settled_files(self) -> list[ListedFile]:
        """What there is, once it is settled: a job over what there is now must not leave out the
        file written just before it."""
        there, seen = self._list(), self._opened.seen
        files = [found for found in there if found.path not in seen]
        if all(self._settled(found) for found in files if self.may_grow(found)):
            return there
        time.sleep(not_negative(self.settle, "settle time") / 1e6)
        return self._list()

    def _forget_gone(self, there: set[str]) -> None:
        for memory in (self._waiting, self._met):
            for path in [path for path in memory if path not in there]:
                del memory[path]

    def _add(self, files: list[tuple[ListedFile, ExaminedFile]]) -> int:
        journal = self._opened
        self._make_room(len(files))
        self._remember_schema()
        taken: list[TakenFile] = []
        ends: dict[str, int] = {}
        for found, examined in files:
            rows = None if examined.groups is None else sum(examined.groups)
            base = ends.get(found.partition, journal.base(found.partition))
            span = self.span(found) if rows is None else rows
            taken.append(TakenFile(*found, rows, examined.groups, base, span))
            ends[found.partition] = base + span
        return journal.add(taken)

    def _make_room(self, more: int) -> None:
        """Forgets the names of files that are gone, where there are too many to remember."""
        seen = self._opened.seen
        if len(seen) + more <= self.max_known_files:
            return
        there = {found.path for found in self._list()}
        self._opened.forget([path for path in seen if path not in there])
        if len(seen) + more > self.max_known_files:
            raise SourceError(
                "more files were read than can be remembered",
                given=f"{len(seen) + more:,} of {self.max_known_files:,}",
                hint="move files away once they are read, or raise max_known_files",
            )
