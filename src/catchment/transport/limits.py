"""What a server lets others cost: how much, how long, and how many at once.

`Limits` is given to a `Server`; `ByteBudget` shares out the memory for what is being received.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from catchment.transport.wire import LIMIT


@dataclass(frozen=True)
class Limits:
    """Bounds of a server. A peer is a stranger until it has said who it is and, where tokens are
    asked for, shown its token. Then it is pending until its hello is accepted, which makes it the
    link of a node, or its question is answered, which ends it.
    """

    strangers: int = 48
    """How many strangers may be connected at once; one more takes the place of another one of the
    address that has the most: of one that has not begun to say who it is, if there is any, and of
    the oldest of these."""
    stranger_bytes: int = 64 << 10
    """How many bytes are read of a stranger, those of a TLS handshake included."""
    stranger_seconds: float = 10.0
    """How long a peer may be a stranger."""
    pending: int = 48
    """How many pending peers may be connected at once; for one more, the same."""
    stall_seconds: float = 30.0
    """How long a peer may take for the next byte of a frame that it has begun, for the whole hello
    or question of a pending peer, and for reading something of what waits for it."""
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
    """How many threads handle what has come; who waits for one of them, and is cut off, leaves
    nothing behind."""


class ByteBudget:
    """A number of bytes that several users share: they take some in turn and give them back."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.taken = 0
        self._queue: dict[asyncio.Future[None], int] = {}
        """Who waits, the first first, and for how many bytes."""

    async def take(self, count: int) -> None:
        """Waits for its turn, and until there is room; more than all there is gets all of it.

        Whoever is cancelled meanwhile has taken nothing, and nobody waits behind it.
        """
        if not self._queue and self._fits(count):
            self.taken += count
            return
        turn = asyncio.get_running_loop().create_future()
        self._queue[turn] = count
        try:
            await turn
        except asyncio.CancelledError:
            self._queue.pop(turn, None)
            if not turn.cancelled():  # its turn has come all the same
                self.taken -= count
            self._next()
            raise

    def give(self, count: int) -> None:
        self.taken -= count
        self._next()

    def _next(self) -> None:
        """Lets those in whose turn it is and for whom there is room."""
        while self._queue:
            turn, count = next(iter(self._queue.items()))
            if turn.cancelled():
                del self._queue[turn]
            elif self._fits(count):
                del self._queue[turn]
                self.taken += count
                turn.set_result(None)
            else:
                return

    def _fits(self, count: int) -> bool:
        return self.taken == 0 or self.taken + count <= self.total
