"""The end of links that listens: nodes register, send messages in order, and are told things.

One thread runs an event loop that holds all connections; a few others call the handler. What a peer
may cost before and after it is known is said by `Limits`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec import Raw

from catchment.errors import RefusedError
from catchment.model import records
from catchment.model.capacity import Capacity
from catchment.serving.addresses import AddressError, Endpoint, resolved, split_address
from catchment.transport.limits import ByteBudget, Limits
from catchment.transport.peer import Peer
from catchment.transport.pending import Pending
from catchment.transport.security import ADMIN, Security, check_endpoints
from catchment.transport.wire import (
    ASK,
    BEAT,
    BYE,
    MESSAGE,
    PUSH,
    REFUSED,
    REPLY,
    PeerUnreachableError,
    Welcome,
    Who,
    agree,
    note_of,
    pack,
    pack_error,
    prepare,
)

log = logging.getLogger("catchment.transport")

GRACE = 2.0
"""Seconds that stopping waits for peers to let go of their links."""
BACKLOG = 128
"""Connections that the system holds until they are accepted."""
LONGEST_NAME = 255
"""Characters of a node's id."""


class Handler(Protocol):
    """What a server does with what it receives.

    Notes are bytes: the handler reads them, and raises RefusedError if it does not understand one.
    Calls for one node never overlap; those for several nodes, and questions, may.
    """

    def hello(self, node: str, note: bytes) -> bytes:
        """A peer registers as a node; raise RefusedError to turn it away."""

    def message(self, node: str, body: bytes) -> bytes:
        """One message, in the order in which it was sent; returns the acknowledgement."""

    def beat(self, node: str, note: bytes) -> bytes:
        """A heartbeat; returns the answer to it."""

    def ask(self, question: bytes) -> bytes:
        """A command's question."""


@dataclass
class _NodeSlot:
    """A node's place: the one link that speaks for it, and a lock held while it is served."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    peer: Peer | None = None
    users: int = 0
    """Connections that have the place or wait for it; without any, it is forgotten."""


class Server:
    """Listens for links and questions, and hands what comes to a handler.

    Peers are served apart: one that is refused, sends garbage or meets a failing handler loses its
    own link only.
    """

    def __init__(
        self,
        listen: str,
        handler: Handler,
        security: Security | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.listen = listen
        self.handler = handler
        self.security = security or Security()
        self.limits = limits or Limits()
        self.port = 0
        self._lock = threading.Lock()
        self._slots: dict[str, _NodeSlot] = {}
        self._running: _Running | None = None

    def start(self) -> None:
        """Listens from here on; warns where anybody may connect."""
        split_address(self.listen)
        self.security.check(serving=True)
        secure = self.security.certificate is not None
        endpoints = self._endpoints()
        if self.security.exposed:
            log.warning(
                "security is none: whoever reaches %s may read, change and stop this job",
                self.listen,
            )
        elif self.security.tokens and not secure:
            log.warning("tokens travel in the clear at %s: there is no certificate", self.listen)
        sockets = self._sockets(endpoints)
        self.port = sockets[0].getsockname()[1]
        self._running = _Running(self, sockets)
        self._running.thread.start()
        # A process that ends without stopping would leave its peers waiting.
        atexit.register(self.stop)

    def _endpoints(self) -> list[Endpoint]:
        try:
            endpoints = resolved(self.listen)
        except (OSError, UnicodeError) as error:
            raise self._unusable(error) from error
        check_endpoints(self.listen, endpoints, self.security)
        return endpoints

    def _sockets(self, endpoints: list[Endpoint]) -> list[socket.socket]:
        """One socket for each address of the name; all have the same port."""
        made: list[socket.socket] = []
        try:
            for family, where in endpoints:
                port = made[0].getsockname()[1] if made else where[1]
                try:
                    several = len(endpoints) > 1
                    made.append(_listening(family, (where[0], port, *where[2:]), several))
                except OSError as error:
                    # A name may stand for an address of a kind that this machine does not have.
                    last = not made and (family, where) == endpoints[-1]
                    if last or error.errno == errno.EADDRINUSE:
                        raise
        except OSError as error:
            for one in made:
                one.close()
            raise self._unusable(error) from error
        return made

    def _unusable(self, error: Exception) -> AddressError:
        used = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        return AddressError(
            "the port is in use" if used else "the address cannot be listened at",
            given=self.listen,
            hint="stop what uses it or choose another port" if used else "check host and port",
        )

    def stop(self) -> None:
        """Ends every link and frees the port."""
        with self._lock:
            running, self._running = self._running, None
        if running is None:
            return
        atexit.unregister(self.stop)
        running.stop()

    def push(self, node: str, note: bytes) -> bool:
        """Sends a note down a node's link; False if it has none, or does not read."""
        with self._lock:
            running, slot = self._running, self._slots.get(node)
            peer = None if slot is None else slot.peer
        if running is None or peer is None:
            return False
        return peer.push(pack(PUSH, note), running.soon)

    def links(self) -> set[str]:
        """The nodes that are connected."""
        with self._lock:
            return {node for node, slot in self._slots.items() if slot.peer is not None}

    def capacities(self) -> list[Capacity]:
        """What others cost here now, and may cost."""
        running, limits = self._running, self.limits
        strangers, pending, receiving = (0, 0, 0) if running is None else running.used
        then = "the oldest one of the address that has the most is cut off"
        waits = "senders are held back until there is room"
        return [
            Capacity("strangers connected", strangers, limits.strangers, "entries", then),
            Capacity("peers being admitted", pending, limits.pending, "entries", then),
            Capacity("messages being received", receiving, limits.receiving, "bytes", waits),
        ]

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- places of nodes, on the event loop -------------------------------------------------------

    def _slot(self, node: str) -> _NodeSlot:
        with self._lock:
            slot = self._slots.setdefault(node, _NodeSlot())
            slot.users += 1
        return slot

    def _bind(self, slot: _NodeSlot, peer: Peer, node: str) -> Peer | None:
        """Gives a node's place to a link; returns the link that had it."""
        with self._lock:
            old, slot.peer = slot.peer, peer
            peer.node = node
        return old

    def _unbind(self, slot: _NodeSlot, peer: Peer, node: str) -> None:
        with self._lock:
            if slot.peer is peer:
                slot.peer = None
            slot.users -= 1
            if not slot.users:
                del self._slots[node]


class _Running:
    """A server between start and stop: its sockets, its event loop and its peers."""

    def __init__(self, server: Server, sockets: list[socket.socket]) -> None:
        self.server = server
        self.limits = server.limits
        self.context = server.security.server_context()
        self.thread = threading.Thread(target=self._run, name="transport", daemon=True)
        self._sockets = sockets
        self._loop = asyncio.new_event_loop()
        self._workers = ThreadPoolExecutor(self.limits.workers, "transport")
        self._idle = asyncio.Semaphore(self.limits.workers)
        """One for each worker. Calls wait here and not in the queue of the workers, from which what
        nobody waits for any more could not be taken back."""
        self._receiving = ByteBudget(self.limits.receiving)
        self._strangers = Pending(self.limits.strangers)
        self._pending = Pending(self.limits.pending)
        self._tasks: dict[asyncio.Task[None], Peer] = {}
        self._refusals, self._failures = _LogRate(), _LogRate()
        self._stopping = False

    @property
    def used(self) -> tuple[int, int, int]:
        """How many strangers and pending peers there are, and bytes that are being received."""
        return len(self._strangers), len(self._pending), self._receiving.taken

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        accepting = [self._loop.create_task(self._accept(one)) for one in self._sockets]
        try:
            self._loop.run_forever()
        finally:
            left = {*accepting, *asyncio.all_tasks(self._loop)}
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            for one in self._sockets:
                one.close()
            self._loop.close()

    def soon(self, call: Callable[[bytes], None], packed: bytes) -> None:
        """Calls something on the event loop, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call, packed)

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._end()))
        self.thread.join(2 * GRACE)
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def _end(self) -> None:
        """Says goodbye, waits for a moment, and lets go of everybody."""
        self._stopping = True
        for one in self._sockets:
            self._loop.remove_reader(one)
            one.close()
        for peer in self._tasks.values():
            peer.end_with(pack_error(BYE, _stopped(self.server.listen)))
        if self._tasks:
            await asyncio.wait([*self._tasks], timeout=GRACE)
        if self._tasks:
            names = ", ".join(sorted({peer.name for peer in self._tasks.values()}))
            log.warning("peers did not let go of their links: %s", names)
        for peer in self._tasks.values():
            peer.abort()
        await asyncio.sleep(0)
        self._loop.stop()

    # -- connections ------------------------------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        while not self._stopping:
            try:
                near, where = await self._loop.sock_accept(listener)
            except OSError as error:
                if self._stopping:
                    return
                # Out of descriptors or memory: those who wait longest give theirs back.
                log.warning("a connection could not be accepted: %s", error.strerror or error)
                self._strangers.shrink()
                await asyncio.sleep(0.1)
                continue
            await self._welcome(near, f"{where[0]}:{where[1]}")

    async def _welcome(self, near: socket.socket, name: str) -> None:
        near.setblocking(False)
        peer = Peer(name, self.limits, self._receiving, self.context)
        self._strangers.enter(peer)
        try:
            prepare(near)
            await self._loop.connect_accepted_socket(lambda: peer, near)
        except OSError:
            self._strangers.leave(peer)
            near.close()
            return
        task = self._loop.create_task(self._serve(peer))
        self._tasks[task] = peer
        task.add_done_callback(lambda done: self._tasks.pop(done, None) and None)

    async def _serve(self, peer: Peer) -> None:
        """Serves one connection from its first byte to its end."""
        last: bytes | None = None
        try:
            await self._converse(peer)
            if self._stopping:
                raise _stopped(self.server.listen)
        except RefusedError as refusal:
            # What a stranger does must not fill the log; a node is refused while it starts, too.
            level = logging.INFO if peer.admitted else logging.WARNING
            if peer.admitted or self._refusals.allows():
                who = peer.node or "a peer"
                log.log(level, "refused %s (%s): %s", who, peer.name, str(refusal))
            last = pack_error(REFUSED, refusal)
        except PeerUnreachableError as reason:
            last = pack_error(BYE, reason)
        except OSError as error:
            log.debug("the connection from %s failed: %s", peer.name, error)
        except Exception:
            if self._failures.allows():
                log.exception("what came from %s could not be handled", peer.name)
        finally:
            with contextlib.suppress(OSError):
                await peer.refuse(None if self._stopping else last)
            self._strangers.leave(peer)
            self._pending.leave(peer)

    async def _converse(self, peer: Peer) -> None:
        frame = await peer.read()
        if frame is None:
            return
        name = self._admit(peer, frame[1])
        self._strangers.leave(peer)
        self._pending.enter(peer)
        frame = await peer.read()
        if frame is None:
            return
        if frame[0] == ASK:
            await self._answer(peer, name, frame[1])
        else:
            await self._link(peer, name, frame[1])

    def _admit(self, peer: Peer, body: bytes) -> str:
        """The name that a peer gives, if the peer may have that name."""
        who = records.decode(Who, note_of(body), "who a peer is", records.refused)
        peer.protocol, name = agree(who), who.name
        if name is None or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise RefusedError("a hello must name a node", given=repr(name)[:80])
        self.server.security.admit(name, who.token)
        peer.admit()
        return name

    # -- questions --------------------------------------------------------------------------------

    async def _answer(self, peer: Peer, name: str, body: bytes) -> None:
        if name != ADMIN:
            raise RefusedError("a node asks no questions", given=name)
        async with _turn(peer, self._idle):
            answer = await self._call("a command", self.server.handler.ask, note_of(body))
        await peer.send(answer)

    # -- links ------------------------------------------------------------------------------------

    async def _link(self, peer: Peer, node: str, body: bytes) -> None:
        """Takes a node in and serves it; a link that it had before ends, whatever that does."""
        if node == ADMIN:
            raise RefusedError("a hello must name a node", given=repr(node))
        slot = self.server._slot(node)
        try:
            # Under the lock: nothing of the old link is handled after the new one's hello.
            async with _turn(peer, slot.lock), _turn(peer, self._idle):
                answer = await self._call(node, self._hello, peer, node, body)
                if peer.ended:
                    return
                old = self.server._bind(slot, peer, node)
            self._pending.leave(peer)
            if old is not None:
                log.info("%s opened a new link from %s; %s ends", node, peer.name, old.name)
                old.end_with(pack_error(REFUSED, _replaced(node, peer.name)))
            await peer.send(answer)
            while (frame := await peer.read()) is not None:
                async with slot.lock:
                    if slot.peer is not peer:
                        return
                    reply = await self._handle(node, *frame)
                if reply is None:
                    return
                del frame
                peer.release()
                await peer.send(reply)
        finally:
            self.server._unbind(slot, peer, node)

    def _hello(self, peer: Peer, node: str, body: bytes) -> bytes:
        answer = Raw(self.server.handler.hello(node, note_of(body)))
        return records.encode(Welcome(peer.protocol, self.limits.message, answer))

    async def _handle(self, node: str, kind: bytes, body: bytes) -> bytes | None:
        """The answer to a frame of a node; None when it says goodbye."""
        handler = self.server.handler
        if kind not in (MESSAGE, BEAT):
            return None
        async with self._idle:
            if kind == MESSAGE:
                return await self._call(node, handler.message, node, body)
            return await self._call(node, handler.beat, node, note_of(body))

    async def _call(self, who: str, call: Callable[..., bytes], *given: object) -> bytes:
        """What the handler answers, ready to be sent; a failure is logged and ends one link."""
        try:
            return await self._loop.run_in_executor(
                self._workers, lambda: pack(REPLY, call(*given))
            )
        except RefusedError:
            raise
        except Exception as error:
            if self._stopping:
                raise _stopped(self.server.listen) from error
            if self._failures.allows():
                log.exception("what came from %s could not be handled", who)
            raise PeerUnreachableError(
                "the other side failed", given=type(error).__name__, hint="its log says where"
            ) from error


@contextlib.asynccontextmanager
async def _turn(peer: Peer, lock: asyncio.Lock | asyncio.Semaphore) -> AsyncIterator[None]:
    """Holds a lock for a peer that is no link yet; it waits for that no longer than it is there."""
    with peer.waiting_for():
        await lock.acquire()
    try:
        yield
    finally:
        lock.release()


class _LogRate:
    """Keeps a log short: so many lines at once, and then one in a while."""

    def __init__(self, lines: float = 20.0, every: float = 10.0) -> None:
        self._most = self._left = lines
        self._every = every
        self._at = time.monotonic()

    def allows(self) -> bool:
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) / self._every)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _listening(
    family: socket.AddressFamily, where: tuple[Any, ...], several: bool
) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and several:
            # The same port is asked for at an address of IPv4 besides.
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)
        made.bind(where)
        made.listen(BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _stopped(listen: str) -> PeerUnreachableError:
    return PeerUnreachableError("the other side was stopped", given=listen)


def _replaced(node: str, peer: str) -> RefusedError:
    return RefusedError(
        "a newer link of the same node took this one's place",
        given=f"{node} from {peer}",
        hint="two processes may go by one id",
    )
