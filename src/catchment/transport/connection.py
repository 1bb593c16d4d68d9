"""The side of a connection that opens it: a socket, TLS where there is security, and frames.

One thread may read while others write. Every wait has an end: connecting and the TLS handshake by a
deadline, writing when nothing has been taken for a while. Reading alone may last: a link is quiet
between heartbeats.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from catchment.errors import RefusedError
from catchment.model import records
from catchment.serving.addresses import split_address
from catchment.transport.error_text import LOST, unreachable
from catchment.transport.frames import MAGIC, Frames, bounded, frame
from catchment.transport.security import Security
from catchment.transport.tls import PIECE, Tls
from catchment.transport.wire import (
    BYE,
    DOWN,
    LIMIT,
    OLDEST,
    PROTOCOL,
    REFUSED,
    WHO,
    PeerUnreachableError,
    Who,
    pack,
    prepare,
    unpack_error,
)

STALL = 30.0
"""Seconds without any progress after which a write has failed."""
CHUNK = 64 << 10


class Connection:
    """A connection to a node, made and secured; the side that made it first says who it is."""

    def __init__(self, address: str, security: Security, timeout: float) -> None:
        self.address = address
        self._secure = security.tls
        self._tls: Tls | None = None
        self._deadline: float | None = time.monotonic() + timeout
        self._writing = threading.Lock()
        self._heard = False
        self._frames = Frames()
        host, port = split_address(address)
        context = security.client_context()
        with self._sentences():
            self._socket = socket.create_connection((host.strip("[]"), port), timeout)
        try:
            prepare(self._socket)
            if context is not None:
                with self._sentences():
                    self._handshake(Tls(context, host=host.strip("[]")))
        except BaseException:
            self._socket.close()
            raise

    def _handshake(self, tls: Tls) -> None:
        try:
            while not tls.ready:
                self._push(tls.outgoing())
                data = self._pull()
                if not data:
                    raise ConnectionResetError
                tls.receive(data)
        finally:
            with contextlib.suppress(OSError):
                self._push(tls.outgoing())
        self._tls = tls

    def introduce(self, name: str, security: Security, then: bytes) -> None:
        """Says who is there, and with the same packet what it wants."""
        who = Who(PROTOCOL, OLDEST, name, security.token_of(name))
        begin = b"".join((MAGIC, *frame(pack(WHO, records.encode(who))), frame(then)[0]))
        self._write(begin + then if len(then) < CHUNK else begin)
        if len(then) >= CHUNK:
            self._write(then)

    def lasts(self) -> None:
        """From here on there is no deadline."""
        self._deadline = None

    def write(self, packed: bytes) -> None:
        """Sends a frame: a kind and a body."""
        head, body = frame(packed)
        with self._writing:
            if len(body) < CHUNK:
                self._write(head + body)
            else:
                self._write(head)
                self._write(body)

    def read(self) -> tuple[bytes, bytes] | None:
        """The next frame; None at the end. Raises what the other side ends the connection with."""
        with self._sentences():
            while (found := self._frames.next(self._judge)) is None:
                data = self._pull()
                if not data:
                    return None
                self._frames.feed(data if self._tls is None else self._tls.receive(data))
        self._heard = True
        if found[0] in (REFUSED, BYE):
            raise unpack_error(*found)
        return found

    def shut(self) -> None:
        """Ends the connection and wakes threads that use it; `close` closes the socket."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    # -- bytes ------------------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        with self._sentences():
            if self._tls is None:
                self._push(data)
                return
            whole = memoryview(data)
            for at in range(0, len(data), PIECE):
                self._push(self._tls.send(whole[at : at + PIECE]))

    def _push(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self._socket.settimeout(self._left())
            left = left[self._socket.send(left) :]

    def _pull(self) -> bytes:
        while True:
            try:
                self._socket.settimeout(self._left())
                return self._socket.recv(CHUNK)
            except TimeoutError:
                if self._deadline is not None:
                    raise

    def _left(self) -> float:
        """Seconds that the next wait may take."""
        if self._deadline is None:
            return STALL
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _judge(self, kind: bytes, length: int) -> None:
        if kind not in DOWN:
            raise strange(self.address)
        bounded(length, LIMIT)

    def _sentences(self) -> _Sentences:
        return _Sentences(self)

    def explained(self, error: OSError | UnicodeError) -> PeerUnreachableError:
        """An error of the socket in a sentence."""
        found = unreachable(self.address, error)
        if found.what == LOST and not self._heard:
            # A peer that wants a certificate may hang up without a word.
            hint = "the other side may not accept this side's certificate" if self._secure else None
            return PeerUnreachableError(found.what, given=found.given, hint=hint)
        return found


class _Sentences:
    """Turns what sockets and TLS raise into our errors."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PeerUnreachableError):
            return
        if isinstance(error, OSError | UnicodeError):
            raise self._connection.explained(error) from None
        if isinstance(error, RefusedError):
            # What came is no frame, or one that is too long.
            raise PeerUnreachableError(error.what, given=error.given, hint=error.hint) from None


def strange(address: str) -> PeerUnreachableError:
    return PeerUnreachableError(
        "what listens there does not speak this protocol", given=address, hint="check the address"
    )
