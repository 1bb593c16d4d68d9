"""A folder for result files: each appears whole and stays, on a disk or any store Arrow reaches."""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from catchment.errors import SinkError

_STALE = 3600.0
"""Seconds after which an unfinished file has surely been given up."""


class Place:
    """Files under one address: a local path, or a URI such as s3://bucket/path."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        with _explained("the folder cannot be reached", uri):
            self._fs, self.path = _opened(uri)
        self._local = isinstance(self._fs, pafs.LocalFileSystem)

    def read(self, name: str) -> bytes | None:
        """What a file holds; None when there is none."""
        with _explained("the folder cannot be read", self.uri):
            try:
                with self._fs.open_input_stream(f"{self.path}/{name}") as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def names(self, folder: str = "") -> tuple[list[str], list[str]]:
        """The names of files and of folders in it, sorted; hidden ones are not seen."""
        chosen = pafs.FileSelector(f"{self.path}/{folder}".rstrip("/"), allow_not_found=True)
        with _explained("the folder cannot be read", self.uri):
            found = self._fs.get_file_info(chosen)
        seen = [info for info in found if not info.base_name.startswith((".", "_"))]
        files = sorted(info.base_name for info in seen if info.is_file)
        return files, sorted(info.base_name for info in seen if not info.is_file)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Puts a file in its place, whole, and makes it last; one of that name is replaced."""
        folder, _, base = f"{self.path}/{name}".rpartition("/")
        # Another process may be writing the same file: each has its own beside it.
        beside = f"{folder}/.{base}.{uuid.uuid4().hex[:12]}"
        with _explained("the results cannot be written", f"{self.uri}/{name}"):
            try:
                if self._local:
                    _write_local(Path(folder), Path(beside), base, data)
                else:
                    self._write_remote(folder, beside, base, data)
            except BaseException:
                with contextlib.suppress(OSError):
                    self._fs.delete_file(beside)
                raise

    def _write_remote(self, folder: str, beside: str, base: str, data: bytes | pa.Buffer) -> None:
        kept = self._fs.get_file_info(f"{folder}/{base}")
        if kept.is_file and kept.size == len(memoryview(data)) and base.endswith(".parquet"):
            return  # it has come before; not every store moves a file onto another
        self._fs.create_dir(folder, recursive=True)
        with self._fs.open_output_stream(beside) as stream:
            stream.write(data)
        self._fs.move(beside, f"{folder}/{base}")

    def probe(self) -> None:
        """Fails when no file can be written."""
        name = f".probe.{uuid.uuid4().hex[:12]}"
        self.write(name, b"ok")
        with _explained("the folder cannot be written", self.uri):
            self._fs.delete_file(f"{self.path}/{name}")

    def tidy(self) -> None:
        """Removes what crashes left unfinished long ago."""
        if not self._local:
            return
        root = Path(self.path)
        for left in [*root.glob(".*.parquet.*"), *root.glob("*/.*.parquet.*")]:
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > _STALE:
                    left.unlink()


def _opened(uri: str) -> tuple[pafs.FileSystem, str]:
    if "://" in uri or uri.startswith("file:"):
        system, path = pafs.FileSystem.from_uri(uri)
        return system, path.rstrip("/") or "/"
    return pafs.LocalFileSystem(), uri.rstrip("/") or "/"


def _write_local(folder: Path, beside: Path, base: str, data: bytes | pa.Buffer) -> None:
    _make(folder)
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(folder / base)
    _sync(folder)


def _make(folder: Path) -> None:
    """Makes a folder that lasts: its name is on the disk, too."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


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
