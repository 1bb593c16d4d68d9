"""A node's folder: logs in segments, each entry under a checksum, safe before it counts."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from catchment.errors import StateError
from catchment.folder import Folder
from catchment.tree.disk import Note

_HEAD = struct.Struct(">IQIQ")
"""Checksum of the rest, number, length of the note, length of the body."""
_SEGMENT = 8 << 20


class FileLog:
    """A log in files. What a crash left half written at the end is cut off."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[int, tuple[Path, int]] = {}
        self._sizes: dict[Path, int] = {}
        self._newest: dict[Path, int] = {}
        self._last: int | None = None
        self._file: BinaryIO | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(folder.glob("*.log")):
                self._scan(path)
            self._last = max(self._places, default=None)
            if self._last is None and (folder / "last").exists():
                self._last = int((folder / "last").read_text())
        except OSError as error:
            raise _trouble(folder, error) from error

    def _scan(self, path: Path) -> None:
        with path.open("r+b") as file:
            size = path.stat().st_size
            at = 0
            while at < size:
                entry = _entry(file, at, size)
                if entry is None:
                    file.truncate(at)  # its writer was never told that it is safe
                    break
                number, length = entry
                self._places[number] = (path, at)
                self._newest[path] = number
                at += length
            self._sizes[path] = at

    def append(self, number: int, note: Note, body: bytes) -> None:
        text = json.dumps(note).encode()
        rest = _HEAD.pack(0, number, len(text), len(body))[4:] + text + body
        data = struct.pack(">I", zlib.crc32(rest)) + rest
        path = max(self._sizes, default=None)
        if path is None or self._sizes[path] >= _SEGMENT:
            self.close()
            path = self._folder / f"{number:020d}.log"
        at = self._sizes.get(path, 0)
        try:
            if self._file is None:
                self._file = path.open("ab", buffering=0)
            _write_all(self._file, data)
            os.fsync(self._file.fileno())
        except OSError as error:
            self._undo(path, at)
            raise _trouble(path, error) from error
        self._places[number] = (path, at)
        self._sizes[path], self._newest[path] = at + len(data), number
        self._last = number

    def _undo(self, path: Path, size: int) -> None:
        """What could not be written whole must not stand before what comes next."""
        self.close()
        try:
            if path.exists():
                os.truncate(path, size)
        except OSError as error:
            raise _trouble(path, error) from error

    def entries(self) -> Iterator[tuple[int, Note, bytes]]:
        return ((number, *self.read(number)) for number in sorted(self._places))

    def read(self, number: int) -> tuple[Note, bytes]:
        path, at = self._places[number]
        try:
            with path.open("rb") as file:
                file.seek(at)
                _, _, note, body = _HEAD.unpack(file.read(_HEAD.size))
                return json.loads(file.read(note)), file.read(body)
        except OSError as error:
            raise _trouble(path, error) from error

    def trim(self, number: int) -> None:
        for old in [n for n in self._places if n <= number]:
            del self._places[old]
        current = max(self._sizes, default=None)
        for path in [p for p in self._sizes if self._newest[p] <= number]:
            if path != current or self._sizes[path] >= _SEGMENT:
                self._drop(path)

    def _drop(self, path: Path) -> None:
        if path == max(self._sizes):
            self.close()
            # The number of the next entry must follow, though no entry is left to tell.
            Folder(str(self._folder)).write("last", str(self._last).encode())
        try:
            path.unlink()
        except OSError as error:
            raise _trouble(path, error) from error
        del self._sizes[path], self._newest[path]

    def clear(self) -> None:
        self.close()
        for path in [*self._sizes]:
            path.unlink(missing_ok=True)
        (self._folder / "last").unlink(missing_ok=True)
        self._places, self._sizes, self._newest, self._last = {}, {}, {}, None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def last(self) -> int | None:
        return self._last

    @property
    def nbytes(self) -> int:
        """Of the entries that are not trimmed, roughly."""
        first = min(self._places.values(), default=None)
        if first is None:
            return 0
        path, at = first
        return sum(size for other, size in self._sizes.items() if other >= path) - at


def _write_all(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _entry(file: BinaryIO, at: int, size: int) -> tuple[int, int] | None:
    """The number and length of the entry at a place; None when it is not whole."""
    file.seek(at)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    checksum, number, note, body = _HEAD.unpack(head)
    length = _HEAD.size + note + body
    if at + length > size:
        return None
    if zlib.crc32(head[4:] + file.read(note + body)) != checksum:
        return None
    return number, length


def _trouble(path: Path, error: OSError) -> StateError:
    return StateError(
        "a node's folder cannot be used", given=path, hint=(error.strerror or str(error)).lower()
    )


class FileDisk:
    """The folder of a node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._notes = Folder(str(folder / "notes"))
        self._logs: dict[str, FileLog] = {}

    def log(self, name: str) -> FileLog:
        if name not in self._logs:
            self._logs[name] = FileLog(self.folder / name)
        return self._logs[name]

    def put(self, name: str, data: bytes) -> None:
        self._notes.write(name, data)

    def get(self, name: str) -> bytes | None:
        return self._notes.read(name)

    def close(self) -> None:
        for log in self._logs.values():
            log.close()
