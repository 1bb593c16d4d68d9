"""Messages on local disk, in order, in segment files: written once, read by ranges of bytes.

    folder/000000000001.spool    header | record | record | ...
    folder/000000000002.spool    header | record | ...              the one that is written to
    folder/mark                  how far the spool had come, written without a sync
    folder/damaged/...           copies of what could not be read, and how many messages it was

`spool_format.py` says what is in a segment. What `sync` has returned from outlives a crash; what
was being written is cut off when the spool is opened again. Messages have numbers, and records and
the mark say which messages were safe: so damage is not taken for a crash, not at the end either.

Damage stops nobody. Nothing is repaired in place: a spool whose last segment is damaged goes on in
a new one. Whoever reads a range gives what is whole in it, and copies what is not to `damaged/`,
under a name that says which messages are missing. A damaged segment that is put right before it was
read is read as if nothing had been.

This is not a `durable.journaled.Journaled`: there is no state that messages could be folded into,
many messages share one sync, and tasks in other processes read ranges of bytes of files that
another process is writing. It syncs by the calls of `durable.files` alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import struct
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from catchment.durable.files import File, LocalFiles, make_folders, write_whole
from catchment.durable.lock import FileLock
from catchment.durable.sealed import seal, unseal
from catchment.errors import SourceError, StateError
from catchment.sources.spool_format import (
    HEAD,
    MAGIC,
    OLD,
    RECORD,
    SALT,
    SpoolRecord,
    header,
    is_old,
    packed,
    read_header,
    record,
    record_head,
    salt_of_first,
    whole_records,
)

_log = logging.getLogger("catchment.spool")

_SUFFIX = ".spool"
_SEGMENT = 16 << 20
_END = struct.Struct("<QQQ8s")
"""Segment, byte, messages, salt."""
_MARK_NAME = "spool"
_NAMED = re.compile(rf"(\d{{12}})\{_SUFFIX}")
_SET_ASIDE = re.compile(r"(\d{12})-(\d+)-(\d+)-(\d+)")
"""Segment, byte, first message, messages."""


class SpoolPosition(NamedTuple):
    """A place between two messages: segment, byte in it, and the number of messages before."""

    segment: int
    byte: int
    messages: int


class Stored(NamedTuple):
    topic: str
    payload: bytes


class StoredRun(NamedTuple):
    """Messages whose numbers follow on one another."""

    first: int
    messages: Iterator[Stored]


class SpoolDamage(NamedTuple):
    """Messages that were safe and cannot be read."""

    path: Path
    """Their segment."""
    at: int
    size: int
    """Bytes that are there in their place."""
    first: int
    messages: int

    @property
    def reason(self) -> str:
        what = "1 message" if self.messages == 1 else f"{self.messages} messages"
        if not self.size:
            return f"{what} of the spool cannot be read; there is nothing in their place"
        kept = self.path.parent / "damaged"
        return (
            f"{what} of the spool cannot be read; the {self.size} bytes at byte {self.at} "
            f"are kept in {kept}"
        )


class Spool:
    """Takes messages in at its end and frees segments at its beginning. One process at a time."""

    def __init__(self, folder: Path, segment: int = _SEGMENT) -> None:
        self._folder = folder
        self._most = segment
        self._files = LocalFiles()
        make_folders(self._files, str(folder))
        self._lock = _locked(folder)
        # One thread takes messages in, another plans and frees.
        self._guard = threading.RLock()
        self._sizes: dict[int, int] = {}
        """Of all segments from the first to the last; one that is missing has only a header."""
        self._before: dict[int, int] = {}
        """Messages before each segment."""
        self._waiting: list[tuple[bytes, bytes]] = []
        self._file: File
        self._marked: File | None = None
        self._salt = b""
        self._strange: list[Path] = []
        self._goes_on = False
        """Whether it is known where the job goes on."""
        self.end: SpoolPosition
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise
        # Spots between flushes, in order: where batches and splits may be cut without a search.
        self._spots = [self.end]
        self._freed = self.first()

    # -- opening ----------------------------------------------------------------------------------

    def _open(self) -> None:
        numbers = _segments(self._folder)
        for number in numbers:
            _refuse_old(path_of(self._folder, number))
        mark = _read_mark(self._folder)
        self._salt = _salt_of(self._folder) or os.urandom(SALT)
        self._strange = [
            path_of(self._folder, n) for n in numbers if not _is_ours(self._folder, n, self._salt)
        ]
        for path in self._strange:
            _log.warning("%s is no segment of the spool: the file is left as it is", path)
        ours = [n for n in numbers if path_of(self._folder, n) not in self._strange]
        came = mark[0] if mark is not None else SpoolPosition(0, 0, 0)
        while ours and ours[-1] > came.segment and _unfinished(path_of(self._folder, ours[-1])):
            # The crash came before its head was safe, so there is nothing in it.
            self._files.unlink(str(path_of(self._folder, ours.pop())))
        if not ours and not came.messages:
            self._new_segment(SpoolPosition(0, 0, 0))
            return
        last = max([*ours[-1:], came.segment])
        # A segment that is missing, or is not the spool's, is one of which nothing can be read.
        first = min([*ours[:1], last])
        while path_of(self._folder, first - 1) in self._strange:
            first -= 1
        for number in range(first, last + 1):
            self._learn(number, number in ours)
        self._go_on(last, came, last in ours)

    def _learn(self, number: int, there: bool) -> None:
        """Takes a segment into the table."""
        path = path_of(self._folder, number)
        self._sizes[number] = max(HEAD.size, path.stat().st_size) if there else HEAD.size
        held = read_header(_beginning(path)) if there else None
        if held is not None:
            self._before[number] = held.before
            return
        if there:
            _log.warning("the spool is damaged: %s has no header that can be read", path)
        data = path.read_bytes() if there else b""
        first = record(data, HEAD.size, self._salt)
        if first is not None:
            self._before[number] = first.number
        elif number - 1 in self._before:
            self._before[number] = self._whole_end(number - 1)
        elif number == 1:
            self._before[number] = 0
        else:  # what came before is gone: it is as if it began with what can be read
            whole = next(whole_records(data, HEAD.size, self._salt), None)
            self._before[number] = self._next_before(number) if whole is None else whole.number

    def _whole_end(self, number: int) -> int:
        """The number after the last message of a segment that can be read."""
        end = self._before[number]
        with contextlib.suppress(FileNotFoundError):
            data = path_of(self._folder, number).read_bytes()
            for found in whole_records(data, HEAD.size, self._salt, end):
                end = found.number + 1
        return end

    def _next_before(self, number: int) -> int:
        """What the first segment after one says came before it; or what the mark says."""
        for later in _segments(self._folder):
            held = read_header(_beginning(path_of(self._folder, later)))
            if later > number and held is not None and held[::2] == (later, self._salt):
                return held.before
        mark = _read_mark(self._folder)
        return 0 if mark is None else mark[0].messages

    def _go_on(self, last: int, came: SpoolPosition, there: bool) -> None:
        """Finds the end: in the last segment, or in a new one if it is damaged."""
        path = path_of(self._folder, last)
        data = path.read_bytes() if there else b""
        begin = self._before[last]
        found = list(whole_records(data, HEAD.size, self._salt, begin))
        safe = max([came.messages, begin, *(one.number - one.place for one in found)])
        at, number = HEAD.size, begin
        for one in found:
            if (one.at, one.number) != (at, number):
                break
            at, number = one.end, number + 1
        header_is_whole = read_header(data) is not None
        if header_is_whole and number >= safe:
            # What comes after this was being written, and nobody was told that it is safe.
            self._file = self._files.open(str(path))
            self._file.truncate(at)
            self._file.sync()
            self._sizes[last] = at
            self.end = SpoolPosition(last, at, number)
            return
        end = max([safe, *(one.number + 1 for one in found)])
        if number < end:
            _log.warning("the spool is damaged: %s at byte %d", path, at)
        if there:
            file = self._files.open(str(path))
            file.sync()
            file.close()
        self._new_segment(SpoolPosition(last, self._sizes[last], end))

    # -- writing ----------------------------------------------------------------------------------

    def _mark_end(self) -> None:
        with contextlib.suppress(OSError):  # it is a help and no more
            if self._marked is None:
                path = str(self._folder / "mark")
                exists = "mark" in self._files.names(str(self._folder))
                self._marked = self._files.open(path) if exists else self._files.create(path)
            self._marked.write(0, seal(_MARK_NAME, _END.pack(*self.end, self._salt)))

    def _new_segment(self, after: SpoolPosition) -> None:
        number = after.segment + 1
        while True:
            with self._guard:
                self._sizes[number] = HEAD.size
                self._before[number] = after.messages
            try:
                self._file = self._files.create(str(path_of(self._folder, number)))
                break
            except FileExistsError:
                number += 1  # whatever it is: it is not ours to touch
        self._file.write(0, header(number, after.messages, self._salt))
        self._file.sync()
        self._files.sync_folder(str(self._folder))
        self.end = SpoolPosition(number, HEAD.size, after.messages)

    def add(self, topic: bytes, payload: bytes) -> None:
        """Takes a message in; it is safe after the next `sync`."""
        self._waiting.append((topic, payload))

    def sync(self) -> None:
        """Makes what was taken in safe, and only then counts it."""
        while self._waiting:
            if self.end.byte >= self._most:
                self._file.close()
                self._new_segment(self.end)
            segment, byte, messages = self.end
            room = self._most - byte
            made: list[bytes] = []
            for place, (topic, payload) in enumerate(self._waiting):
                if room <= 0:
                    break
                made.append(packed(self._salt, messages + place, place, topic, payload))
                room -= len(made[-1])
            data = b"".join(made)
            self._file.write(byte, data)
            self._file.sync()
            del self._waiting[: len(made)]
            with self._guard:
                self._sizes[segment] = byte + len(data)
                self.end = SpoolPosition(segment, byte + len(data), messages + len(made))
                self._spots.append(self.end)
            self._mark_end()

    # -- planning ---------------------------------------------------------------------------------

    def first(self) -> SpoolPosition:
        """The beginning of what there still is."""
        number = min(tuple(self._sizes))
        return SpoolPosition(number, HEAD.size, self._before[number])

    def size(self) -> int:
        """Bytes that are not yet freed; the disk holds a segment more at most."""
        with self._guard:
            return self._apart(self._freed, self.end)

    def damage(self) -> list[SpoolDamage]:
        """The messages that were met and could not be read."""
        return _set_aside_in(self._folder)

    def strange(self) -> list[Path]:
        """Files in the place of segments that are none of this spool."""
        return [path for path in self._strange if path.exists()]

    def upto(self, start: SpoolPosition, messages: int, size: int) -> SpoolPosition:
        """The farthest spot after `start` with at most so many messages and about so many bytes.

        Where a run of damaged messages is longer than that, it is passed over at once.
        """
        self._known(start)
        best = start
        with self._guard:
            spots = self._between(start, self.end)
        for spot in spots:
            if best != start and self._apart(start, spot) > size:
                return best
            if spot.messages - start.messages > messages:
                walked = self._walk(best, spot, start.messages + messages)
                within = walked.messages - start.messages <= messages
                return walked if best == start or within else best
            best = spot
        return best

    def ranges(
        self, start: SpoolPosition, end: SpoolPosition, parts: int
    ) -> list[tuple[SpoolPosition, SpoolPosition]]:
        """What lies between two spots, in about so many shares, none over two segments."""
        self._known(start)
        size = max(1, self._apart(start, end) // max(1, parts))
        made, begin, last = [], start, start
        with self._guard:
            spots = self._between(start, end)
        for spot in [*spots, None]:
            done = spot is None or spot.segment != last.segment
            if last != begin and (done or last.byte - begin.byte >= size):
                made.append((begin, last))
                begin = last
            if spot is not None:
                begin = spot._replace(byte=HEAD.size, messages=last.messages) if done else begin
                last = spot
        return made

    def free(self, spot: SpoolPosition) -> None:
        """What is before the spot is needed no more: deletes the segments that end before it."""
        if spot <= self._freed:
            return
        self._known(spot)
        with self._guard:
            self._freed = spot
            self._spots = [kept for kept in self._spots if kept >= spot]
        for number in tuple(self._sizes):
            if number < spot.segment:
                path = path_of(self._folder, number)
                if path not in self._strange:
                    path.unlink(missing_ok=True)
                del self._sizes[number], self._before[number]

    def close(self) -> None:
        """Lets go of the files. What was not made safe is not kept."""
        with contextlib.suppress(OSError):  # a full disk was told of when it was met
            self._file.close()
        if self._marked is not None:
            self._marked.close()
        self._lock.release()

    def _between(self, start: SpoolPosition, end: SpoolPosition) -> list[SpoolPosition]:
        """The spots after one up to another where something may be cut: flushes, and ends of
        segments that were written before this process began."""
        spots = self._spots
        at = bisect_right(spots, start)
        inner = list(spots[at : bisect_right(spots, end)])
        first = inner[0] if inner else end
        ends = []
        for number in range(start.segment, first.segment):
            # A segment that was cut off may be shorter than it was when the start was a spot.
            size = max(self._sizes[number], start.byte if number == start.segment else 0)
            ends.append(SpoolPosition(number, size, self._before[number + 1]))
        found = [s for s in (*ends, *inner) if start < s < end]
        return [*found, end] if start < end else []

    def _apart(self, start: SpoolPosition, end: SpoolPosition) -> int:
        if start.segment == end.segment:
            return end.byte - start.byte
        whole = sum(self._sizes[n] for n in range(start.segment + 1, end.segment))
        return max(0, self._sizes[start.segment] - start.byte) + whole + end.byte

    def _walk(self, spot: SpoolPosition, end: SpoolPosition, target: int) -> SpoolPosition:
        """From one spot towards the next, up to a message that is before that."""
        segment, number = end.segment, spot.messages
        byte = spot.byte if spot.segment == segment else HEAD.size
        if byte >= end.byte:
            return end
        with path_of(self._folder, segment).open("rb") as file:
            while number < target:
                file.seek(byte)
                found = record_head(file.read(RECORD.size), 0, self._salt)
                following = byte + RECORD.size + (0 if found is None else found[3])
                if found is None or found[1] != number or following > end.byte:
                    break
                byte, number = following, number + 1
            if number == target:
                return SpoolPosition(segment, byte, number)
            file.seek(byte)
            data = file.read(end.byte - byte)
        at = SpoolPosition(segment, byte, number)
        for one in whole_records(data, 0, self._salt, number, end.messages):
            if one.number >= target:
                begun = SpoolPosition(segment, byte + one.at, one.number)
                return at if at.messages > spot.messages else begun
            at = SpoolPosition(segment, byte + one.end, one.number + 1)
        return at if at.messages > spot.messages else end

    def _known(self, spot: SpoolPosition) -> None:
        if spot.segment not in self._sizes or spot > self.end:
            raise SourceError(
                "the spool does not have the place where the job goes on",
                given=tuple(spot),
                hint=f"was {self._folder} emptied? then begin with a new checkpoint",
            )
        if not self._goes_on:
            # What is read from here on may have been put right: whoever reads it says if not.
            self._goes_on = True
            for one in self.damage():
                if one.first >= spot.messages:
                    _copy_of(one).unlink(missing_ok=True)


# -- reading --------------------------------------------------------------------------------------


def runs(
    folder: Path, start: SpoolPosition, end: SpoolPosition, lost: list[tuple[SpoolDamage, bytes]]
) -> Iterator[StoredRun]:
    """The messages between two spots of one segment that can be read, with their numbers.

    What cannot be read is set aside; where that fails, it is added to `lost`.
    """
    for first, run in groupby(_whole_of(folder, start, end, lost), itemgetter(0)):
        made = (Stored(one.topic.decode(errors="replace"), one.payload) for _, one in run)
        yield StoredRun(first, made)


def _whole_of(
    folder: Path, start: SpoolPosition, end: SpoolPosition, lost: list[tuple[SpoolDamage, bytes]]
) -> Iterator[tuple[int, SpoolRecord]]:
    """The records of a range that are whole, each with the first number of its run."""
    path = path_of(folder, start.segment)
    data, salt = _range_of(path, start, end) if start.byte < end.byte else (b"", b"")
    at, first = 0, start.messages
    number = first
    for found in whole_records(data, 0, salt, start.messages, end.messages) if salt else ():
        if found.number != number:
            gap = SpoolDamage(path, start.byte + at, found.at - at, number, found.number - number)
            lost += _set_aside(gap, data[at : found.at])
            first = found.number
        yield first, found
        at, number = found.end, found.number + 1
    if number < end.messages:
        gap = SpoolDamage(path, start.byte + at, len(data) - at, number, end.messages - number)
        lost += _set_aside(gap, data[at:])


def _range_of(path: Path, start: SpoolPosition, end: SpoolPosition) -> tuple[bytes, bytes]:
    """The bytes of a range, and the salt by which records are found in it."""
    try:
        with path.open("rb") as file:
            held = read_header(file.read(HEAD.size))
            file.seek(start.byte)
            data = file.read(end.byte - start.byte)
    except OSError as error:
        raise SourceError(
            "the spool cannot be read",
            given=path,
            hint="it must be at the same path wherever tasks run",
        ) from error
    return data, (held.salt if held is not None else _salt_of(path.parent)) or b""


def _set_aside(damage: SpoolDamage, data: bytes) -> list[tuple[SpoolDamage, bytes]]:
    """Keeps a copy under a name that counts the messages; given back if that fails."""
    _log.warning("the spool is damaged: %s: %s", damage.path, damage.reason)
    copy = _copy_of(damage)
    try:
        write_whole(LocalFiles(), str(copy.parent), copy.name, data)
    except OSError as error:
        _log.warning("%s cannot be written: %s", copy, error)
        return [(damage, data)]
    return []


def _copy_of(damage: SpoolDamage) -> Path:
    name = f"{damage.path.stem}-{damage.at}-{damage.first}-{damage.messages}"
    return damage.path.parent / "damaged" / name


def _set_aside_in(folder: Path) -> list[SpoolDamage]:
    kept = folder / "damaged"
    made = []
    for name in LocalFiles().names(str(kept)):
        if named := _SET_ASIDE.fullmatch(name):
            number, at, first, count = map(int, named.groups())
            with contextlib.suppress(FileNotFoundError):
                size = (kept / name).stat().st_size
                made.append(SpoolDamage(path_of(folder, number), at, size, first, count))
    return made


# -- files ----------------------------------------------------------------------------------------


def path_of(folder: Path, number: int) -> Path:
    return folder / f"{number:012d}{_SUFFIX}"


def _segments(folder: Path) -> list[int]:
    names = LocalFiles().names(str(folder))
    return [int(named[1]) for name in names if (named := _NAMED.fullmatch(name))]


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD.size)


def _salt_of(folder: Path) -> bytes | None:
    """The salt of a spool: the mark has it, and all headers; if need be, a first record tells."""
    mark = _read_mark(folder)
    if mark is not None:
        return mark[1]
    paths = [path_of(folder, number) for number in _segments(folder)]
    held = Counter(head.salt for path in paths if (head := read_header(_beginning(path))))
    if held:
        return held.most_common(1)[0][0]
    return next((salt for path in paths if (salt := salt_of_first(path.read_bytes()))), None)


def _read_mark(folder: Path) -> tuple[SpoolPosition, bytes] | None:
    """How far the spool had come, and its salt; None: nobody remembers."""
    try:
        held = unseal(_MARK_NAME, (folder / "mark").read_bytes())
    except FileNotFoundError:
        return None
    if held is None or len(held) != _END.size:
        return None
    *end, salt = _END.unpack(held)
    return SpoolPosition(*end), salt


def _is_ours(folder: Path, number: int, salt: bytes) -> bool:
    path = path_of(folder, number)
    held = read_header(_beginning(path))
    if held is not None:
        return (held.number, held.salt) == (number, salt)
    return _unfinished(path) or any(whole_records(path.read_bytes(), HEAD.size, salt))


def _unfinished(path: Path) -> bool:
    """Whether a file is the beginning of a header, and no more."""
    data = _beginning(path)
    return len(data) < HEAD.size and MAGIC.startswith(data[: len(MAGIC)])


def _refuse_old(path: Path) -> None:
    if _beginning(path).startswith(OLD) and is_old(path.read_bytes()):
        raise SourceError(
            "the spool was written by an earlier build (format 1); this one reads format 2",
            given=path,
            hint="let the build that wrote it process what is in it; to go on without that, move "
            f"{path.parent} away and begin with a new checkpoint",
        )


def _locked(folder: Path) -> FileLock:
    try:
        return FileLock(str(folder))
    except StateError as error:
        raise SourceError(
            "another process writes to the spool", given=error.given, hint="does the job run twice?"
        ) from error
