"""Messages on local disk, in order, in segment files: written once, read by ranges of bytes.

A segment begins with a mark and the number of messages before it. A record is its length, a check
sum, the length of the topic, the topic and the payload. What `sync` has returned from outlives a
crash; what was being written is cut off when the spool is opened again. A mark beside the segments,
written without a sync, says how far it had come: damage to the end is not taken for a crash.

This is not a `durable.journaled.Journaled`: there is no state that messages could be folded into,
many messages share one sync, and tasks in other processes read ranges of bytes of files that
another process is writing. It syncs by the calls of `durable.files` alone.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from catchment.durable.files import File, LocalFiles, make_folders
from catchment.durable.lock import FileLock
from catchment.durable.sealed import seal, unseal
from catchment.errors import SourceError, StateError

_MARK = b"catchsp1"
_HEAD = struct.Struct("<8sQ")
_RECORD = struct.Struct("<IIH")
_SUFFIX = ".spool"
_SEGMENT = 16 << 20
_END = struct.Struct("<QQQ")
_MARK_NAME = "spool"


class SpoolPosition(NamedTuple):
    """A place between two messages: segment, byte in it, and the number of messages before."""

    segment: int
    byte: int
    messages: int


class Stored(NamedTuple):
    topic: str
    payload: bytes


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
        self._sizes = {n: path_of(folder, n).stat().st_size for n in _segments(folder)}
        self._waiting: list[bytes] = []
        self._file: File
        self._marked: File | None = None
        self.end: SpoolPosition
        try:
            self._open_last()
        except BaseException:
            self._lock.release()
            raise
        # Spots between flushes, in order: where batches and splits may be cut without a search.
        self._spots = [self.end]
        self._freed = self.first()

    def _open_last(self) -> None:
        while self._sizes:
            last = max(self._sizes)
            path = path_of(self._folder, last)
            end = _sound_end(path, last)
            self._not_before_mark(end or SpoolPosition(last, 0, 0), path)
            if end is not None:
                self._file = self._files.open(str(path))
                self._file.truncate(end.byte)
                self._file.sync()
                self._sizes[last] = end.byte
                self.end = end
                return
            if not _HEAD.pack(_MARK, 0).startswith(path.read_bytes()[: len(_MARK)]):
                raise SourceError(
                    "a file that is not the spool's is in its place",
                    given=path,
                    hint="move it away; the spool touches only its own files",
                )
            # The crash came before its head was safe, so there is nothing in it.
            self._files.unlink(str(path))
            del self._sizes[last]
        self._not_before_mark(SpoolPosition(0, 0, 0), self._folder)
        self._new_segment(SpoolPosition(0, 0, 0))

    def _not_before_mark(self, end: SpoolPosition, path: Path) -> None:
        """Raises when messages are missing that were safe: their broker does not have them."""
        try:
            held = unseal(_MARK_NAME, self._files.read(str(self._folder / "mark")))
        except FileNotFoundError:
            return
        if held is not None and end < SpoolPosition(*_END.unpack(held)):
            raise SourceError(
                "the spool is damaged: messages at its end cannot be read",
                given=path,
                hint=f"restore it; to go on without them, remove {self._folder / 'mark'}",
            )

    def _mark_end(self) -> None:
        with contextlib.suppress(OSError):  # it is a help and no more
            if self._marked is None:
                path = str(self._folder / "mark")
                exists = "mark" in self._files.names(str(self._folder))
                self._marked = self._files.open(path) if exists else self._files.create(path)
            self._marked.write(0, seal(_MARK_NAME, _END.pack(*self.end)))

    def _new_segment(self, after: SpoolPosition) -> None:
        number = after.segment + 1
        self._file = self._files.create(str(path_of(self._folder, number)))
        self._file.write(0, _HEAD.pack(_MARK, after.messages))
        self._file.sync()
        self._files.sync_folder(str(self._folder))
        self._sizes[number] = _HEAD.size
        self.end = SpoolPosition(number, _HEAD.size, after.messages)

    def add(self, topic: bytes, payload: bytes) -> None:
        """Takes a message in; it is safe after the next `sync`."""
        rest = len(topic).to_bytes(2, "little") + topic + payload
        head = struct.pack("<II", len(topic) + len(payload), zlib.crc32(rest))
        self._waiting.append(head + rest)

    def sync(self) -> None:
        """Makes what was taken in safe, and only then counts it."""
        while self._waiting:
            if self.end.byte >= self._most:
                self._file.close()
                self._new_segment(self.end)
            segment, byte, messages = self.end
            room = self._most - byte
            taken = 0
            while taken < len(self._waiting) and room > 0:
                room -= len(self._waiting[taken])
                taken += 1
            data = b"".join(self._waiting[:taken])
            self._file.write(byte, data)
            self._file.sync()
            del self._waiting[:taken]
            with self._guard:
                self._sizes[segment] = byte + len(data)
                self.end = SpoolPosition(segment, byte + len(data), messages + taken)
                self._spots.append(self.end)
            self._mark_end()

    def first(self) -> SpoolPosition:
        """The beginning of what there still is."""
        number = min(tuple(self._sizes))
        return SpoolPosition(number, _HEAD.size, _messages_before(self._folder, number))

    def size(self) -> int:
        """Bytes that are not yet freed; the disk holds a segment more at most."""
        with self._guard:
            return self._apart(self._freed, self.end)

    def upto(self, start: SpoolPosition, messages: int, size: int) -> SpoolPosition:
        """The farthest spot after `start` with at most so many messages and about so many bytes."""
        self._known(start)
        best = start
        with self._guard:
            spots = self._between(start, self.end)
        for spot in spots:
            if best != start and self._apart(start, spot) > size:
                return best
            if spot.messages - start.messages > messages:
                return self._walk(best, messages - (best.messages - start.messages))
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
                begin = spot._replace(byte=_HEAD.size, messages=last.messages) if done else begin
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
                path_of(self._folder, number).unlink(missing_ok=True)
                del self._sizes[number]

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
            size = self._sizes[number]
            ends.append(SpoolPosition(number, size, _messages_before(self._folder, number + 1)))
        found = [s for s in (*ends, *inner) if start < s < end]
        return [*found, end] if start < end else []

    def _apart(self, start: SpoolPosition, end: SpoolPosition) -> int:
        if start.segment == end.segment:
            return end.byte - start.byte
        whole = sum(self._sizes[n] for n in range(start.segment + 1, end.segment))
        return self._sizes[start.segment] - start.byte + whole + end.byte

    def _walk(self, spot: SpoolPosition, messages: int) -> SpoolPosition:
        """So many messages farther, which must be there."""
        segment, byte, before = spot
        if byte >= self._sizes[segment] and messages:
            segment, byte = segment + 1, _HEAD.size
        with path_of(self._folder, segment).open("rb") as file:
            for _ in range(messages):
                file.seek(byte)
                byte += _RECORD.size + _RECORD.unpack(file.read(_RECORD.size))[0]
        return SpoolPosition(segment, byte, before + messages)

    def _known(self, spot: SpoolPosition) -> None:
        if spot.segment not in self._sizes or spot > self.end:
            raise SourceError(
                "the spool does not have the place where the job goes on",
                given=tuple(spot),
                hint=f"was {self._folder} emptied? then begin with a new checkpoint",
            )


def records(folder: Path, start: SpoolPosition, end: SpoolPosition) -> Iterator[Stored]:
    """The messages between two spots of one segment."""
    path = path_of(folder, start.segment)
    try:
        with path.open("rb") as file:
            file.seek(start.byte)
            data = file.read(end.byte - start.byte)
    except OSError as error:
        raise SourceError(
            "the spool cannot be read",
            given=path,
            hint="it must be at the same path wherever tasks run",
        ) from error
    at = 0
    while at < end.byte - start.byte:
        found = _record(data, at)
        if found is None:
            raise SourceError("the spool is damaged", given=f"{path} at byte {start.byte + at}")
        topic, payload, at = found
        yield Stored(topic.decode(errors="replace"), payload)


def path_of(folder: Path, number: int) -> Path:
    return folder / f"{number:012d}{_SUFFIX}"


def _record(data: bytes, at: int) -> tuple[bytes, bytes, int] | None:
    """Topic, payload and the next record's place; None when it is not whole."""
    if at + _RECORD.size > len(data):
        return None
    length, check, topic = _RECORD.unpack_from(data, at)
    body, end = at + _RECORD.size, at + _RECORD.size + length
    if topic > length or end > len(data) or zlib.crc32(data[at + 8 : end]) != check:
        return None
    return data[body : body + topic], data[body + topic : end], end


def _sound_end(path: Path, number: int) -> SpoolPosition | None:
    """Where the last whole record ends; None when not even the head is whole."""
    data = path.read_bytes()
    if len(data) < _HEAD.size or not data.startswith(_MARK):
        return None
    at, messages = _HEAD.size, _HEAD.unpack_from(data)[1]
    while (found := _record(data, at)) is not None:
        at = found[2]
        messages += 1
    return SpoolPosition(number, at, messages)


def _messages_before(folder: Path, number: int) -> int:
    with path_of(folder, number).open("rb") as file:
        return int(_HEAD.unpack(file.read(_HEAD.size))[1])


def _segments(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob(f"*{_SUFFIX}"))


def _locked(folder: Path) -> FileLock:
    try:
        return FileLock(str(folder))
    except StateError as error:
        raise SourceError(
            "another process writes to the spool", given=error.given, hint="does the job run twice?"
        ) from error
