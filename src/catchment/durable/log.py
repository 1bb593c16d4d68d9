"""A log: numbered entries, appended to segment files, each safe once `append` has returned.

    folder/000000000001.log    header | entry | entry | entry | ...
    folder/000000000002.log    header | entry | ...                  the one that is written to
    folder/mark                how far the log has come, as far as anybody remembers
    folder/damaged/...         copies of what could not be read

A **header** names the log and the segment, says which entry was the last one before the segment,
and up to which entry all had been trimmed when the segment was begun. Only files that carry the
header of this log are ever written to or deleted. An **entry** has a number, the number of the
entry before it, and checksums of its own head and of what is in it, which begin with a random
number of the segment: what somebody wrote into an entry cannot pass for an entry.

The entries are a chain, and the chain decides what is missing. Half an entry at the end of a
segment is of no account if the next entry follows on the one before it: nobody was told that it is
safe. A segment replaces all entries after the one that it follows on. So nothing is ever cut off
or repaired in place: a log that is opened again goes on in a new segment.

The end of the chain cannot tell that something after it is missing: the **mark** does. It is
written after each entry without a sync, so it is never ahead of the log. If only the process was
killed it is exact; after the power has failed it may be old, or unreadable, and then it says
nothing.

Numbers only grow; they need not be consecutive. Costs: an append is one write and one sync;
reading an entry is one read; opening reads all segments once. In memory each entry takes a few
machine words.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from catchment.durable.files import File, FileSystem, LocalFiles, make_folders, write_whole
from catchment.durable.sealed import carries, seal, unseal
from catchment.errors import StateError

_log = logging.getLogger("catchment.durable")

SEGMENT = 8 << 20
"""Bytes after which a segment is full, and bytes that may be deleted before they are."""
RESTORE = (
    "restore the whole folder from a backup; without one, remove the node from its tree, empty its "
    "folder and add it again"
)
NEVER = -1
"""The number before the first entry."""

_MAGIC = b"catchlog"
_VERSION = 1
_HEADER = struct.Struct(">8sHHQqqI")
"""Magic, version, length of the name, segment, entry before it, trimmed up to, random number."""
_CHECK = struct.Struct(">I")
_MARKER = b"\xc5\x1cEN"
_ENTRY = struct.Struct(">4sIIQqQ")
"""Marker, checksum of what follows in the head, of the body; number, the one before, length."""
_MARK = struct.Struct(">Qqq")
"""Segment, last entry, trimmed up to."""
_NAMED = re.compile(r"(\d{12})\.log")


@dataclass(frozen=True)
class Damage:
    """A stretch of a file that cannot be read, and what that means."""

    path: str
    at: int
    size: int
    what: str

    def __str__(self) -> str:
        return f"{self.path} at byte {self.at} ({self.size} bytes): {self.what}"


@dataclass(frozen=True)
class LostEntries:
    """Entries that were safe and cannot be read: those after one number, up to another."""

    after: int
    upto: int
    where: str

    def error(self) -> StateError:
        """The sentence for whoever cannot go on without them."""
        first = self.after + 1
        which = f"entry {first}" if self.upto == first else f"entries {first} to {self.upto}"
        return StateError(
            "a log is damaged: what was written there cannot be read",
            given=f"{which} of {self.where}",
            hint=RESTORE,
        )


class _EntryPlace(NamedTuple):
    """Where an entry is."""

    segment: int
    at: int
    size: int
    previous: int
    checksum: int


@dataclass
class _Segment:
    """A file of the log."""

    number: int
    path: str
    previous: int
    trimmed: int
    seed: int
    size: int = 0
    newest: int = NEVER
    """The last entry in it; or the one before it, while it has none."""
    bad: list[tuple[int, int]] = field(default_factory=list)
    """Stretches that are no entries: from, to."""


class FileLog:
    """Entries in files.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> log = FileLog(folder, "doc")
    >>> log.append(1, b"one"); log.append(2, b"two"); log.close()
    >>> again = FileLog(folder, "doc")
    >>> list(again.entries()), again.last, again.gap(0)
    ([(1, b'one'), (2, b'two')], 2, None)
    """

    def __init__(
        self, folder: str, name: str, files: FileSystem | None = None, segment: int = SEGMENT
    ) -> None:
        self.folder, self.name = folder, name
        self._files: FileSystem = LocalFiles() if files is None else files
        self._most = segment
        self._segments: dict[int, _Segment] = {}
        self._places: dict[int, _EntryPlace] = {}
        self._bytes = 0
        self._last = self._trimmed = NEVER
        self._highest = 0
        """The number of the last segment, or of another file of such a name."""
        self._file: File | None = None
        self._open: _Segment | None = None
        """The segment that is written to."""
        self._mark_file: File | None = None
        self._mark_counts = False
        """Whether only the mark says which entries were trimmed before their files were deleted."""
        self.damage: list[Damage] = []
        """What was found that cannot be read, since the log was opened."""
        with self._explained(folder):
            make_folders(self._files, folder)
            self._load()

    # -- opening ----------------------------------------------------------------------------------

    def _load(self) -> None:
        torn: list[_Segment] = []
        for name in self._files.names(self.folder):
            named = _NAMED.fullmatch(name)
            if named is None:
                continue
            self._highest = max(self._highest, int(named[1]))
            segment = self._scan(f"{self.folder}/{name}", int(named[1]))
            if segment is not None and segment.bad:
                torn.append(segment)
        self._places = dict(sorted(self._places.items()))
        absent = self.gap(NEVER)
        self._read_mark()
        self._mark_counts = absent is not None and absent.upto <= self._trimmed
        self._places = {n: place for n, place in self._places.items() if n > self._trimmed}
        self._bytes = sum(place.size for place in self._places.values())
        for segment in torn:
            self._judge(segment)
        lost = self.gap(NEVER)
        if lost is not None:
            self._report(Damage(lost.where, 0, 0, f"entries up to {lost.upto} are missing"))

    def _scan(self, path: str, number: int) -> _Segment | None:
        data = self._files.read(path)
        segment = self._segment(path, number, data)
        if segment is None:
            return None
        self._segments[number] = segment
        self._supersede(segment.previous)
        self._trimmed = max(self._trimmed, segment.trimmed)
        at = _header_size(self.name)
        while at < len(data):
            found = _entry(data, at, segment.seed)
            if found is None:
                following = _next_entry(data, at + 1, segment.seed)
                segment.bad.append((at, following))
                at = following
                continue
            entry, place = found
            place = place._replace(segment=number)
            if entry not in self._places or entry > segment.newest:
                self._places[entry] = place
            elif self._places[entry].checksum == place.checksum:
                self._report(Damage(path, at, place.size, f"entry {entry} is there twice"))
            segment.newest = max(segment.newest, entry)
            self._last = max(self._last, entry)
            at += place.size
        segment.size = len(data)
        return segment

    def _segment(self, path: str, number: int, data: bytes) -> _Segment | None:
        """What the header of a file says; None if it is not this log's."""
        size = _header_size(self.name)
        head = data[:size]
        if len(head) == size and zlib.crc32(head[:-4]) == _CHECK.unpack(head[-4:])[0]:
            magic, version, length, held, previous, trimmed, seed = _HEADER.unpack_from(head)
            name = head[_HEADER.size : _HEADER.size + length].decode(errors="replace")
            if magic == _MAGIC and version == _VERSION and name == self.name and held == number:
                return _Segment(number, path, previous, trimmed, seed, newest=previous)
        unfinished = len(data) < size and _MAGIC.startswith(data[: len(_MAGIC)])
        if not unfinished:
            what = "no segment of this log: the file is left as it is"
            self._report(Damage(path, 0, len(data), what))
        return None

    def _supersede(self, previous: int) -> None:
        """Forgets the entries after one: a later segment follows on it."""
        for number in [number for number in self._places if number > previous]:
            del self._places[number]
        self._last = previous
        self._trimmed = min(self._trimmed, previous)

    def _read_mark(self) -> None:
        try:
            blob = self._files.read(self._mark_path)
        except FileNotFoundError:
            return
        data = unseal(self._mark_name, blob)
        if data is None or len(data) != _MARK.size:
            _log.info("%s says nothing: the power may have failed", self._mark_path)
            return
        segment, last, trimmed = _MARK.unpack(data)
        newest = max(self._segments, default=0)
        if segment < newest:
            return  # the header of a later segment says more
        if segment > newest:
            self._supersede(min(self._last, last))
        self._last = max(self._last, last)
        self._trimmed = max(self._trimmed, trimmed)
        self._highest = max(self._highest, segment)

    def _judge(self, segment: _Segment) -> None:
        """Sets aside what cannot be read, unless a crash explains it."""
        later = [other.previous for n, other in self._segments.items() if n > segment.number]
        after = min(later, default=self._last)  # entries after this one were replaced
        for at, end in segment.bad:
            at_end = end == segment.size
            if at_end and after <= max(segment.newest, self._trimmed):
                continue  # it was being written, and nobody was told that it is safe
            data = self._files.read(segment.path, at, end - at)
            self._report(Damage(segment.path, at, end - at, "no entry can be read there"))
            name = f"{segment.number:012d}-{at}"
            if name not in self._files.names(f"{self.folder}/damaged"):
                with contextlib.suppress(OSError):  # a full disk must not keep the log from opening
                    write_whole(self._files, f"{self.folder}/damaged", name, data)

    def _report(self, damage: Damage) -> None:
        self.damage.append(damage)
        _log.warning("the log %s is damaged: %s", self.name, damage)

    # -- what is there ----------------------------------------------------------------------------

    @property
    def last(self) -> int | None:
        """The number of the last entry that was ever safe, even if it was trimmed or is lost."""
        return None if self._last == NEVER else self._last

    @property
    def nbytes(self) -> int:
        """Bytes of the entries that are not trimmed."""
        return self._bytes

    def entries(self, after: int = NEVER) -> Iterator[tuple[int, bytes]]:
        """The entries after a number that can be read, in order; `gap` says if that is all."""
        return ((number, self.read(number)) for number in [*self._places] if number > after)

    def gap(self, after: int) -> LostEntries | None:
        """The first entries after a number that were safe, were not trimmed and cannot be read."""
        at = max(after, self._trimmed)
        for number, place in self._places.items():
            if number <= at:
                continue
            if place.previous > at:
                return LostEntries(at, place.previous, self.folder)
            at = number
        return LostEntries(at, self._last, self.folder) if at < self._last else None

    def read(self, number: int) -> bytes:
        """One entry."""
        place = self._places.get(number)
        if place is None:
            raise LostEntries(number - 1, number, self.folder).error()
        segment = self._segments[place.segment]
        with self._explained(segment.path):
            data = self._files.read(segment.path, place.at, place.size)
        found = _entry(data, 0, segment.seed)
        if found is None or found[0] != number:
            self._report(Damage(segment.path, place.at, place.size, "no entry can be read there"))
            raise LostEntries(number - 1, number, segment.path).error()
        return data[_ENTRY.size :]

    # -- what changes -----------------------------------------------------------------------------

    def append(self, number: int, body: bytes) -> None:
        """Adds an entry; once this returns, no crash loses it. Numbers only grow."""
        if number <= self._last:
            raise StateError(
                "a log goes on with a number that it has had", given=f"{number} after {self._last}"
            )
        with self._explained(self.folder):
            if self._open is None or self._open.size >= self._most:
                self._begin(self._last)
            self._add(number, body)
            self._write_mark()

    def _add(self, number: int, body: bytes) -> None:
        segment, file = self._open, self._file
        assert segment is not None and file is not None
        data, checksum = _packed(number, self._last, body, segment.seed)
        at, fresh = segment.size, segment.size == 0
        head = self._header(segment) if fresh else b""
        try:
            file.write(at, head + data)
            file.sync()
            if fresh:
                self._files.sync_folder(self.folder)
        except OSError:
            self._abandon(segment)
            raise
        place = _EntryPlace(segment.number, at + len(head), len(data), self._last, checksum)
        self._places[number] = place
        self._bytes += len(data)
        self._last = segment.newest = number
        segment.size = at + len(head) + len(data)
        if fresh:
            self._mark_counts = False
            self._delete_trimmed(segment.trimmed)

    def _begin(self, previous: int) -> None:
        """Makes the file of a new segment; its header is written with the first entry."""
        self._let_go()
        while True:
            number = self._highest = self._highest + 1
            path = f"{self.folder}/{number:012d}.log"
            try:
                self._file = self._files.create(path)
                break
            except FileExistsError:
                continue  # whatever it is: it is not ours to touch
        seed = int.from_bytes(os.urandom(4), "big")
        trimmed = min(self._trimmed, previous)
        self._open = _Segment(number, path, previous, trimmed, seed, newest=previous)
        self._segments[number] = self._open

    def _begin_now(self, previous: int) -> None:
        """Makes a new segment that is safe though there is no entry in it yet."""
        self._begin(previous)
        segment, file = self._open, self._file
        assert segment is not None and file is not None
        head = self._header(segment)
        try:
            file.write(0, head)
            file.sync()
            self._files.sync_folder(self.folder)
        except OSError:
            self._abandon(segment)
            raise
        segment.size = len(head)
        self._mark_counts = False

    def _abandon(self, segment: _Segment) -> None:
        """Nothing is written to a file any more after a write or a sync of it has failed."""
        file, self._file, self._open = self._file, None, None
        assert file is not None
        with contextlib.suppress(OSError):
            file.truncate(segment.size)  # on a full disk, this makes room for others
        with contextlib.suppress(OSError):
            file.close()
        if segment.size == 0:
            del self._segments[segment.number]
            with contextlib.suppress(OSError):
                self._files.unlink(segment.path)

    def trim(self, number: int) -> None:
        """Forgets entries up to this one; files are deleted when it is worth it."""
        number = min(number, self._last)
        if number <= self._trimmed:
            return
        gone = []
        for old in self._places:
            if old > number:
                break
            gone.append(old)
        for old in gone:
            self._bytes -= self._places.pop(old).size
        self._trimmed = number
        self._write_mark()
        if sum(segment.size for segment in self._droppable(number)) >= self._most:
            with self._explained(self.folder):
                self._shrink()

    def _shrink(self) -> None:
        """Deletes the files of trimmed entries, once it is safe on disk that they are."""
        try:
            self._begin_now(self._last)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            if self._mark_counts or self._mark_file is None:
                return  # a mark that counts must not be torn: these files wait until there is room
            # On a full disk the mark, which has its room, must do: it is synced for once, and then
            # left alone, since a later one may be torn, until a new segment says the same.
            self._mark_counts = True
            self._mark_file.write(0, self._mark())
            self._mark_file.sync()
            self._files.sync_folder(self.folder)
        self._delete_trimmed(self._trimmed)
        self._write_mark()

    def _droppable(self, trimmed: int) -> list[_Segment]:
        """Segments without an entry that is needed; the newest is one of them if it is full."""
        found, needed = [], self._last
        for segment in sorted(self._segments.values(), key=lambda s: s.number, reverse=True):
            if needed <= max(trimmed, segment.previous):
                found.append(segment)
            needed = min(needed, segment.previous)
        return found

    def _delete_trimmed(self, trimmed: int) -> None:
        """Deletes segments that are not needed, as is safe on disk; the newest says the number."""
        newest = max(self._segments)
        for segment in self._droppable(trimmed):
            if segment.number != newest:
                del self._segments[segment.number]
                with contextlib.suppress(OSError):  # it is found and deleted another time
                    self._files.unlink(segment.path)

    def rewind(self, number: int) -> None:
        """Forgets the entries after this one, readable or not: they are appended anew."""
        if number >= self._last:
            return
        with self._explained(self.folder):
            self._begin_now(number)
            self._supersede(number)
            self._bytes = sum(place.size for place in self._places.values())
            self._write_mark()

    def clear(self) -> None:
        """Forgets all, also which numbers there were."""
        if self._last == NEVER and not self._places:
            return
        with self._explained(self.folder):
            self._begin_now(NEVER)
            self._supersede(NEVER)
            self._bytes = 0
            newest = self._open
            assert newest is not None
            for number in [n for n in self._segments if n != newest.number]:
                self._files.unlink(self._segments.pop(number).path)
            self._write_mark()

    def close(self) -> None:
        """Lets go of the files. All that was appended is safe already."""
        self._let_go()
        if self._mark_file is not None:
            self._mark_file.close()
            self._mark_file = None

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._open = None

    # -- bytes ------------------------------------------------------------------------------------

    def _header(self, segment: _Segment) -> bytes:
        name = self.name.encode()
        head = (
            _HEADER.pack(
                _MAGIC,
                _VERSION,
                len(name),
                segment.number,
                segment.previous,
                segment.trimmed,
                segment.seed,
            )
            + name
        )
        return head + _CHECK.pack(zlib.crc32(head))

    @property
    def _mark_path(self) -> str:
        return f"{self.folder}/mark"

    @property
    def _mark_name(self) -> str:
        return f"log {self.name}"

    def _mark(self) -> bytes:
        number = max(self._segments, default=0)
        return seal(self._mark_name, _MARK.pack(number, self._last, self._trimmed))

    def _write_mark(self) -> None:
        """Says how far the log has come. It is a help, so that it cannot be written is no error."""
        if self._mark_counts:
            return
        try:
            if self._mark_file is None:
                self._mark_file = self._opened_mark()
            if self._mark_file is not None:
                self._mark_file.write(0, self._mark())
        except OSError as error:
            _log.debug("%s cannot be written: %s", self._mark_path, error)

    def _opened_mark(self) -> File | None:
        try:
            return self._files.create(self._mark_path)
        except FileExistsError:
            if carries(self._mark_name, self._files.read(self._mark_path)):
                return self._files.open(self._mark_path)
        return None  # a file of somebody else

    @contextlib.contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = (error.strerror or str(error)).lower()
            raise StateError("a log cannot be used", given=path, hint=hint) from error


def _header_size(name: str) -> int:
    return _HEADER.size + len(name.encode()) + _CHECK.size


def _packed(number: int, previous: int, body: bytes, seed: int) -> tuple[bytes, int]:
    """The bytes of an entry, and the checksum of its body."""
    checksum = zlib.crc32(body, seed)
    rest = _ENTRY.pack(_MARKER, 0, checksum, number, previous, len(body))[8:]
    return b"".join((_MARKER, _CHECK.pack(zlib.crc32(rest, seed)), rest, body)), checksum


def _entry(data: bytes, at: int, seed: int) -> tuple[int, _EntryPlace] | None:
    """The entry at a place, its segment left open; None when it is not whole."""
    if at + _ENTRY.size > len(data):
        return None
    marker, check, checksum, number, previous, size = _ENTRY.unpack_from(data, at)
    end = at + _ENTRY.size
    if marker != _MARKER or zlib.crc32(data[at + 8 : end], seed) != check:
        return None
    if end + size > len(data) or zlib.crc32(memoryview(data)[end : end + size], seed) != checksum:
        return None
    return number, _EntryPlace(0, at, _ENTRY.size + size, previous, checksum)


def _next_entry(data: bytes, at: int, seed: int) -> int:
    """Where the next whole entry begins; the end of the data if there is none."""
    while (at := data.find(_MARKER, at)) >= 0:
        if _entry(data, at, seed) is not None:
            return at
        at += 1
    return len(data)
