"""The HTTP server of sources that receive: a thread with limits, which answers what is safe.

    sender --POST--> headers, token --> body --> look through --> spool, sync --> answer
                     10 s, 48 of them   30 s     one at a time    many at once

Whoever has not shown a token is a stranger (`serving/strangers.py`). The body of a request is read
only when its length, the spool and the memory for bodies allow it. Requests that come together are
made safe by one sync.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from catchment.errors import SourceError
from catchment.serving.addresses import resolved
from catchment.serving.strangers import SECONDS, STRANGERS, Strangers, protocol
from catchment.serving.tls_contexts import server_context
from catchment.sources.receiver import (
    Inspected,
    Intake,
    KeptRequest,
    ReceiverAnswer,
    ReceiverSettings,
    RefusedRequest,
)
from catchment.sources.spool import Spool

BODY_SECONDS = 30.0
"""How long the body of a request may take."""
IDLE_SECONDS = 65
"""How long a connection may be silent between two requests."""
BODIES = 64 << 20
"""Bytes of bodies that are received or looked through at a time, of all senders together."""
_RETRY_FULL, _RETRY_BUSY = 5, 1
_BACKLOG = 128
_FAREWELL = 2.0

_log = logging.getLogger("catchment.receiver")


class ReceiverServer(threading.Thread):
    """Receives requests until it is asked to stop. An error that ends it is in `failed`."""

    def __init__(self, settings: ReceiverSettings, intake: Intake, spool: Spool) -> None:
        super().__init__(name="catchment-receiver", daemon=True)
        self._settings, self._intake, self._spool = settings, intake, spool
        self._sockets = _bound(settings.listen)
        self.port = int(self._sockets[0].getsockname()[1])
        self.strangers = Strangers()
        self.failed: SourceError | None = None
        self._counts: Counter[str] = Counter()
        self._guard = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._stop_asked = asyncio.Event()
        self._arrived = asyncio.Event()
        self._waiting: list[tuple[KeptRequest, bytes, asyncio.Future[None]]] = []
        self._greeting: dict[asyncio.Task[None], socket.socket] = {}
        self._bodies = 0
        # One thread looks bodies through and writes: so the memory for one decoded body is enough.
        self._worker = ThreadPoolExecutor(1, "catchment-receiver-spool")

    def counts(self) -> dict[str, int]:
        """What came and is not read as events, by what it is."""
        with self._guard:
            return dict(self._counts)

    def stop(self) -> None:
        """Lets requests under way end, then ends."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._stop_asked.set)
        self.join()

    def run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception as error:  # noqa: BLE001 - whoever plans batches has to hear of it
            self.failed = SourceError("the receiver has ended", given=repr(error))
        finally:
            self._worker.shutdown()
            for listening in self._sockets:
                listening.close()
            self._loop.close()

    async def _serve(self) -> None:
        config = uvicorn.Config(
            self._app,
            http=protocol(self.strangers),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",
            access_log=False,
            limit_concurrency=self._settings.max_connections + STRANGERS,
            timeout_keep_alive=IDLE_SECONDS,
        )
        config.load()
        state = ServerState()
        running = [asyncio.create_task(self._write())]
        running += [asyncio.create_task(self._accept(one, config, state)) for one in self._sockets]
        stopped = asyncio.create_task(self._stop_asked.wait())
        await asyncio.wait([stopped, *running], return_when=asyncio.FIRST_COMPLETED)
        for accepting in running[1:]:
            accepting.cancel()
        for connection in [*state.connections]:
            connection.shutdown()
        if state.tasks:
            await asyncio.wait([*state.tasks], timeout=_FAREWELL)
        for task in [stopped, *running, *state.tasks, *self._greeting]:
            task.cancel()
        ended = await asyncio.gather(*running, *self._greeting, return_exceptions=True)
        for connection in [*state.connections]:
            connection.transport.abort()
        await asyncio.sleep(0)  # in which they are closed
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _accept(
        self, listening: socket.socket, config: uvicorn.Config, state: ServerState
    ) -> None:
        """Takes connections. Those whose handshake is under way are few, and none lasts."""
        settings, loop = self._settings, self._loop
        tls = None
        if settings.certificate is not None and settings.key is not None:
            tls = server_context(settings.certificate, settings.key, settings.authority)
        kind: Any = config.http_protocol_class

        async def greet(connection: socket.socket) -> None:
            with contextlib.suppress(OSError, EOFError):
                await loop.connect_accepted_socket(
                    lambda: kind(config=config, server_state=state, app_state={}),
                    connection,
                    ssl=tls,
                    ssl_handshake_timeout=SECONDS if tls is not None else None,
                )

        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:  # no descriptor is left: others may be let go of meanwhile
                await asyncio.sleep(0.1)
                continue
            if len(self._greeting) >= STRANGERS:
                next(iter(self._greeting)).cancel()
            task = loop.create_task(greet(connection))
            self._greeting[task] = connection
            task.add_done_callback(self._greeted)

    def _greeted(self, task: asyncio.Task[None]) -> None:
        connection = self._greeting.pop(task)
        if task.cancelled():
            connection.close()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        more: dict[str, str] = {}
        try:
            try:
                answer = await self._answered(request)
            except RefusedRequest as refused:
                self._count_refused(refused)
                answer = self._intake.refused(request.headers.get("content-type", ""), refused)
                if refused.retry_after is not None:
                    more["retry-after"] = str(refused.retry_after)
                if refused.status == 401:
                    more["www-authenticate"] = "Bearer"
                if not await self._drained(request):
                    more["connection"] = "close"
        except ClientDisconnect:
            return
        media = answer.media if answer.body else None
        made = Response(answer.body, answer.status, {**answer.headers, **more}, media)
        await made(scope, receive, send)

    async def _answered(self, request: Request) -> ReceiverAnswer:
        form = self._let_in(request)
        length = self._length(request.headers)
        self.strangers.leave(request.scope.get("client"))
        if self._spool.size() >= self._settings.max_spool:
            raise RefusedRequest(503, "the spool is full; try again later", _RETRY_FULL)
        if self._bodies + length > max(BODIES, self._settings.max_body):
            raise RefusedRequest(503, "too many requests at once", _RETRY_BUSY)
        self._bodies += length
        try:
            body = await self._body(request)
            found = await self._loop.run_in_executor(self._worker, self._intake.inspect, form, body)
            if found.rows:
                await self._keep(KeptRequest(form, found.size), body)
            self._count_passed_over(found)
        finally:
            self._bodies -= length
        return self._intake.accepted(form, found)

    def _let_in(self, request: Request) -> str:
        """The form of the body of a request that may be sent here."""
        settings, headers = self._settings, request.headers
        if settings.token is not None:
            scheme, _, shown = headers.get("authorization", "").partition(" ")
            right = hmac.compare_digest(shown.strip().encode(), settings.token.encode())
            if scheme.lower() != "bearer" or not right:
                raise RefusedRequest(401, "the token is missing or wrong")
        if request.url.path != settings.path:
            raise RefusedRequest(404, f"requests are taken at {settings.path}")
        if request.method != "POST":
            raise RefusedRequest(405, "requests are taken by POST")
        media = headers.get("content-type", "")
        return self._intake.form(media, headers.get("content-encoding", ""))

    def _length(self, headers: Headers) -> int:
        """Bytes to hold for the body: as many as it says, or as many as it may have."""
        most = self._settings.max_body
        given = headers.get("content-length")
        length = most if given is None else int(given)  # the HTTP parser has checked that it is one
        if length > most:
            raise RefusedRequest(413, f"the body has {length} bytes; at most {most} are taken")
        return length

    async def _body(self, request: Request) -> bytes:
        found = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for chunk in request.stream():
                    found += chunk
                    if len(found) > self._settings.max_body:
                        raise RefusedRequest(
                            413, f"the body has more than {self._settings.max_body} bytes"
                        )
        except TimeoutError:
            raise RefusedRequest(408, f"the body took longer than {BODY_SECONDS:.0f} s") from None
        return bytes(found)

    async def _drained(self, request: Request) -> bool:
        """Reads the rest of a body that is not taken: a sender hears the answer only when it has
        sent all. Where that takes too long the connection ends."""
        try:
            async with asyncio.timeout(SECONDS):
                async for _ in request.stream():
                    pass
        except TimeoutError:
            return False
        except RuntimeError:  # all of it was read already
            return True
        return True

    async def _keep(self, received: KeptRequest, body: bytes) -> None:
        """Returns when the request is safe."""
        safe: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((received, body, safe))
        self._arrived.set()
        await safe

    async def _write(self) -> None:
        """Makes safe what waits, all of it by one sync."""
        while self.failed is None:
            await self._arrived.wait()
            self._arrived.clear()
            waiting, self._waiting = self._waiting, []
            try:
                await self._loop.run_in_executor(self._worker, self._store, waiting)
            except OSError as error:
                self.failed = SourceError(
                    "requests cannot be kept in the spool",
                    given=str(error),
                    hint="is the disk full?",
                )
            for _, _, safe in waiting:
                if safe.done():  # its sender is gone
                    continue
                if self.failed is None:
                    safe.set_result(None)
                else:
                    safe.set_exception(RefusedRequest(503, "the disk takes no more", _RETRY_FULL))

    def _store(self, waiting: list[tuple[KeptRequest, bytes, asyncio.Future[None]]]) -> None:
        for received, body, _ in waiting:
            self._spool.add(received.topic, body)
        self._spool.sync()

    def _count_refused(self, refused: RefusedRequest) -> None:
        if refused.status >= 500 or refused.status in (401, 404, 405, 408):
            return  # the sender still has it, or had nothing that was meant for us
        what = f"requests were refused with {refused.status}"
        with self._guard:
            self._counts[what] += 1
            count = self._counts[what]
        if count & (count - 1) == 0:
            _log.warning("%s: %d, the last because %s", what, count, refused.reason)

    def _count_passed_over(self, found: Inspected) -> None:
        with self._guard:
            self._counts.update({what: n for what, n in found.passed_over.items() if n})


def _bound(listen: str) -> list[socket.socket]:
    """Sockets that listen at all addresses that a name stands for."""
    made: list[socket.socket] = []
    port: Any = None
    try:
        for family, where in resolved(listen):
            one = socket.socket(family, socket.SOCK_STREAM)
            made.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # Where any port will do, all addresses have the same.
            one.bind(where if port is None else (where[0], port, *where[2:]))
            port = one.getsockname()[1]
            one.listen(_BACKLOG)
            one.setblocking(False)
    except (OSError, UnicodeError) as error:
        for one in made:
            one.close()
        raise SourceError(
            "a receiver cannot listen there",
            given=f"listen: {listen}",
            hint=(getattr(error, "strerror", None) or str(error)).lower(),
        ) from error
    return made
