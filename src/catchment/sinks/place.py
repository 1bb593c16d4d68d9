"""A folder for result files: each appears whole and stays, on a disk or any store Arrow reaches."""

from __future__ import annotations

import contextlib
import errno
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from catchment.durable.store import FileStore, shown
from catchment.errors import SinkError

_STALE = 3600.0
"""Seconds after which an unfinished file has surely been given up."""


class FilePlace:
    """Files under one address: a local path, or a URI such as s3://bucket/path.

    Results are for others to read: files get the mode that the process gives to new ones.
    """

    def __init__(self, uri: str) -> None:
        self.shown = shown(uri)
        """The address for people, without keys and options."""
        with _explained("the folder cannot be reached", self.shown):
            self._store = FileStore(uri, private=False)

    def read(self, name: str) -> bytes | None:
        """What a file holds; None when there is none."""
        with _explained("the folder cannot be read", self.shown):
            return self._store.read(name)

    def names(self, folder: str = "") -> tuple[list[str], list[str]]:
        """The names of files and of folders in it, sorted; hidden ones are not seen."""
        with _explained("the folder cannot be read", self.shown):
            files, folders = self._store.names(folder)
        return _seen(files), _seen(folders)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Puts a file in its place, whole, and makes it last; one of that name is replaced."""
        with _explained("the results cannot be written", f"{self.shown}/{name}"):
            remote = self._store.local is None and name.endswith(".parquet")
            if remote and self._store.size(name) == len(memoryview(data)):
                return  # it has come before; not every store moves a file onto another
            self._store.write(name, data)

    def remove(self, name: str) -> None:
        """Deletes a file, if it is there."""
        with _explained("the folder cannot be written", f"{self.shown}/{name}"):
            self._store.remove(name)

    def probe(self) -> None:
        """Fails when no file can be written."""
        name = f".probe.{uuid.uuid4().hex[:12]}"
        self.write(name, b"ok")
        self.remove(name)

    def tidy(self) -> None:
        """Removes what crashes left unfinished long ago."""
        if self._store.local is None:
            return
        root = Path(self._store.path)
        for left in [*root.glob(".*.parquet.*"), *root.glob("*/.*.parquet.*")]:
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > _STALE:
                    left.unlink()


def _seen(names: list[str]) -> list[str]:
    return [name for name in names if not name.startswith((".", "_"))]


@contextmanager
def _explained(what: str, given: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, ValueError) as error:
        raise SinkError(what, given=given, hint=_hint(error)) from error


def _hint(error: Exception) -> str:
    text = str(error)
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, PermissionError):
        return f"this user may not write there: {text}"
    if isinstance(error, NotADirectoryError | FileExistsError):
        return f"a file is in the way of the folder: {text}"
    if number in _FULL:
        return f"make room, and the results are written when they come again: {text}"
    return text


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""No space, no quota, and a limit on the length of files."""
