"""The right to write in a folder, for one process at a time.

On a local disk it is a lock of the operating system on the file `lock`: it ends with its process,
however that ends, and nothing is left to be cleared away. Who holds it is written in the file.

Stores of objects have no locks. There it is a lease: a small object with its owner and the time at
which it ends. The owner renews it from a thread of its own; when it has ended, another process may
take it. Whoever writes the object reads it back after a while, so that of two processes that write
at once only the last one goes on. Clocks must agree to within some seconds. A lease that could not
be renewed in time is lost: `check` says so, and the process must not write any more.

Both are for processes that mean well and were started twice. Neither keeps a stranger out.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from catchment.durable.files import LocalFiles, make_folders
from catchment.durable.folder import Folder
from catchment.errors import StateError
from catchment.model import records

_log = logging.getLogger("catchment.durable")

NAME = "lock"
LEASE = 60.0
"""Seconds that a lease lasts; it is renewed three times as often."""
SETTLE = 1.0
"""Seconds after which a lease that was written is read back."""


class LockHolder(msgspec.Struct, frozen=True):
    """Who holds a folder."""

    owner: str
    """Random letters."""
    pid: int
    host: str
    since: float
    """Seconds since 1970."""
    expires: float | None = None
    """When a lease ends, unless it is renewed."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {_shown(self.since)}"


class Lock(ABC):
    """A folder that this process holds, until `release` or the end of the process."""

    @abstractmethod
    def release(self) -> None:
        """Lets others have the folder. It may be called twice."""

    @abstractmethod
    def check(self) -> None:
        """Raises when the folder is not held any more."""

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def hold(folder: Folder, lease: float = LEASE, settle: float = SETTLE) -> Lock:
    """Holds a folder; a `StateError` says who has it.

    >>> import tempfile
    >>> home = Folder(tempfile.mkdtemp())
    >>> with hold(home) as lock:
    ...     lock.check()
    """
    if folder.local is not None:
        return FileLock(folder.local)
    return Lease(folder, lease, settle)


def holder(folder: Folder) -> LockHolder | None:
    """Who holds a folder, as far as can be told without trying to hold it; None: nobody.

    On a local disk the last holder counts while its process lives. Of a process on another host,
    which shares the disk, nothing can be told, and it is taken to live.
    """
    held = _read(folder.read(NAME))
    if held is None:
        return None
    if held.expires is not None:
        return held if held.expires > time.time() else None
    return held if held.host != socket.gethostname() or _lives(held.pid) else None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class FileLock(Lock):
    """A lock of the operating system, which dies with its process."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._number = -1
        try:
            make_folders(LocalFiles(), folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            number = os.open(f"{folder}/{NAME}", flags, 0o600)
        except OSError as error:
            raise StateError(
                "the folder cannot be locked",
                given=folder,
                hint=(error.strerror or str(error)).lower(),
            ) from error
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            held = _read(os.pread(number, 4096, 0))
            os.close(number)
            raise _taken(folder, held, "it ends when that process does") from error
        self._number = number
        with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
            os.ftruncate(number, 0)
            os.pwrite(number, records.encode(_me(time.time())), 0)

    def release(self) -> None:
        if self._number >= 0:
            number, self._number = self._number, -1
            with contextlib.suppress(OSError):
                os.ftruncate(number, 0)  # whoever reads it sees that nobody holds the folder
            os.close(number)

    def check(self) -> None:
        if self._number < 0:
            raise StateError("the folder is not held any more", given=self._folder)

    def __del__(self) -> None:
        self.release()


class Lease(Lock):
    """A small object that says who may write, and until when."""

    def __init__(
        self,
        folder: Folder,
        seconds: float = LEASE,
        settle: float = SETTLE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._seconds, self._clock = folder, seconds, clock
        self._me = _me(clock())
        self._stop = threading.Event()
        self._lost: LockHolder | None = None
        self._until = 0.0
        held = self._holder()
        if held is not None and (held.expires or 0) > clock():
            raise _taken(
                folder.shown, held, f"if it is gone, wait until {_shown(held.expires or 0)}"
            )
        self._write()
        time.sleep(settle)
        held = self._holder()
        if held is None or held.owner != self._me.owner:
            raise _taken(folder.shown, held, "it came at the same moment")
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def _holder(self) -> LockHolder | None:
        return _read(self._folder.read(NAME))

    def _write(self) -> None:
        until = self._clock() + self._seconds
        record = msgspec.structs.replace(self._me, expires=until)
        self._folder.write(NAME, records.encode(record))
        self._until = until

    def _renew(self) -> None:
        while not self._stop.wait(self._seconds / 3):
            try:
                held = self._holder()
                if held is None or held.owner != self._me.owner:
                    self._lost = held or msgspec.structs.replace(self._me, pid=0, host="nobody")
                    _log.error("%s", self._error())
                    return
                self._write()
            except StateError as error:
                _log.warning("the lease cannot be renewed: %s", error)

    def _error(self) -> StateError:
        return StateError(
            "the lease of the folder is lost",
            given=f"{self._folder.shown}: {self._lost or 'it could not be renewed in time'}",
            hint="another process may go on with it; stop this one",
        )

    def check(self) -> None:
        if self._stop.is_set():
            raise StateError("the folder is not held any more", given=self._folder.shown)
        if self._lost is not None or self._clock() > self._until:
            raise self._error()

    def release(self) -> None:
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        if self._lost is None:
            with contextlib.suppress(StateError):  # it ends by itself
                held = self._holder()
                if held is not None and held.owner == self._me.owner:
                    self._folder.remove(NAME)


def _me(now: float) -> LockHolder:
    return LockHolder(uuid.uuid4().hex, os.getpid(), socket.gethostname(), now)


def _read(data: bytes | None) -> LockHolder | None:
    try:
        return None if data is None else records.decode(LockHolder, data, NAME)
    except StateError:
        return None  # whoever holds it has not written it yet


def _taken(where: str, held: LockHolder | None, hint: str) -> StateError:
    who = "a process that has just begun" if held is None else str(held)
    return StateError(
        "another process works in this folder",
        given=f"{where}: {who}",
        hint=f"{hint}; to run another job, give it a folder of its own",
    )


def _shown(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
