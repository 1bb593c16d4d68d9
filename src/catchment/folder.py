"""A folder on any file system that Arrow reaches, whose files appear whole or not at all."""

from __future__ import annotations

import os
import uuid

import pyarrow as pa
import pyarrow.fs as pafs

from catchment.errors import StateError


class Folder:
    """Small files under one address: a local path, or a URI such as s3://bucket/path.

    A file is written beside its place and then moved there: a reader, or a restart after a
    crash, sees all of it or nothing.

    >>> import tempfile
    >>> notes = Folder(tempfile.mkdtemp()).sub("notes")
    >>> notes.write("1.json", b"{}")
    >>> notes.names(), notes.read("1.json"), notes.read("2.json")
    (['1.json'], b'{}', None)
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        try:
            where = self.uri if "://" in self.uri or self.uri.startswith("file:") else None
            if where is None:
                self._fs: pafs.FileSystem = pafs.LocalFileSystem()
                self._path = self.uri
            else:
                self._fs, self._path = pafs.FileSystem.from_uri(where)
        except (OSError, ValueError) as error:
            raise StateError("the folder cannot be reached", given=uri, hint=str(error)) from error

    def __reduce__(self) -> tuple[object, ...]:
        return Folder, (self.uri,)

    def sub(self, name: str) -> Folder:
        return Folder(f"{self.uri}/{name}")

    def names(self) -> list[str]:
        """The names of the files directly in it, sorted; unfinished ones are not seen."""
        chosen = pafs.FileSelector(self._path, allow_not_found=True)
        files = (info for info in self._fs.get_file_info(chosen) if info.is_file)
        return sorted(info.base_name for info in files if not info.base_name.startswith("."))

    def read(self, name: str) -> bytes | None:
        """What a file holds; None when there is none."""
        try:
            with self._fs.open_input_stream(f"{self._path}/{name}") as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(
                "a file of the job cannot be read", given=f"{self.uri}/{name}",
                hint=error.strerror or str(error),
            ) from error  # fmt: skip

    def write(self, name: str, data: bytes) -> None:
        """Puts a file in its place, whole; one of the same name is replaced."""
        beside = f"{self._path}/.{name}.{uuid.uuid4().hex[:8]}"
        try:
            self._fs.create_dir(self._path, recursive=True)
            with self._fs.open_output_stream(beside) as stream:
                stream.write(data)
            if isinstance(self._fs, pafs.LocalFileSystem):
                _settle(beside)
            self._fs.move(beside, f"{self._path}/{name}")
        except OSError as error:
            raise StateError(
                "a file of the job cannot be written", given=f"{self.uri}/{name}",
                hint=error.strerror or str(error),
            ) from error  # fmt: skip

    def write_rows(self, name: str, rows: pa.Table) -> None:
        """Puts a table in its place, as a Parquet file."""
        buffer = pa.BufferOutputStream()
        import pyarrow.parquet as pq  # late: a node that sets nothing aside does without

        pq.write_table(rows, buffer, compression="zstd")
        self.write(name, buffer.getvalue().to_pybytes())

    def remove(self, name: str) -> None:
        """Deletes a file, if it is there."""
        try:
            self._fs.delete_file(f"{self._path}/{name}")
        except FileNotFoundError:
            return


def _settle(path: str) -> None:
    """Has the disk hold what was written, before the file gets its name."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
