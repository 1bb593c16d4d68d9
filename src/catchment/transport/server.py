"""The end of links that listens: nodes register, send messages in order, and are told things."""

from __future__ import annotations

import atexit
import errno
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow.flight as flight

from catchment.errors import CatchmentError, RefusedError
from catchment.transport.hangup import hang_up
from catchment.transport.security import ADMIN, Security
from catchment.transport.stream import Stream, bytes_of
from catchment.transport.tokens import shown
from catchment.transport.trouble import ERRORS
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
    AddressError,
    UnreachableError,
    agree,
    pack,
    pack_error,
    split_address,
    unpack,
)

log = logging.getLogger("catchment.transport")

GRACE = 2.0
"""Seconds that stopping waits for peers to let go of their links."""


class Handler(Protocol):
    """What a server does with what it receives.

    Calls for one node never overlap; those for several nodes, and questions, may.
    """

    def hello(self, hello: dict[str, Any]) -> dict[str, Any]:
        """A peer registers, its id under "node"; raise RefusedError to turn it away."""

    def message(self, node: str, body: bytes) -> dict[str, Any]:
        """One message, in the order in which it was sent; returns the acknowledgement."""

    def beat(self, node: str, note: dict[str, Any]) -> dict[str, Any]:
        """A heartbeat; returns the answer to it."""

    def ask(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        """A command's question."""


@dataclass
class _Seat:
    """A node's place: the one link that speaks for it, and a lock held while it is served."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    stream: Stream | None = None


class Server:
    """Listens for links and questions, and hands what comes to a handler.

    Peers are served apart: one that is refused, sends garbage or meets a failing handler loses its
    own link only. A message is held in memory before its length is known here, so `limit` bounds
    what a handler gets; peers that follow the protocol never send more.
    """

    def __init__(
        self, listen: str, handler: Handler, security: Security | None = None, limit: int = LIMIT
    ) -> None:
        self.listen = listen
        self.handler = handler
        self.security = security or Security()
        self.limit = limit
        self.port = 0
        self._lock = threading.Lock()
        self._seats: dict[str, _Seat] = {}
        self._streams: set[Stream] = set()
        self._flight: _Flight | None = None
        self._stopping = False

    def start(self) -> None:
        host, port = split_address(self.listen)
        self.security.check(serving=True)
        secure = self.security.certificate is not None
        if self.security.tokens and not secure:
            log.warning("tokens travel in the clear at %s: there is no certificate", self.listen)
        scheme = "grpc+tls" if secure else "grpc"
        self._stopping = False
        try:
            _try_port(host, port)
            self._flight = _Flight(self, f"{scheme}://{host}:{port}")
        except ERRORS as error:
            used = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            raise AddressError(
                "the port is in use" if used else "the address cannot be listened at",
                given=self.listen,
                hint="stop what uses it or choose another port" if used else "check host and port",
            ) from error
        self.port = self._flight.port
        # A process that ends without stopping would wait for its peers for ever.
        atexit.register(self.stop)

    def stop(self) -> None:
        """Ends every link and frees the port."""
        with self._lock:
            served, self._flight = self._flight, None
            self._stopping = True
            streams = list(self._streams)
        if served is None:
            return
        atexit.unregister(self.stop)
        for stream in streams:
            stream.end_with(pack_error(BYE, _stopped(self.listen)))
        ending = threading.Thread(target=served.shutdown, name="transport stop", daemon=True)
        ending.start()
        ending.join(GRACE)
        if ending.is_alive():
            with self._lock:
                peers = [stream.peer for stream in self._streams]
            log.warning("peers did not let go of their links: %s", ", ".join(peers))
            hang_up(self.port, peers)
            ending.join(GRACE)

    def push(self, node: str, note: dict[str, Any]) -> bool:
        """Sends a note down a node's link; False if it has none, or does not read."""
        with self._lock:
            seat = self._seats.get(node)
            stream = None if seat is None else seat.stream
        return stream is not None and stream.offer(pack(PUSH, note))

    def links(self) -> set[str]:
        """The nodes that are connected."""
        with self._lock:
            return {node for node, seat in self._seats.items() if seat.stream is not None}

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _exchange(self, context: flight.ServerCallContext, reader: Any, writer: Any) -> None:
        """Serves one link from its hello to its end."""
        stream = Stream(context.peer(), reader, writer, self.limit)
        try:
            with self._lock:
                if self._stopping:
                    raise _stopped(self.listen)
                self._streams.add(stream)
            self._serve(stream, shown(context))
        except RefusedError as refusal:
            log.info("refused %s (%s): %s", stream.node or "a peer", stream.peer, refusal)
            stream.say(pack_error(REFUSED, refusal))
        except UnreachableError as reason:
            stream.say(pack_error(BYE, reason))
        finally:
            self._leave(stream)
            stream.close()

    def _serve(self, stream: Stream, token: str | None) -> None:
        frame = stream.read()
        if frame is None:
            return
        if frame[0] != HELLO:
            raise RefusedError("a link begins with a hello", given=frame[0])
        seat = self._join(stream, unpack(frame[1]), token)
        while (frame := stream.read()) is not None:
            kind, body = frame
            with seat.lock:
                if seat.stream is not stream:
                    return
                if kind == MESSAGE:
                    reply = _call(stream.node, REPLY, self.handler.message, stream.node, body)
                elif kind == BEAT:
                    note = unpack(body)
                    reply = _call(stream.node, REPLY, self.handler.beat, stream.node, note)
                else:
                    raise RefusedError("a node sends messages and heartbeats only", given=kind)
            stream.say(reply)

    def _join(self, stream: Stream, hello: dict[str, Any], token: str | None) -> _Seat:
        """Takes a node in; a link that it had before ends, whatever that was doing."""
        protocol = agree(hello)
        node = hello.get("node")
        if not isinstance(node, str) or not node or node == ADMIN:
            raise RefusedError("a hello must name a node", given=repr(node))
        self.security.admit(node, token, stream.peer)
        with self._lock:
            seat = self._seats.setdefault(node, _Seat())
        # Under the lock: nothing of the old link is handled after the new one's hello.
        with seat.lock:
            extra = {"protocol": protocol, "limit": self.limit}
            answer = _call(node, REPLY, lambda: {**self.handler.hello(hello), **extra})
            with self._lock:
                old, seat.stream = seat.stream, stream
                stream.node = node
        if old is not None:
            log.info("%s opened a new link from %s; that from %s ends", node, stream.peer, old.peer)
            old.end_with(pack_error(REFUSED, _replaced(node, stream.peer)))
        stream.say(answer)
        return seat

    def _leave(self, stream: Stream) -> None:
        with self._lock:
            self._streams.discard(stream)
            seat = self._seats.get(stream.node)
            if seat is not None and seat.stream is stream:
                seat.stream = None

    def _answer(self, context: flight.ServerCallContext, action: flight.Action) -> bytes:
        """Answers one question, with the refusal if it is refused."""
        try:
            if action.type != ASK:
                raise RefusedError("there is no such question", given=action.type)
            note = unpack(bytes_of(action.body, self.limit))
            agree(note)
            self.security.admit(ADMIN, shown(context), context.peer())
            what, body = note.get("what"), note.get("body")
            if not isinstance(what, str) or not isinstance(body, dict):
                raise RefusedError("a question has a name and a body", given=repr(what))
            return _call(what, REPLY, self.handler.ask, what, body)
        except RefusedError as refusal:
            return pack_error(REFUSED, refusal)
        except UnreachableError as reason:
            return pack_error(BYE, reason)


def _call(who: str, kind: bytes, call: Callable[..., dict[str, Any]], *given: object) -> bytes:
    """What the handler answers, ready to be sent; a failure is logged and ends one link."""
    try:
        return pack(kind, call(*given))
    except RefusedError:
        raise
    except Exception as error:
        log.exception("what came from %s could not be handled", who)
        raise UnreachableError(
            "the other side failed", given=type(error).__name__, hint="its log says where"
        ) from error


class _Flight(flight.FlightServerBase):
    """What Flight calls; everything is done by the server it belongs to."""

    def __init__(self, server: Server, location: str) -> None:
        self._server = server
        super().__init__(location, **server.security.server_options())

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        self._server._exchange(context, reader, writer)

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        return iter([self._server._answer(context, action)])


def _try_port(host: str, port: int) -> None:
    """Finds out why a port cannot be had: Flight would not say."""
    kind, _, _, _, where = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
    with socket.socket(kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(where)


def _stopped(listen: str) -> CatchmentError:
    return UnreachableError("the other side was stopped", given=listen)


def _replaced(node: str, peer: str) -> RefusedError:
    return RefusedError(
        "a newer link of the same node took this one's place", given=f"{node} from {peer}",
        hint="two processes may go by one id",
    )  # fmt: skip
