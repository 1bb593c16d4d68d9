"""The end of a link that connects: messages and heartbeats up, acknowledgements and pushes down."""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable

from catchment.errors import CatchmentError, RefusedError
from catchment.model import records
from catchment.serving.addresses import split_address
from catchment.transport.connection import Connection, strange
from catchment.transport.security import ADMIN, Security
from catchment.transport.wire import (
    ASK,
    BEAT,
    BYE,
    HELLO,
    LIMIT,
    MESSAGE,
    REPLY,
    PeerUnreachableError,
    Welcome,
    note_of,
    pack,
)

log = logging.getLogger("catchment.transport")

GRACE = 1.0
"""Seconds that a link being closed waits for the other side to have read everything."""


class ParentLink:
    """One connection to a node's parent.

    It does not reconnect: when it is `closed`, `error` says why, and whoever uses it opens another.
    Notes are bytes: whoever uses the link makes and reads them. `heard` is called from one thread,
    with each answer and push in the order in which they came; a push may come before `open`
    returns.
    """

    def __init__(
        self,
        address: str,
        node: str,
        hello: Callable[[], bytes],
        heard: Callable[[bytes], None],
        security: Security | None = None,
        limit: int = LIMIT,
        timeout: float = 10.0,
    ) -> None:
        self.address = address
        self.node = node
        self.limit = limit
        self._hello = hello
        self._heard = heard
        self._security = security or Security()
        self._timeout = timeout
        self._error: CatchmentError | None = None
        self._greeting = b""
        self._answer: bytes | None = None
        self._settled = threading.Event()
        self._closed = threading.Event()
        self._closing = False
        self._hung_up = False
        self._writing = threading.Lock()
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._run, name=f"link {node}", daemon=True)

    def open(self) -> bytes:
        """Connects and says hello; returns what the other side answered."""
        split_address(self.address)
        self._security.check()
        self._greeting = pack(HELLO, self._hello())
        self._thread.start()
        if not self._settled.wait(self._timeout):
            self._fail(
                PeerUnreachableError(
                    f"no answer came in {self._timeout:g} s",
                    given=self.address,
                    hint="is that a node, and is it running?",
                )
            )
            self._cancel()
        if self._answer is None or self._error is not None:
            raise self._error or PeerUnreachableError("the link was closed", given=self.address)
        return self._answer

    def send(self, body: bytes) -> None:
        """Sends a message; it may not have arrived before it is acknowledged."""
        if len(body) > self.limit:
            raise RefusedError(
                f"a message is larger than the {self.limit} bytes that may be sent",
                given=f"{len(body)} bytes",
                hint="send it in parts, or raise the limit",
            )
        self._write(MESSAGE + body)

    def beat(self, note: bytes) -> None:
        """Sends a heartbeat."""
        self._write(pack(BEAT, note))

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    @property
    def error(self) -> CatchmentError | None:
        """Why the link is closed; None while it is open, and when it was closed from here."""
        return self._error

    def close(self) -> None:
        """Ends the link, once what was sent has been answered or the other side does not go on."""
        self._closing = True
        if self._thread is threading.current_thread():
            # What is called with an answer cannot wait for the thread that called it.
            self._hung_up = True
        if self._hung_up or not self._thread.is_alive():
            return
        if self._writing.acquire(timeout=GRACE):
            try:
                if self._connection is not None and self._answer is not None and not self.closed:
                    with contextlib.suppress(PeerUnreachableError):
                        self._connection.write(BYE)
            finally:
                self._writing.release()
            self._thread.join(GRACE)
        self._cancel()
        self._thread.join(GRACE)
        self._hung_up = True  # an answer that was read but not heard yet must not come later

    def __enter__(self) -> ParentLink:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, packed: bytes) -> None:
        with self._writing:
            connection = self._connection
            if connection is None or self._answer is None or self.closed or self._closing:
                raise self._error or PeerUnreachableError(
                    "the link is not open", given=self.address
                )
            try:
                connection.write(packed)
                return
            except PeerUnreachableError as error:
                failure = error
        # A frame may have been sent in part, so nothing can follow it. The other side may have said
        # why, and the reader is about to come to it.
        if not self._closed.wait(GRACE):
            self._fail(failure)
            self._cancel()
        raise self._error or failure

    def _run(self) -> None:
        try:
            self._connection = Connection(self.address, self._security, self._timeout)
            self._converse(self._connection)
        except CatchmentError as error:
            self._fail(error)
        except Exception as error:
            log.exception("the link to %s failed", self.address)
            self._fail(PeerUnreachableError("the link failed", given=type(error).__name__))
        finally:
            self._cancel()
            self._closed.set()
            self._settled.set()
            if self._connection is not None:
                with self._writing:
                    self._connection.close()

    def _converse(self, connection: Connection) -> None:
        if self._error is not None or self._closing:
            # Whoever opened it has given up, and must not find it registered later.
            return
        connection.introduce(self.node, self._security, self._greeting)
        found = self._read(connection)
        if found is None or found[0] != REPLY:
            raise strange(self.address)
        welcome = records.decode(Welcome, found[1], "the answer to a hello", records.refused)
        self.limit = min(self.limit, welcome.limit)
        connection.lasts()
        self._answer = bytes(welcome.answer)
        self._settled.set()
        while not self._hung_up and self._error is None:
            found = self._read(connection)
            if found is None or self._hung_up:
                return
            self._tell(note_of(found[1]))

    def _read(self, connection: Connection) -> tuple[bytes, bytes] | None:
        """The next frame; nothing at the end of a link that was closed from here."""
        found = connection.read()
        if found is None and not self._closing:
            raise connection.explained(
                ConnectionResetError(errno.ECONNRESET, "the stream has ended")
            )
        return found

    def _tell(self, note: bytes) -> None:
        try:
            self._heard(note)
        except Exception as error:
            log.exception("an answer of %s could not be handled", self.address)
            raise PeerUnreachableError(
                "the link was closed because an answer could not be handled",
                given=type(error).__name__,
                hint="the log says where",
            ) from error

    def _fail(self, error: CatchmentError) -> None:
        if self._error is None and not self._closing:
            self._error = error

    def _cancel(self) -> None:
        if self._connection is not None:
            self._connection.shut()


def ask(
    address: str, question: bytes, security: Security | None = None, timeout: float = 10.0
) -> bytes:
    """The answer of a node to a question of a command; both are notes."""
    security = security or Security()
    security.check()
    connection = Connection(address, security, timeout)
    try:
        failure = None
        try:
            connection.introduce(ADMIN, security, pack(ASK, question))
        except PeerUnreachableError as error:
            failure = error  # the other side may have said why before it hung up
        found = connection.read()
        if found is None:
            raise failure or connection.explained(
                ConnectionResetError(errno.ECONNRESET, "the stream has ended")
            )
    finally:
        connection.close()
    if found[0] != REPLY:
        raise strange(address)
    return note_of(found[1])
