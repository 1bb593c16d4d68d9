"""A folder on any file system that Arrow reaches, whose files appear whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from catchment.durable.store import FileStore, shown
from catchment.errors import StateError


class Folder:
    """Small files under one address: a local path, or a URI such as s3://bucket/path.

    A file is written beside its place and then moved there: a reader, or a restart after a
    crash, sees all of it or nothing. Folders and files are for the user of the process alone.

    >>> import tempfile
    >>> notes = Folder(tempfile.mkdtemp()).sub("notes")
    >>> notes.write("1.json", b"{}")
    >>> notes.names(), notes.read("1.json"), notes.read("2.json")
    (['1.json'], b'{}', None)
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        try:
            self._store = FileStore(self.uri, private=True)
        except (OSError, ValueError) as error:
            what, given = "the folder cannot be reached", shown(uri)
            raise StateError(what, given=given, hint=str(error)) from error

    def __reduce__(self) -> tuple[object, ...]:
        return Folder, (self.uri,)

    @property
    def shown(self) -> str:
        """The address for people, without keys and options."""
        return shown(self.uri)

    @property
    def local(self) -> str | None:
        """The path, if it is on a disk of this machine."""
        return None if self._store.local is None else self._store.path

    def sub(self, name: str) -> Folder:
        address, mark, options = (
            self.uri.partition("?") if "://" in self.uri else (self.uri, "", "")
        )
        return Folder(f"{address}/{name}{mark}{options}")

    def names(self) -> list[str]:
        """The names of the files directly in it, sorted; unfinished ones are not seen."""
        with self._explained("the folder cannot be read", ""):
            files, _ = self._store.names()
        return [name for name in files if not name.startswith(".")]

    def read(self, name: str) -> bytes | None:
        """What a file holds; None when there is none."""
        with self._explained("a file of the job cannot be read", f"/{name}"):
            return self._store.read(name)

    def write(self, name: str, data: bytes) -> None:
        """Puts a file in its place, whole; one of the same name is replaced."""
        with self._explained("a file of the job cannot be written", f"/{name}"):
            self._store.write(name, data)

    def remove(self, name: str, lasting: bool = False) -> None:
        """Deletes a file, if it is there. After a loss of power it may be there again, unless it is
        to be `lasting`."""
        with self._explained("a file of the job cannot be deleted", f"/{name}"):
            self._store.remove(name, lasting)

    @contextmanager
    def _explained(self, what: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StateError(
                what, given=f"{self.shown}{name}", hint=error.strerror or str(error)
            ) from error
