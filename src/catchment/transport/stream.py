"""The listening end of one link: reads frames, and writes them without making anyone wait."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pyarrow as pa

from catchment.errors import RefusedError
from catchment.transport.trouble import ERRORS
from catchment.transport.wire import KINDS

WAITING = 4096
"""How many frames may wait for a peer that reads slowly."""


class Stream:
    """One peer's stream. Frames are written in order by a thread: a push never waits for a peer."""

    def __init__(self, peer: str, reader: Any, writer: Any, limit: int) -> None:
        self.peer = peer
        self.node = ""
        self._reader = reader
        self._writer = writer
        self._limit = limit
        self._ended = False
        self._waiting: queue.Queue[bytes | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._write, name=f"stream {peer}", daemon=True)
        self._thread.start()

    def read(self) -> tuple[bytes, bytes] | None:
        """The kind and the body of the next frame; None at the end."""
        try:
            metadata = self._reader.read_chunk().app_metadata
        except (StopIteration, *ERRORS):
            return None
        if self._ended:
            return None
        if metadata is None or metadata.size == 0:
            raise RefusedError("a frame of a link says nothing")
        kind = metadata[:1].to_pybytes()
        if kind not in KINDS:
            raise RefusedError("there is no such kind of frame", given=kind)
        return kind, bytes_of(metadata[1:], self._limit)

    def say(self, frame: bytes) -> None:
        """Has a frame written; waits while the peer does not read."""
        self._waiting.put(frame)

    def offer(self, frame: bytes) -> bool:
        """Has a frame written, unless too many wait already."""
        try:
            self._waiting.put_nowait(frame)
        except queue.Full:
            return False
        return not self._ended

    def end_with(self, frame: bytes) -> None:
        """Tells the peer to let go. From here on nothing of it is handled."""
        self.offer(frame)
        self._ended = True

    def close(self) -> None:
        """Returns when everything has been written, or cannot be."""
        self._ended = True
        self._waiting.put(None)
        self._thread.join()

    def _write(self) -> None:
        broken = False
        while (frame := self._waiting.get()) is not None:
            try:
                if not broken:
                    self._writer.write_metadata(frame)
            except ERRORS:
                # Frames are still taken, so that whoever waits to say something goes on.
                broken = True


def bytes_of(buffer: pa.Buffer, limit: int) -> bytes:
    """What a buffer holds, if it is no longer than allowed."""
    if buffer.size > limit:
        raise RefusedError(
            f"a message is larger than the {limit} bytes that are taken here",
            given=f"{buffer.size} bytes", hint="send it in parts, or raise the limit",
        )  # fmt: skip
    return buffer.to_pybytes()
