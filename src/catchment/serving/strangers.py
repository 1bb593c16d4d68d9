"""Connections of those who have not been let in yet: there are few of them, and none lasts.

A server of HTTP waits for a request as long as it takes, and every process of this host can
connect. Without limits a few hundred silent connections would keep the server from everybody else,
and many more would leave the job beside it without descriptors. Who was let in with one request is
a stranger again from the first byte of the next one until that is let in.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

STRANGERS = 48
"""Connections that have not been let in, at most."""
SECONDS = 10.0
"""How long a connection may be one of them."""

PeerAddress = tuple[str, int]


class Strangers:
    """Who is connected and has not been let in, the oldest first."""

    def __init__(self, most: int = STRANGERS, seconds: float = SECONDS) -> None:
        self._most, self._seconds = most, seconds
        self._held: dict[PeerAddress, tuple[asyncio.Transport, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def enter(self, peer: PeerAddress, transport: asyncio.Transport) -> None:
        """Somebody has connected, or begins a request: to make room, the oldest is cut off."""
        if peer in self._held:
            return
        while len(self._held) >= self._most:
            self._cut_off(next(iter(self._held)))
        loop = asyncio.get_running_loop()
        self._held[peer] = transport, loop.call_later(self._seconds, self._cut_off, peer)

    def leave(self, peer: Any) -> None:
        """Somebody was let in, or is gone."""
        if peer in self._held:
            self._held.pop(peer)[1].cancel()

    def _cut_off(self, peer: PeerAddress) -> None:
        transport = self._held[peer][0]
        self.leave(peer)
        transport.abort()


def protocol(strangers: Strangers) -> type[H11Protocol]:
    """HTTP over connections that are counted as strangers until they are let in."""

    class StrangerProtocol(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if self.client is None:  # it is gone already
                transport.abort()
            else:
                strangers.enter(self.client, transport)

        def data_received(self, data: bytes) -> None:
            if self.client is not None and (self.cycle is None or self.cycle.response_complete):
                strangers.enter(self.client, self.transport)
            super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            strangers.leave(self.client)
            super().connection_lost(exc)

    return StrangerProtocol
