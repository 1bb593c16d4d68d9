"""The end of a link that connects: messages and heartbeats up, acknowledgements and pushes down."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from catchment.errors import CatchmentError, RefusedError
from catchment.transport.security import Security
from catchment.transport.trouble import ERRORS, unreachable
from catchment.transport.wire import (
    ASK,
    BEAT,
    BYE,
    HELLO,
    LIMIT,
    MESSAGE,
    PUSH,
    REFUSED,
    REPLY,
    UnreachableError,
    pack,
    split_address,
    unpack,
    unpack_error,
    versions,
)

log = logging.getLogger("catchment.transport")

GRACE = 1.0
"""Seconds that a link being closed waits for the other side to have read everything."""


class Link:
    """One stream to a node's parent.

    It does not reconnect: when it is `closed`, `error` says why, and whoever uses it opens another.
    `heard` is called from one thread, with each answer and push in the order in which they came;
    a push may come before `open` returns.
    """

    def __init__(
        self,
        address: str,
        node: str,
        hello: Callable[[], dict[str, Any]],
        heard: Callable[[dict[str, Any]], None],
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
        self._answer: dict[str, Any] | None = None
        self._settled = threading.Event()
        self._closed = threading.Event()
        self._closing = False
        self._hung_up = False
        self._writing = threading.Lock()
        self._writer: flight.FlightStreamWriter | None = None
        self._unclosed: flight.FlightStreamWriter | None = None
        self._reader: flight.FlightStreamReader | None = None
        self._thread = threading.Thread(target=self._run, name=f"link {node}", daemon=True)

    def open(self) -> dict[str, Any]:
        """Connects and says hello; returns what the other side answered."""
        split_address(self.address)
        self._security.check()
        self._greeting = pack(HELLO, {**versions(), **self._hello(), "node": self.node})
        self._thread.start()
        if not self._settled.wait(self._timeout):
            self._fail(
                UnreachableError(
                    f"no answer came in {self._timeout:g} s",
                    given=self.address,
                    hint="is that a node, and is it running?",
                )
            )
            self._cancel()
        if self._answer is None or self._error is not None:
            raise self._error or UnreachableError("the link was closed", given=self.address)
        return self._answer

    def send(self, body: bytes) -> None:
        """Sends a message; it may not have arrived before it is acknowledged."""
        if len(body) > self.limit:
            raise RefusedError(
                f"a message is larger than the {self.limit} bytes that may be sent",
                given=f"{len(body)} bytes", hint="send it in parts, or raise the limit",
            )  # fmt: skip
        self._write(MESSAGE + body)

    def beat(self, note: dict[str, Any]) -> None:
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
                if self._writer is not None and not self.closed:
                    with contextlib.suppress(*ERRORS):
                        self._writer.done_writing()
            finally:
                self._writing.release()
            self._thread.join(GRACE)
        self._cancel()
        self._thread.join(GRACE)

    def __enter__(self) -> Link:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, frame: bytes) -> None:
        with self._writing:
            if self._writer is None or self.closed or self._closing:
                raise self._error or UnreachableError("the link is not open", given=self.address)
            try:
                self._writer.write_metadata(pa.py_buffer(frame))
                return
            except ERRORS as error:
                failure = unreachable(self.address, error, self._security.tls, fresh=False)
        # The other side may have said why, and the reader is about to come to it.
        self._closed.wait(GRACE)
        raise self._error or failure

    def _run(self) -> None:
        client: flight.FlightClient | None = None
        try:
            client = connect(self.address, self._security)
            self._converse(client)
        except CatchmentError as error:
            self._fail(error)
        except ERRORS as error:
            fresh = self._answer is None
            self._fail(unreachable(self.address, error, self._security.tls, fresh))
        except Exception as error:
            log.exception("the link to %s failed", self.address)
            self._fail(UnreachableError("the link failed", given=type(error).__name__))
        finally:
            self._cancel()
            self._closed.set()
            self._settled.set()
            with self._writing, contextlib.suppress(*ERRORS):
                self._writer = None
                if self._unclosed is not None:
                    # Otherwise the library complains on standard error.
                    self._unclosed.close()
            if client is not None:
                client.close()

    def _converse(self, client: flight.FlightClient) -> None:
        options = self._security.call_options()
        writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b""), options)
        self._reader, self._unclosed = reader, writer
        if self._error is not None:
            # Whoever opened it has given up, and must not find it registered later.
            return
        writer.write_metadata(pa.py_buffer(self._greeting))
        kind, body = self._read(reader)
        if kind != REPLY:
            raise _strange(self.address)
        answer = unpack(body)
        theirs = answer.pop("limit", None)
        if isinstance(theirs, int):
            self.limit = min(self.limit, theirs)
        with self._writing:
            self._writer = writer
        self._answer = answer
        self._settled.set()
        while not self._hung_up and self._error is None:
            kind, body = self._read(reader)
            if not kind:
                return
            if kind not in (REPLY, PUSH):
                raise _strange(self.address)
            self._tell(unpack(body))

    def _read(self, reader: flight.FlightStreamReader) -> tuple[bytes, bytes]:
        """The next frame; nothing at the end of a link that was closed from here."""
        try:
            metadata = reader.read_chunk().app_metadata
        except StopIteration:
            if self._closing:
                return b"", b""
            raise UnreachableError("the other side closed the link", given=self.address) from None
        if metadata is None:
            raise _strange(self.address)
        frame = metadata.to_pybytes()
        if frame[:1] in (REFUSED, BYE):
            raise unpack_error(frame[:1], frame[1:])
        return frame[:1], frame[1:]

    def _tell(self, note: dict[str, Any]) -> None:
        try:
            self._heard(note)
        except Exception as error:
            log.exception("an answer of %s could not be handled", self.address)
            raise UnreachableError(
                "the link was closed because an answer could not be handled",
                given=type(error).__name__, hint="the log says where",
            ) from error  # fmt: skip

    def _fail(self, error: CatchmentError) -> None:
        if self._error is None and not self._closing:
            self._error = error

    def _cancel(self) -> None:
        if self._reader is not None:
            with contextlib.suppress(*ERRORS):
                self._reader.cancel()


def ask(
    address: str,
    what: str,
    body: dict[str, Any],
    security: Security | None = None,
    timeout: float = 10.0,
) -> dict[str, Any]:
    """One question of a command to a node."""
    security = security or Security()
    security.check()
    note = json.dumps({**versions(), "what": what, "body": body}).encode()
    question = flight.Action(ASK, pa.py_buffer(note))
    options = security.call_options(timeout)
    client = connect(address, security)
    try:
        answers = [one.body.to_pybytes() for one in client.do_action(question, options)]
    except ERRORS as error:
        raise unreachable(address, error, security.tls) from None
    finally:
        client.close()
    if len(answers) != 1 or answers[0][:1] not in (REPLY, REFUSED, BYE):
        raise _strange(address)
    kind, rest = answers[0][:1], answers[0][1:]
    if kind != REPLY:
        raise unpack_error(kind, rest)
    return unpack(rest)


def connect(address: str, security: Security) -> flight.FlightClient:
    """A client; nothing travels before it is used."""
    host, port = split_address(address)
    options: Any = [
        # Links to one address would share a connection, and the pauses after failed attempts.
        ("grpc.use_local_subchannel_pool", 1),
        # Nodes are not behind the proxy that the environment may name for the web.
        ("grpc.enable_http_proxy", 0),
        # Little comes down a link, so the line need not be measured: that costs more than a
        # heartbeat. Neither need its window be refilled as often as the connection's.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 32 << 10),
    ]
    scheme = "grpc+tls" if security.tls else "grpc"
    return flight.FlightClient(
        f"{scheme}://{host}:{port}", generic_options=options, **security.client_options()
    )


def _strange(address: str) -> UnreachableError:
    return UnreachableError(
        "what listens there does not speak this protocol", given=address, hint="check the address"
    )
