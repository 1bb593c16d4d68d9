"""The calls to the operating system that everything durable is made of, behind one interface.

A path goes in as text, bytes come out. All calls raise `OSError`. `LocalFiles` does them;
`catchment.durable.volatile` does them in memory and forgets what was not synced. Two rules hold:

- What was written to a file is safe after `File.sync`, and its name after `FileSystem.sync_folder`
  of the folder.
- A rename within a folder happens wholly or not at all, but it may be undone until the folder is
  synced.
"""

from __future__ import annotations

import os
import uuid
from typing import Protocol

Data = bytes | bytearray | memoryview


class File(Protocol):
    """An open file."""

    def write(self, at: int, data: Data) -> None:
        """Writes all of the data at a place."""

    def truncate(self, size: int) -> None:
        """Cuts the file off."""

    def sync(self) -> None:
        """Returns when all that was written is on the disk."""

    def close(self) -> None:
        """Lets go of the file."""


class FileSystem(Protocol):
    """A file system."""

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, sorted; none where there is no folder."""

    def read(self, path: str, at: int = 0, size: int | None = None) -> bytes:
        """What is in a file from a place on."""

    def create(self, path: str) -> File:
        """A new file; a `FileExistsError` if there is one."""

    def open(self, path: str) -> File:
        """A file that is there, to write in it."""

    def rename(self, old: str, new: str) -> None:
        """Gives a file another name in its folder; a file of that name is replaced."""

    def unlink(self, path: str) -> None:
        """Deletes a file."""

    def is_folder(self, path: str) -> bool:
        """Whether there is such a folder."""

    def make_folder(self, path: str) -> None:
        """Makes a folder in one that is there; it is no error if it is there by now."""

    def sync_folder(self, path: str) -> None:
        """Returns when the names in a folder are on the disk."""


class LocalFile:
    """A file of the operating system."""

    def __init__(self, number: int) -> None:
        self._number = number

    def write(self, at: int, data: Data) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._number, view, at)
            view, at = view[written:], at + written

    def truncate(self, size: int) -> None:
        os.ftruncate(self._number, size)

    def sync(self) -> None:
        _sync_data(self._number)

    def close(self) -> None:
        if self._number >= 0:
            number, self._number = self._number, -1
            os.close(number)

    def __del__(self) -> None:
        self.close()


_sync_data = getattr(os, "fdatasync", os.fsync)
"""Both make the data and the length of a file safe; the first does without times and owners."""


class LocalFiles:
    """The file system of this machine.

    Private files and folders are for the user of the process alone (0600 and 0700); others get
    what the process gives to new files.
    """

    def __init__(self, private: bool = True) -> None:
        self._file_mode = 0o600 if private else 0o666
        self._folder_mode = 0o700 if private else 0o777

    def names(self, folder: str) -> list[str]:
        try:
            with os.scandir(folder) as found:
                return sorted(entry.name for entry in found if entry.is_file())
        except FileNotFoundError:
            return []

    def read(self, path: str, at: int = 0, size: int | None = None) -> bytes:
        with open(path, "rb", buffering=0) as file:
            if size is None:
                size = max(0, os.fstat(file.fileno()).st_size - at)
            parts: list[bytes] = []
            while size and (part := os.pread(file.fileno(), size, at)):
                parts.append(part)
                at, size = at + len(part), size - len(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)

    def create(self, path: str) -> LocalFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return LocalFile(os.open(path, flags, self._file_mode))

    def open(self, path: str) -> LocalFile:
        return LocalFile(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_folder(self, path: str) -> None:
        try:
            os.mkdir(path, self._folder_mode)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def sync_folder(self, path: str) -> None:
        number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def make_folders(files: FileSystem, path: str) -> None:
    """Makes a folder, and those that it is in, so that they last."""
    path = path.rstrip("/") or "/"
    if files.is_folder(path):
        return
    above = os.path.dirname(path) or "."
    make_folders(files, above)
    files.make_folder(path)
    files.sync_folder(above)


def write_whole(files: FileSystem, folder: str, name: str, data: Data) -> None:
    """Puts a file in its place so that it is there, whole, whatever happens once this returns.

    It is written beside its place and renamed. Another process may be writing the same file: each
    has a file of its own beside it.
    """
    make_folders(files, folder)
    beside = f"{folder}/{beside_of(name)}"
    file = files.create(beside)
    try:
        try:
            file.write(0, data)
            file.sync()
        finally:
            file.close()
        files.rename(beside, f"{folder}/{name}")
    except BaseException:
        _try_unlink(files, beside)
        raise
    files.sync_folder(folder)


def beside_of(name: str) -> str:
    """Where a file is written before it gets its name: hidden, and used once.

    A name may be as long as the file system allows: its end is left out here.
    """
    return f".{name[:200]}.{uuid.uuid4().hex[:12]}"


def _try_unlink(files: FileSystem, path: str) -> None:
    try:
        files.unlink(path)
    except OSError:
        return  # it is not there, or nothing can be done about it
