"""What a server lets others cost: how much, how long, and how many at once.

`Limits` is given to a `Server`; `ByteBudget` shares out the memory for what is being received.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from catchment.transport.wire import LIMIT


@dataclass(frozen=True)
class Limits:
    """Bounds of a server. A peer is a stranger until it has said who it is and, where tokens are
    asked for, shown its token. Then it is pending until its hello is accepted, which makes it the
    link of a node, or its question is answered, which ends it.
    """

    strangers: int = 48
    """How many strangers may be connected at once; one more takes the place of the oldest one of
    the address that has the most."""
    stranger_bytes: int = 64 << 10
    """How many bytes are read of a stranger, those of a TLS handshake included."""
    stranger_seconds: float = 10.0
    """How long a peer may be a stranger."""
    pending: int = 48
    """How many pending peers may be connected at once; for one more, the same."""
    stall_seconds: float = 30.0
    """How long a peer may take for the next byte of a frame that it has begun, for the hello or the
    question of a pending peer, and for reading something of what waits for it."""
    note: int = 8 << 20
    """How many bytes a note may have: a hello, a heartbeat, a question."""
    message: int = LIMIT
    """How many bytes a message may have."""
    receiving: int = LIMIT
    """How many bytes of messages and notes all peers together may have under way at once; others
    wait until there is room, which TCP tells their senders. One that is larger goes alone."""
    waiting: int = 1 << 20
    """How many bytes may wait for a node that does not read before pushes to it are given up."""
    workers: int = 8
    """How many threads handle what has come."""


class ByteBudget:
    """A number of bytes that several users share: they take some in turn and give them back."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.taken = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, count: int) -> None:
        """Waits for its turn, and until there is room; more than all there is gets all of it."""
        if self._queue or not self._fits(count):
            turn = asyncio.get_running_loop().create_future()
            self._queue.append((count, turn))
            await turn
        else:
            self.taken += count

    def give(self, count: int) -> None:
        self.taken -= count
        while self._queue and self._fits(self._queue[0][0]):
            count, turn = self._queue.popleft()
            if not turn.done():
                self.taken += count
                turn.set_result(None)

    def _fits(self, count: int) -> bool:
        return self.taken == 0 or self.taken + count <= self.total
