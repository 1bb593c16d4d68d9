"""The listening side of one connection: frames come in and go out on the server's event loop.

A peer holds no thread. No more is read of its socket than is being looked at, so that TCP makes the
sender wait: at most one chunk is here besides the frame that is under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator

from catchment.errors import RefusedError
from catchment.transport.frames import MAGIC, Frames, bounded, frame
from catchment.transport.limits import ByteBudget, Limits
from catchment.transport.tls import PIECE, Tls
from catchment.transport.wire import (
    ASK,
    BEAT,
    BYE,
    HELLO,
    MESSAGE,
    UP,
    WHO,
    PeerUnreachableError,
)

HANDSHAKE = 0x16
"""The first byte of whoever speaks TLS."""
SMALL = 64 << 10
"""Bytes of a frame that need no share of the memory for receiving."""
LINGER = 1.0
"""Seconds that a peer has to read why it is turned away."""
UNREAD = 512 << 10
"""Bytes of it that are thrown away meanwhile."""


class Peer(asyncio.Protocol):
    """Whoever has connected: a stranger, then pending, then perhaps the link of a node."""

    def __init__(
        self, name: str, limits: Limits, receiving: ByteBudget, context: ssl.SSLContext | None
    ) -> None:
        self.name = name
        """Where it comes from."""
        self.node = ""
        """Whose link it is, once that is so."""
        self.admitted = False
        """Whether it has said who it is, and may be that."""
        self.begun = False
        """Whether it has begun what is asked of it next: a stranger, to say who it is; a peer that
        was admitted, to say what it wants."""
        self.protocol = 0
        """The version of the protocol that both sides speak."""
        self.ended = False
        """Nothing of it is handled any more."""
        self._limits = limits
        self._until = time.monotonic() + limits.stranger_seconds
        """When it must have said who it is; then, what it wants."""
        self._receiving = receiving
        self._context = context
        self._tls: Tls | None = None
        self._frames = Frames(MAGIC)
        self._transport: asyncio.Transport | None = None
        self._came = 0
        self._reserved = 0
        self._over = False
        """Nothing more will come."""
        self._reads: asyncio.Future[None] | None = None
        self._writes: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._waits: asyncio.Task[None] | None = None
        """What waits for something that others have, and need not once the peer has gone."""
        self._lock = threading.Lock()
        self._queued = 0
        """Bytes that other threads have pushed and the event loop has not taken yet."""

    # -- called by asyncio ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        self._came += len(data)
        if not self.ended:
            try:
                self._frames.feed(data if self._context is None else self._decrypted(data))
            except (PeerUnreachableError, ssl.SSLError) as error:
                self._failure = error
        self._wake()

    def _decrypted(self, data: bytes) -> bytes:
        assert self._context is not None and self._transport is not None
        if self._tls is None:
            if data[0] != HANDSHAKE:
                raise PeerUnreachableError("this node speaks TLS only", hint="give an `authority`")
            self._tls = Tls(self._context, server=True)
        try:
            return self._tls.receive(data)
        finally:
            answer = self._tls.outgoing()
            self.begun = self.begun or bool(answer)
            self._transport.write(answer)

    def eof_received(self) -> bool:
        self._over = True
        self._wake()
        return True  # what is still to be said can be written

    def connection_lost(self, error: Exception | None) -> None:
        self._over = self.ended = True
        self._wake()
        self._give_up()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._writes = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._writes is not None and not self._writes.done():
            self._writes.set_result(None)
        self._writes = None

    def _wake(self) -> None:
        if self._reads is not None and not self._reads.done():
            self._reads.set_result(None)

    # -- its turn ---------------------------------------------------------------------------------

    def admit(self) -> None:
        """It has said who it is, and may be that: it has some time to say what it wants."""
        self.admitted, self.begun = True, False
        self._until = time.monotonic() + self._limits.stall_seconds

    @contextlib.contextmanager
    def waiting_for(self) -> Iterator[None]:
        """Around a wait for what others have. It is over as soon as the peer has gone: whoever
        comes and goes must leave nothing that waits."""
        if self.ended:
            raise asyncio.CancelledError
        self._waits = asyncio.current_task()
        try:
            yield
        finally:
            self._waits = None

    def _give_up(self) -> None:
        waits, self._waits = self._waits, None
        if waits is not None:
            waits.cancel()

    # -- reading ----------------------------------------------------------------------------------

    def _judge(self, kind: bytes, length: int) -> None:
        """Says of a frame whether it may come, before it does."""
        if kind not in UP:
            raise RefusedError("there is no such kind of frame", given=kind)
        if not self.admitted:
            if kind != WHO:
                raise RefusedError("a peer says first who it is", given=kind)
            bounded(length, self._limits.stranger_bytes)
        elif not self.node and kind not in (HELLO, ASK):
            raise RefusedError("a link begins with a hello", given=kind)
        elif self.node and kind not in (MESSAGE, BEAT, BYE):
            raise RefusedError("a node sends messages and heartbeats only", given=kind)
        bounded(length, self._limits.message if kind == MESSAGE else self._limits.note)

    async def read(self) -> tuple[bytes, bytes] | None:
        """The next frame; None at the end.

        The server's limits say how long it may take: all of it before the peer is a node's link,
        and then each byte after the first.
        """
        self.release()
        while not self.ended:
            if self._failure is not None:
                self._fail()
            found = self._frames.next(self._judge)
            if found is not None:
                self.begun = True
                return found
            if self._over:
                return None
            await self._room()
            await self._more()
        return None

    def _fail(self) -> None:
        """Raises what went wrong. An error knows where it was raised, and so would keep this peer
        from being freed if the peer kept it."""
        failure, self._failure = self._failure, None
        try:
            raise failure or AssertionError
        finally:
            del failure

    async def _room(self) -> None:
        """Waits until there is memory for the frame that is under way."""
        needed = self._frames.announced
        if needed > SMALL and not self._reserved:
            begun = time.monotonic()
            with self.waiting_for():
                await self._receiving.take(needed)
            self._reserved = needed
            self._until += time.monotonic() - begun

    def release(self) -> None:
        """Gives back the memory of the frame that was read last."""
        reserved, self._reserved = self._reserved, 0
        if reserved:
            self._receiving.give(reserved)

    async def _more(self) -> None:
        """Waits for more bytes."""
        if self._transport is None or self._transport.is_closing():
            self.ended = True
            return
        if not self.admitted and self._came > self._limits.stranger_bytes:
            raise RefusedError(
                "a peer that has not said who it is sends too much", given=f"{self._came} bytes"
            )
        timeout = self._limits.stall_seconds if self._frames.begun else None
        if not self.node:
            timeout = self._until - time.monotonic()
        self._reads = asyncio.get_running_loop().create_future()
        self._transport.resume_reading()
        try:
            await asyncio.wait_for(self._reads, timeout)
        except TimeoutError:
            what = "nothing came in time" if self.admitted else "a peer did not say who it is"
            raise PeerUnreachableError(what, given=self.name) from None
        finally:
            self._reads = None

    # -- writing ----------------------------------------------------------------------------------

    async def send(self, packed: bytes) -> None:
        """Sends a frame; waits while the peer does not read, which may not last."""
        self._write(packed)
        while (writes := self._writes) is not None and not self.ended:
            before = self.waiting
            try:
                await asyncio.wait_for(asyncio.shield(writes), self._limits.stall_seconds)
            except TimeoutError:
                if self.waiting >= before:
                    self.abort()

    def push(self, packed: bytes, soon: Callable[[Callable[[bytes], None], bytes], object]) -> bool:
        """Has a frame sent, from any thread, unless too much waits already."""
        with self._lock:
            if self.ended or self._queued + self.waiting > self._limits.waiting:
                return False
            self._queued += len(packed)
        soon(self._pushed, packed)
        return True

    def _pushed(self, packed: bytes) -> None:
        with self._lock:
            self._queued -= len(packed)
        if not self.ended:
            self._write(packed)

    @property
    def waiting(self) -> int:
        """Bytes that the peer has not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _write(self, packed: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        data = b"".join(frame(packed))
        if self._tls is None:
            self._transport.write(data)
        elif self._tls.ready:
            whole = memoryview(data)
            for at in range(0, len(data), PIECE):
                self._transport.write(self._tls.send(whole[at : at + PIECE]))

    # -- ending -----------------------------------------------------------------------------------

    def end_with(self, packed: bytes) -> None:
        """Tells the peer to let go. From here on nothing of it is handled."""
        if not self.ended:
            self._write(packed)
            self.ended = True
            self._wake()
            self._give_up()

    async def refuse(self, packed: bytes | None) -> None:
        """Says why, gives the peer a moment to read it, and closes."""
        self.ended = True
        self.release()
        self._frames = Frames()  # what came of it need not be here for as long as it lingers
        if self._transport is None:
            return
        if packed is not None and self._tls is None and self._context is not None:
            # It did not come over TLS, and so could not read anything else.
            self._transport.write(b"".join(frame(packed)))
        elif packed is not None:
            self._write(packed)
        try:
            await self._linger(self._transport)
        finally:
            # It may have gone meanwhile, of which some calls complain.
            if self.waiting:
                self.abort()
            else:
                self._transport.close()

    async def _linger(self, transport: asyncio.Transport) -> None:
        """Lets the peer read why: a socket closed with bytes unread is reset, which may lose it."""
        end, most, told = time.monotonic() + LINGER, self._came + UNREAD, False
        while not transport.is_closing() and not self._over and self._came < most:
            if not told and not self.waiting:
                transport.write_eof()
                told = True
            self._reads = asyncio.get_running_loop().create_future()
            transport.resume_reading()
            try:
                await asyncio.wait_for(self._reads, end - time.monotonic())
            except TimeoutError:
                return
            finally:
                self._reads = None

    def abort(self) -> None:
        """Closes it at once."""
        self.ended = True
        self._give_up()
        if self._transport is not None:
            self._transport.abort()
        self._wake()
