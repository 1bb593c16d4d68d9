"""The reader of a node that merges and has a source of its own.

Such a node is two places of the tree: one that merges, and below it one that reads
(`NodePlace.host` names the first). Both run in one process. The reader is a node like any other,
with a folder of its own, and works on a thread of its own; only its link is a call instead of a
connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from catchment.errors import CatchmentError
from catchment.nodes.node_service import NodeService
from catchment.sources.watch import SourceNote


class InnerLink:
    """The link of a reader to the node whose process it runs in."""

    closed = False
    error: CatchmentError | None = None

    def __init__(
        self,
        host: NodeService,
        node: str,
        hello: Callable[[], bytes],
        heard: Callable[[bytes], None],
    ) -> None:
        self._host, self._node, self._hello, self._heard = host, node, hello, heard

    def open(self) -> bytes:
        """Says hello; returns what the host answered."""
        return self._host.hello(self._node, self._hello())

    def send(self, body: bytes) -> None:
        """Hands a message to the parent, and takes its answer before this returns."""
        self._heard(self._host.message(self._node, body))

    def beat(self, note: bytes) -> None:
        """Hands a heartbeat to the parent, and takes its answer before this returns."""
        self._heard(self._host.beat(self._node, note))

    def close(self) -> None:
        """There is nothing to close."""


class _Process(Protocol):
    """What a reader needs of the process of a node."""

    given: Any

    def run(self) -> None: ...
    def stop(self) -> None: ...
    def hurry(self) -> None: ...
    def source_note(self) -> SourceNote | None: ...


class Reader:
    """Runs the process of a reader on a thread, and passes on what it dies of."""

    def __init__(self, process: _Process) -> None:
        self._process = process
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=self.id, daemon=True)

    @property
    def id(self) -> str:
        return str(self._process.given.id)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._process.run()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            self._error = error

    def start(self) -> None:
        """Starts the thread, unless it was started before."""
        if self._thread.ident is None:
            self._thread.start()

    def check(self) -> None:
        """Raises what the reader has died of, if it has."""
        if self._error is not None:
            raise self._error

    def source_note(self) -> SourceNote | None:
        """What of the source was never read."""
        return self._process.source_note()

    def hurry(self) -> None:
        """Has the reader ask for news at once: there is a newer charter, or a question."""
        self._process.hurry()

    def close(self) -> None:
        """Ends the reader, and waits until it has."""
        self._process.stop()
        if self._thread.ident is not None:
            self._thread.join(60)
