"""A node's folder: notes and logs, each under a checksum, safe before it counts.

    home/notes/NAME             a note, replaced whole
    home/LOG/000000000001.log   segments of a log: see `catchment.durable.log`

What cannot be read is never taken for something else: a note or an entry that somebody needs raises
a `StateError` that names the file; all that cannot be read is reported by `damage`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from catchment.durable.files import FileSystem, LocalFiles, write_whole
from catchment.durable.log import RESTORE, SEGMENT, FileLog
from catchment.durable.sealed import seal, unseal
from catchment.errors import StateError
from catchment.model.names import file_name


class FileDisk:
    """The folder of a node."""

    def __init__(
        self, folder: Path, files: FileSystem | None = None, segment: int = SEGMENT
    ) -> None:
        self.folder = folder
        self._home = str(folder)
        self._files: FileSystem = LocalFiles() if files is None else files
        self._segment = segment
        self._logs: dict[str, FileLog] = {}

    def log(self, name: str) -> FileLog:
        if name not in self._logs:
            folder = f"{self._home}/{file_name(name)}"
            self._logs[name] = FileLog(folder, name, self._files, self._segment)
        return self._logs[name]

    def put(self, name: str, data: bytes) -> None:
        with self._explained("a note of the node cannot be written", name):
            write_whole(self._files, f"{self._home}/notes", file_name(name), seal(name, data))

    def get(self, name: str) -> bytes | None:
        with self._explained("a note of the node cannot be read", name):
            try:
                blob = self._files.read(self._path(name))
            except FileNotFoundError:
                return None
        data = unseal(name, blob)
        if data is None:
            raise StateError(
                "a note of the node is damaged, or of another version",
                given=self._path(name),
                hint=RESTORE,
            )
        return data

    def damage(self) -> list[str]:
        """What was found in logs that cannot be read."""
        return [str(found) for log in self._logs.values() for found in log.damage]

    def close(self) -> None:
        for log in self._logs.values():
            log.close()

    def _path(self, name: str) -> str:
        return f"{self._home}/notes/{file_name(name)}"

    @contextlib.contextmanager
    def _explained(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            hint = (error.strerror or str(error)).lower()
            raise StateError(what, given=self._path(name), hint=hint) from error
