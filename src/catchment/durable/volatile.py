"""Files in memory that lose what was not synced: a disk whose power fails at the worst moment.

The calls of `catchment.durable.files` go in, and what they would leave on a disk comes out. At a
`crash` any part of what was not synced is lost: of each file any of its writes, or the end of one;
of each folder any of the files that were created, renamed or deleted there. So a file can be there
without its content, a content without its name, and a later write without an earlier one. Real
file systems are kinder; what holds here holds on all of them.

`cut_after` lets the power fail in the middle of what a program does: after so many more calls that
change something, every call fails until `crash`.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from catchment.durable.files import Data

T = TypeVar("T")


@dataclass
class _Content:
    """A file: as a crash surely leaves it, what was done to it since, and as a program sees it."""

    synced: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes: a place and data; or, without data, that the file is cut off there."""
    now: bytes = b""

    def change(self, at: int, data: bytes | None) -> None:
        self.changes.append((at, data))
        self.now = _changed(self.now, at, data)

    def crash(self, dice: random.Random) -> None:
        kept = self.synced
        for at, data in _survivors(dice, self.changes):
            if data and dice.random() < 0.3:
                data = data[: dice.randrange(len(data))]
            kept = _changed(kept, at, data)
        self.synced, self.now, self.changes = kept, kept, []


@dataclass
class _FolderNames:
    """A folder: names as a crash surely leaves them, changes since, and as a program sees them."""

    synced: dict[str, _Content | _FolderNames] = field(default_factory=dict)
    changes: list[tuple[str | None, str | None, _Content | _FolderNames]] = field(
        default_factory=list
    )
    """The name that is gone, the name that is new, and what it stands for."""
    now: dict[str, _Content | _FolderNames] = field(default_factory=dict)

    def change(self, gone: str | None, new: str | None, what: _Content | _FolderNames) -> None:
        self.changes.append((gone, new, what))
        _renamed(self.now, gone, new, what)

    def crash(self, dice: random.Random) -> None:
        kept = dict(self.synced)
        for gone, new, what in _survivors(dice, self.changes):
            _renamed(kept, gone, new, what)
        self.synced, self.now, self.changes = kept, dict(kept), []
        for what in {id(what): what for what in kept.values()}.values():
            what.crash(dice)


def _changed(old: bytes, at: int, data: bytes | None) -> bytes:
    if data is None:
        return old[:at].ljust(at, b"\0")
    return old[:at].ljust(at, b"\0") + data + old[at + len(data) :]


def _renamed(
    names: dict[str, _Content | _FolderNames],
    gone: str | None,
    new: str | None,
    what: _Content | _FolderNames,
) -> None:
    if gone is not None:
        names.pop(gone, None)
    if new is not None:
        names[new] = what


def _survivors(dice: random.Random, changes: list[T]) -> list[T]:
    """What a crash leaves of changes that were not synced: nothing, all, a beginning, or any."""
    way = dice.randrange(4)
    if way == 0:
        return []
    if way == 1:
        return changes
    if way == 2:
        return changes[: dice.randint(0, len(changes))]
    return [change for change in changes if dice.random() < 0.5]


class VolatileFile:
    """An open file."""

    def __init__(self, files: VolatileFiles, content: _Content) -> None:
        self._files, self._content = files, content

    def write(self, at: int, data: Data) -> None:
        held = bytes(data)
        room = self._files.room()
        over = at + len(held) - len(self._content.now)
        if room is not None and over > room:  # what is there already has its room
            self._content.change(at, held[: len(held) - over + room])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._files.count_down()
        self._content.change(at, held)

    def truncate(self, size: int) -> None:
        self._files.count_down()
        self._content.change(size, None)

    def sync(self) -> None:
        self._files.count_down()
        self._content.synced, self._content.changes = self._content.now, []
        self._files.syncs += 1

    def close(self) -> None:
        return


class VolatileFiles:
    """A file system in memory. Its root is a folder that is always there."""

    def __init__(self) -> None:
        self._root = _FolderNames()
        self.full = False
        """Whether there is no room for anything new."""
        self.dead = False
        """Whether the power has failed: nothing works until `crash`."""
        self.syncs = 0
        """How often a file or a folder was synced."""
        self._left: int | None = None

    def cut_after(self, calls: int) -> None:
        """Lets the power fail after so many calls that change something."""
        self._left = calls

    def crash(self, dice: random.Random) -> None:
        """Loses what was not synced, or some of it, and works again."""
        self._root.crash(dice)
        self.dead, self._left = False, None

    def check(self) -> None:
        """Fails when there is no power."""
        if self.dead:
            raise OSError(errno.EIO, "the power has failed")

    def count_down(self) -> None:
        """Counts a call that changes something, and fails when the power does."""
        self.check()
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self.dead = True
                self.check()

    def room(self) -> int | None:
        """Bytes that can be written; None: any number."""
        self.check()
        return 3 if self.full else None

    # -- files ------------------------------------------------------------------------------------

    def names(self, folder: str) -> list[str]:
        self.check()
        found = self._find(folder)
        if not isinstance(found, _FolderNames):
            return []
        return sorted(name for name, what in found.now.items() if isinstance(what, _Content))

    def read(self, path: str, at: int = 0, size: int | None = None) -> bytes:
        self.check()
        data = self._content(path).now
        return data[at:] if size is None else data[at : at + size]

    def create(self, path: str) -> VolatileFile:
        folder, name = self._place(path)
        if name in folder.now:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self.count_down()
        made = _Content()
        folder.change(None, name, made)
        return VolatileFile(self, made)

    def open(self, path: str) -> VolatileFile:
        self.check()
        return VolatileFile(self, self._content(path))

    def rename(self, old: str, new: str) -> None:
        content = self._content(old)
        folder, name = self._place(old)
        other, new_name = self._place(new)
        assert folder is other, "files are renamed within a folder"
        self.count_down()
        folder.change(name, new_name, content)

    def unlink(self, path: str) -> None:
        content = self._content(path)
        folder, name = self._place(path)
        self.count_down()
        folder.change(name, None, content)

    def is_folder(self, path: str) -> bool:
        self.check()
        return isinstance(self._find(path), _FolderNames)

    def make_folder(self, path: str) -> None:
        folder, name = self._place(path)
        if name not in folder.now:
            self.count_down()
            folder.change(None, name, _FolderNames())

    def sync_folder(self, path: str) -> None:
        found = self._find(path)
        if not isinstance(found, _FolderNames):
            raise _not_there(path)
        self.count_down()
        found.synced, found.changes = dict(found.now), []
        self.syncs += 1

    def edit(self, path: str, how: Callable[[bytes], bytes]) -> None:
        """Changes what is on the disk behind everybody's back: damage, for tests."""
        folder, name = self._place(path)
        content = folder.now.setdefault(name, _Content())
        assert isinstance(content, _Content)
        folder.synced[name] = content
        content.now = content.synced = how(content.now)
        content.changes = []

    def _find(self, path: str) -> _Content | _FolderNames | None:
        found: _Content | _FolderNames | None = self._root
        for part in path.split("/"):
            if part in ("", "."):
                continue
            found = found.now.get(part) if isinstance(found, _FolderNames) else None
        return found

    def _content(self, path: str) -> _Content:
        self.check()
        found = self._find(path)
        if not isinstance(found, _Content):
            raise _not_there(path)
        return found

    def _place(self, path: str) -> tuple[_FolderNames, str]:
        self.check()
        above, _, name = path.rpartition("/")
        found = self._find(above)
        if not isinstance(found, _FolderNames):
            raise _not_there(above)
        return found, name


def _not_there(path: str) -> OSError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
