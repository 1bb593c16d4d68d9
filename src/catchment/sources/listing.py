"""The files that a path, a folder or a pattern stands for."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from typing import NamedTuple

from catchment.errors import SourceError, UnreachableError
from catchment.sources.aside import reason_of

_UNFINISHED = (".tmp", ".crc", ".inprogress")
_LOCAL = "only local paths can be read: mount it, or copy the files"


class ListedFile(NamedTuple):
    """A file, and the stream it belongs to: all files of a folder are one."""

    path: str
    partition: str
    size: int
    mtime_ns: int


def find(paths: tuple[str, ...], endings: tuple[str, ...]) -> list[ListedFile]:
    """Every file there is, sorted by path; in folders only those with one of the endings."""
    found: dict[str, ListedFile] = {}
    for path in paths:
        for name, root in _names(path, endings):
            folder = os.path.relpath(os.path.dirname(name), root)
            if len(paths) > 1:  # folders of one name under two roots are two streams
                folder = os.path.normpath(os.path.join(root, folder))
            try:
                status = os.stat(name)
            except OSError:
                continue  # gone since it was listed, or a broken link
            entry = ListedFile(name, folder, status.st_size, status.st_mtime_ns)
            found.setdefault(name, entry)
    return [found[name] for name in sorted(found)]


def _names(path: str, endings: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """File names, each with the root that its stream is named from."""
    full = _full(path)
    if os.path.isdir(full):
        yield from ((name, full) for name in _walk(full, endings))
    elif os.path.isfile(full):
        yield full, os.path.dirname(full)
    elif glob.has_magic(full):
        root = _fixed(full)
        for name in glob.iglob(full, recursive=True):
            if os.path.isfile(name) and not _hidden(os.path.basename(name)):
                yield name, root


def _walk(root: str, endings: tuple[str, ...]) -> Iterator[str]:
    for folder, folders, names in os.walk(root, onerror=_refused):
        folders[:] = sorted(name for name in folders if not _hidden(name))
        for name in names:
            if name.lower().endswith(endings) and not _hidden(name):
                yield os.path.join(folder, name)


def _refused(error: OSError) -> None:
    if isinstance(error, PermissionError):
        raise UnreachableError(
            "a folder cannot be read", given=error.filename, hint=reason_of(error)
        ) from error


def _hidden(name: str) -> bool:
    return name.startswith((".", "_")) or name.lower().endswith(_UNFINISHED)


def _fixed(pattern: str) -> str:
    """The folder before the first wildcard.

    >>> _fixed("/data/in/*/a-*.csv")
    '/data/in'
    """
    folder = os.path.dirname(pattern)
    while glob.has_magic(folder):
        folder = os.path.dirname(folder)
    return folder


def _full(path: str) -> str:
    if path.startswith("file://"):
        path = path.removeprefix("file://")
    if "://" in path:
        raise SourceError("the path is not local", given=path, hint=_LOCAL)
    return os.path.abspath(os.path.expanduser(path))


def check_paths(paths: tuple[str, ...]) -> None:
    """Raises UnreachableError for a path that stands for nothing."""
    for path in paths:
        full = _full(path)
        if os.path.exists(full):
            if not os.access(full, os.R_OK):
                raise UnreachableError("no permission to read", given=path, hint="see its rights")
        elif not glob.has_magic(full):
            raise UnreachableError("no such file or folder", given=path, hint="check the path")
        elif not any(True for _ in _names(path, ())):
            raise UnreachableError(
                "no file matches the path",
                given=path,
                hint="name the folder instead to wait for files in it",
            )
