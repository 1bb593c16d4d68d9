"""TLS between the bytes of a socket and those of the protocol; does no input or output itself.

Both sides require TLS 1.3. One thread may read while another writes.
"""

from __future__ import annotations

import ssl
import threading

PIECE = 256 << 10
"""Bytes that are encrypted at once, so that a large message is not there twice."""


class Tls:
    """One TLS connection: what comes is decrypted, what goes is encrypted.

    `receive` and `send` give bytes for the protocol and for the socket. Until `ready`, `receive`
    makes the handshake; `outgoing` has what is to be sent for it.
    """

    def __init__(
        self, context: ssl.SSLContext, server: bool = False, host: str | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server, host)
        self.ready = False
        if not server:
            self.receive(b"")

    def receive(self, data: bytes) -> bytes:
        """What the other side has sent; an alert about a failure is in `outgoing`."""
        found = bytearray()
        with self._lock:
            self._in.write(data)
            try:
                if not self.ready:
                    self._object.do_handshake()
                    self.ready = True
                while piece := self._object.read(PIECE):
                    found += piece
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                pass
        return bytes(found)

    def send(self, data: bytes | memoryview) -> bytes:
        """The bytes for the socket, with those that were waiting."""
        with self._lock:
            self._object.write(data)
            return self._out.read()

    def outgoing(self) -> bytes:
        """Bytes that TLS itself wants to send."""
        with self._lock:
            return self._out.read()
