"""All nodes of a tree as processes on this host: a node that dies is started again.

`Supervisor.watch` starts one process a node and looks after them until the root has done its work.
A node that ends by an error, or is killed, is started again after a pause that grows with every
failure in a row; nobody else is touched, and the tree goes on as it does when a node on another
host restarts. `Supervisor.stop` ends the nodes from the leaves to the root. Every process holds
the other end of a pipe: when the supervisor itself is killed, the pipe closes and the nodes end by
themselves (`end_with_supervisor`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from catchment.errors import CatchmentError

PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before a node is started again, by how many failures it has had in a row."""
SETTLED = 60.0
"""Seconds after which a node counts as running: its next failure is the first in a row again."""
REFUSED = 3
"""The exit code of a node that its parent has turned away for good: it is not started again."""
_HOPELESS = 3
"""Failures in a row after which a root that has never settled is given up."""
_GRACE = 30.0
"""Seconds that a node has to end when it is told to."""
_DONE = 10.0
"""Seconds that the others have to end by themselves once the root has."""


@dataclass
class _Watched:
    """One node: its process, or when it is started again."""

    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    due: float = 0.0
    failures: int = 0
    settled: bool = False
    done: bool = False


class Supervisor:
    """Starts nodes, starts those again that die, and ends all in order.

    `commands` are the nodes' command lines by id and `parents` the id of each node's parent (None:
    the root); `say` takes a sentence for the person who watches. `spares` may wait for ever, and
    are not waited for at the end.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        parents: Mapping[str, str | None],
        say: Callable[[str], None],
        spares: Collection[str] = (),
    ) -> None:
        self.commands = commands
        self._spares = spares
        self.parents = parents
        self._say = say
        self._nodes = {id: _Watched() for id in commands}
        self._root = next(id for id, parent in parents.items() if parent is None)
        self._stopping = threading.Event()

    @property
    def pids(self) -> dict[str, int]:
        """The process of each node that runs."""
        nodes = self._nodes.items()
        return {id: node.process.pid for id, node in nodes if node.process is not None}

    def watch(self, each: Callable[[], None] = lambda: None, pause: float = 0.1) -> None:
        """Runs until the root is done or `interrupt` is called; calls `each` all the while."""
        try:
            while not self._stopping.is_set() and not self._nodes[self._root].done:
                for id in self._nodes:
                    self._look_after(id)
                each()
                self._stopping.wait(pause)
            if not self._stopping.is_set():
                self._let_end(time.monotonic() + _DONE)
        finally:
            self.stop()

    def interrupt(self) -> None:
        """Has `watch` end all nodes and return."""
        self._stopping.set()

    def _look_after(self, id: str) -> None:
        node, now = self._nodes[id], time.monotonic()
        if node.done:
            return
        if node.process is None:
            if now >= node.due:
                self._start(id)
            return
        if now - node.started > SETTLED:
            node.settled, node.failures = True, 0
        code = node.process.poll()
        if code is None:
            return
        self._release(node)
        if code == 0:
            node.done = True
            return
        if code == REFUSED and id != self._root:
            node.done = True
            self._say(f"{id} was turned away for good; it is not started again")
            return
        node.failures += 1
        if id == self._root and not node.settled and node.failures >= _HOPELESS:
            raise CatchmentError(
                "the root cannot be started", given=f"{id}, {_ending(code)}", hint="see above why"
            )
        wait = PAUSES[min(node.failures, len(PAUSES)) - 1]
        node.due = now + wait
        self._say(f"{id} has ended ({_ending(code)}); it is started again in {wait:g} s")

    def _start(self, id: str) -> None:
        node = self._nodes[id]
        # A session of its own: Ctrl-C reaches the supervisor alone, which ends the nodes in order.
        node.process = subprocess.Popen(
            list(self.commands[id]), stdin=subprocess.PIPE, start_new_session=True
        )
        node.started = time.monotonic()

    @staticmethod
    def _release(node: _Watched) -> None:
        if node.process is not None and node.process.stdin is not None:
            node.process.stdin.close()
        node.process = None

    def _let_end(self, until: float) -> None:
        """Waits for nodes that end by themselves, since all is done."""
        while time.monotonic() < until and not self._stopping.is_set():
            nodes = [node for id, node in self._nodes.items() if id not in self._spares]
            if all(n.process is None or n.process.poll() is not None for n in nodes):
                return
            time.sleep(0.05)

    def stop(self) -> None:
        """Ends all nodes, those furthest from the root first."""
        for level in self._levels():
            ending = [node.process for id in level if (node := self._nodes[id]).process]
            for process in ending:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
            until = time.monotonic() + _GRACE
            for process in ending:
                try:
                    process.wait(max(0.0, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            for id in level:
                self._release(self._nodes[id])

    def _levels(self) -> list[list[str]]:
        """The nodes by their distance from the root, the furthest first."""
        found: dict[int, list[str]] = {}
        for id in self._nodes:
            depth, at = 0, self.parents[id]
            while at is not None:
                depth, at = depth + 1, self.parents.get(at)
            found.setdefault(depth, []).append(id)
        return [found[depth] for depth in sorted(found, reverse=True)]


def _ending(code: int) -> str:
    """How a process ended, in words.

    >>> _ending(1), _ending(-9)
    ('exit code 1', 'killed by SIGKILL')
    """
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def end_with_supervisor(stop: Callable[[], None], pipe: int = 0) -> None:
    """Has this process stop once its supervisor's end of the pipe (standard input) is closed."""

    def wait() -> None:
        # Not through `sys.stdin`: a thread that waits in its buffer breaks the interpreter's exit.
        while os.read(pipe, 4096):
            pass
        stop()
        time.sleep(_GRACE)
        os._exit(1)

    threading.Thread(target=wait, name="supervisor", daemon=True).start()
