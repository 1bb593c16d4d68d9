"""Small files under one address, on a local disk or on any store that Arrow reaches.

A local path or a URI such as s3://bucket/path goes in. A file is there whole or not at all: it is
written beside its place and moved there. On a local disk it is also safe once `write` has
returned; stores of objects see to that themselves. All calls raise `OSError` or one of Arrow's
errors: `Folder` and the sinks make sentences of them.
"""

from __future__ import annotations

import contextlib
import re

import pyarrow as pa
import pyarrow.fs as pafs

from catchment.durable.files import FileSystem, LocalFiles, beside_of, write_whole


def opened(uri: str) -> tuple[pafs.FileSystem, str]:
    """The file system of an address, and the path in it."""
    if "://" in uri or uri.startswith("file:"):
        system, path = pafs.FileSystem.from_uri(uri)
        return system, path.rstrip("/") or "/"
    return pafs.LocalFileSystem(), uri.rstrip("/") or "/"


def shown(uri: str) -> str:
    """An address for people, without what only the store may know: keys and options.

    >>> shown("s3://key:secret@bucket/jobs?region=x")
    's3://bucket/jobs'
    """
    return re.sub(r"(?<=://)[^/@]*@|\?.*", "", uri) if "://" in uri else uri


class FileStore:
    """The files under an address. Names may have folders in them: `folder/file`.

    Private files are for the user of the process alone, where the file system knows users.
    """

    def __init__(self, uri: str, private: bool) -> None:
        self.uri = uri
        self._fs, self.path = opened(uri)
        self.local: FileSystem | None = None
        """The calls to the operating system, where the store is a local disk."""
        if isinstance(self._fs, pafs.LocalFileSystem):
            self.local = LocalFiles(private)

    def read(self, name: str) -> bytes | None:
        """What a file holds; None when there is none."""
        try:
            if self.local is not None:
                return self.local.read(f"{self.path}/{name}")
            with self._fs.open_input_stream(f"{self.path}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def names(self, folder: str = "") -> tuple[list[str], list[str]]:
        """The names of files and of folders, sorted."""
        chosen = pafs.FileSelector(f"{self.path}/{folder}".rstrip("/"), allow_not_found=True)
        found = self._fs.get_file_info(chosen)
        files = sorted(info.base_name for info in found if info.is_file)
        return files, sorted(info.base_name for info in found if not info.is_file)

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        """Puts a file in its place, whole; one of the same name is replaced."""
        folder, _, base = f"{self.path}/{name}".rpartition("/")
        if self.local is not None:
            write_whole(self.local, folder or "/", base, memoryview(data))
            return
        beside = f"{folder}/{beside_of(base)}"
        try:
            self._fs.create_dir(folder, recursive=True)
            with self._fs.open_output_stream(beside) as stream:
                stream.write(data)
            self._fs.move(beside, f"{folder}/{base}")
        except BaseException:
            with contextlib.suppress(OSError):
                self._fs.delete_file(beside)
            raise

    def size(self, name: str) -> int | None:
        """How long a file is; None when there is none."""
        info = self._fs.get_file_info(f"{self.path}/{name}")
        return int(info.size) if info.is_file else None

    def remove(self, name: str, lasting: bool = False) -> None:
        """Deletes a file, if it is there; a `lasting` deletion outlives a loss of power."""
        path = f"{self.path}/{name}"
        with contextlib.suppress(FileNotFoundError):
            if self.local is None:
                self._fs.delete_file(path)
                return
            self.local.unlink(path)
            if lasting:
                self.local.sync_folder(path.rpartition("/")[0] or "/")
