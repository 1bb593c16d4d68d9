"""A server process that starts, answers, stops, dies and comes back; it never outlives its parent.

Linux only in one point: the children of a killed server are found in /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from catchment.errors import CatchmentError
from catchment.measure.ports import HOST

_PATIENCE = 240.0
_PAUSE = 0.05
_TAIL = 20
# Waits until its standard input ends, which it does however this process ends.
_WATCH = 'read -r line; kill -KILL "$0"'


class ServerError(CatchmentError, RuntimeError):
    """A server that did not start, did not answer, or did not stop."""


def ask(port: int, request: bytes, length: int) -> bytes:
    """The first bytes that the server answers to a request; fewer or none when it does not."""
    answer = b""
    with (
        contextlib.suppress(OSError),
        socket.create_connection((HOST, port), timeout=10) as connection,
    ):
        connection.sendall(request)
        while len(answer) < length and (more := connection.recv(length - len(answer))):
            answer += more
    return answer


def run(command: Sequence[str], log: Path) -> None:
    """Runs a command that prepares a server; fails with what it said."""
    with log.open("ab") as sink:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, timeout=_PATIENCE
        )
    if done.returncode:
        raise ServerError(f"{Path(command[0]).name} failed: {done.returncode}\n{tail(log)}")


def tail(log: Path) -> str:
    """The last lines of a log."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return "\n".join(f"  {line}" for line in lines[-_TAIL:]) or "  (the log is empty)"


@dataclass
class Daemon:
    """One server: how to run it and how to tell that it answers. Its output goes to `log`."""

    name: str
    command: Sequence[str]
    log: Path
    answers: Callable[[], bool]
    farewell: signal.Signals = signal.SIGTERM
    """Asks the server to stop in order."""
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _watch: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    def start(self) -> None:
        """Starts the server and waits until it answers; nothing to do when it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self._release()
        with self.log.open("ab") as sink:
            # A session of its own: Ctrl-C in the terminal is for the tests, which then stop it.
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, str(self._process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._wait_for_answer(self._process)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Stops the server in order; nothing to do when it is down."""
        if self._process is None:
            return
        self._process.send_signal(self.farewell)
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(
                f"{self.name} did not stop within {_PATIENCE:.0f} s\n{tail(self.log)}"
            ) from None
        self._release()

    def kill(self) -> None:
        """Kills the server and its children without warning; nothing to do when it is down."""
        if self._process is None:
            return
        children = _children(self._process.pid)
        self._process.kill()
        self._process.wait(_PATIENCE)
        # PostgreSQL's hold its shared memory, and it does not start again before they are gone.
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        _wait(lambda: all(map(_gone, children)))
        self._release()

    def _wait_for_answer(self, process: subprocess.Popen[bytes]) -> None:
        if _wait(lambda: process.poll() is not None or self.answers()) and process.poll() is None:
            return
        code = process.poll()
        how = f"did not answer within {_PATIENCE:.0f} s" if code is None else f"ended with {code}"
        raise ServerError(f"{self.name} {how}; the end of {self.log}:\n{tail(self.log)}")

    def _release(self) -> None:
        """Lets go of a process that ended, and of its watch: the number may be given anew."""
        if self._watch is not None and self._watch.stdin is not None:
            self._watch.kill()
            self._watch.wait()
            self._watch.stdin.close()
        self._process = self._watch = None


@dataclass(frozen=True)
class Server:
    """The address of a running server, and the means to take it down and bring it back."""

    host: str
    port: int
    daemon: Daemon = field(repr=False)

    def start(self) -> None:
        """Starts it again, on the same port with the same data, and waits until it answers."""
        self.daemon.start()

    def stop(self) -> None:
        """Stops it in order."""
        self.daemon.stop()

    def kill(self) -> None:
        """Kills it without warning."""
        self.daemon.kill()


S = TypeVar("S", bound=Server)


@contextlib.contextmanager
def running(server: S) -> Iterator[S]:
    """Starts a server, and stops it at the end."""
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _wait(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + _PATIENCE
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(_PAUSE)
    return held


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _gone(pid: int) -> bool:
    """True when no such process runs; one that only waits to be collected does not run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"
