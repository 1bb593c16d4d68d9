"""The page's server: its addresses, and the socket at this host that they are at.

GET  /                              the page; /assets/... its files
GET  /api/jobs                      the jobs that are watched
GET  /api/jobs/N/events             sections of snapshots as they change (server-sent events)
GET  /api/jobs/N/queries            all queries and the groups of the plan
GET  /api/jobs/N/results?query=     the newest results of a query
GET  /api/jobs/N/export?query=&format=
GET  /api/jobs/N/aside?kind=        rows set aside
POST /api/jobs/N/check, .../add     a query in SQL: could it be added? add it
POST /api/jobs/N/remove             a query, at once or after its open windows
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from catchment.errors import CatchmentError, QueryError
from catchment.model import records
from catchment.model.names import file_name
from catchment.model.query import Query
from catchment.serving.strangers import STRANGERS, Strangers, protocol
from catchment.sources.aside_files import KINDS
from catchment.sqltext import sql as query_of
from catchment.ui.feed import PERIOD, WATCHERS, Feed, event
from catchment.ui.guard import Guard
from catchment.ui.plan_view import queries_view
from catchment.ui.results import EXPORTED, SHOWN, ResultReader, as_csv, as_parquet, rows_view
from catchment.ui.watched import WatchedJob

HOST = "127.0.0.1"
"""The page may tell of a business; who wants it elsewhere brings it there with ssh -L."""
ASSETS = Path(__file__).parent / "assets"
ASIDE = 500
"""Rows set aside that are shown at most."""
_AT_ONCE = STRANGERS + 3 * WATCHERS
"""Connections at most, of which a page takes one to watch and a few while it asks."""


class QueryRequest(Struct, frozen=True):
    """A query in SQL, to be looked at or added."""

    sql: str
    name: str

    def query(self) -> Query:
        if not self.name:
            raise QueryError("a query needs a name")
        return query_of(self.sql, self.name)


class RemovalRequest(Struct, frozen=True):
    """A query to be removed."""

    name: str
    drain: bool = False


class WatchedPage:
    """What the page shows of one job."""

    def __init__(self, number: int, job: WatchedJob, period: float) -> None:
        self.number, self.job = number, job
        self.feed = Feed(job, period)
        self._results = ResultReader(job.sinks)
        self._queries: tuple[object, bytes] = (None, b"null")
        self._lock = threading.Lock()

    def queries(self) -> bytes:
        """All queries as JSON; the text of a version of the plan is made once."""
        with self._lock:
            planned = self.job.planned()
            if planned is not self._queries[0] and planned is not None:
                self._queries = (planned, records.encode(queries_view(planned)))
            return self._queries[1]

    def results(self, query: str, rows: int) -> tuple[Any, tuple[str, ...]]:
        """The newest results of a query, and its keys."""
        planned = self.job.planned()
        known = None if planned is None else planned.queries.get(query)
        output = query if planned is None or known is None else planned.output(query)
        return self._results.newest(output, rows), () if known is None else known.keys


PageHandler = Callable[[WatchedPage, Request], Response]


class _Routes:
    """The addresses of the page, over the jobs that it shows."""

    def __init__(self, jobs: Sequence[WatchedJob], period: float) -> None:
        self.pages = [WatchedPage(number, job, period) for number, job in enumerate(jobs)]

    def app(self) -> Starlette:
        at = "/api/jobs/{number:int}"
        return Starlette(
            routes=[
                Route("/", self._index),
                Mount("/assets", StaticFiles(directory=ASSETS)),
                Route("/api/jobs", self._jobs),
                Route(f"{at}/events", self._events),
                Route(f"{at}/queries", self._in_thread(_queries)),
                Route(f"{at}/results", self._in_thread(_results)),
                Route(f"{at}/export", self._in_thread(_export)),
                Route(f"{at}/aside", self._in_thread(_aside)),
                Route(f"{at}/check", self._posted(_check), methods=["POST"]),
                Route(f"{at}/add", self._posted(_add), methods=["POST"]),
                Route(f"{at}/remove", self._posted(_remove), methods=["POST"]),
            ],
            exception_handlers={CatchmentError: _explained},
        )

    def _page(self, request: Request) -> WatchedPage:
        number = int(request.path_params["number"])
        if number >= len(self.pages):
            raise HTTPException(404, "no such job")
        return self.pages[number]

    def _index(self, _: Request) -> Response:
        return Response((ASSETS / "index.html").read_bytes(), media_type="text/html")

    def _jobs(self, _: Request) -> Response:
        return _json([{"number": page.number, "name": page.job.name} for page in self.pages])

    async def _events(self, request: Request) -> Response:
        page = self._page(request)
        if sum(one.feed.watchers for one in self.pages) >= WATCHERS:
            raise HTTPException(503, f"{WATCHERS} pages watch already; close one")

        async def stream() -> AsyncIterator[bytes]:
            async for update in page.feed.updates():
                yield event(update)

        return StreamingResponse(stream(), media_type="text/event-stream")

    def _in_thread(self, answer: PageHandler) -> Callable[[Request], Response]:
        """The handler of a question that is answered in a thread, because a job may take long."""
        return lambda request: answer(self._page(request), request)

    def _posted(
        self, answer: Callable[[WatchedPage, bytes], Response]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answered(request: Request) -> Response:
            body = await request.body()
            return await asyncio.to_thread(answer, self._page(request), body)

        return answered


def _queries(page: WatchedPage, _: Request) -> Response:
    return Response(page.queries(), media_type="application/json")


def _results(page: WatchedPage, request: Request) -> Response:
    table, keys = page.results(request.query_params.get("query", ""), SHOWN + 1)
    return _json(rows_view(table, SHOWN, keys))


def _export(page: WatchedPage, request: Request) -> Response:
    query = request.query_params.get("query", "")
    kind: Literal["csv", "parquet"] = (
        "parquet" if request.query_params.get("format") == "parquet" else "csv"
    )
    table, _ = page.results(query, EXPORTED)
    body = as_parquet(table) if kind == "parquet" else as_csv(table)
    media = "application/vnd.apache.parquet" if kind == "parquet" else "text/csv; charset=utf-8"
    name = f'attachment; filename="{file_name(query)}.{kind}"'
    return Response(body, media_type=media, headers={"content-disposition": name})


def _aside(page: WatchedPage, request: Request) -> Response:
    kind = request.query_params.get("kind", KINDS[0])
    if kind not in KINDS:
        raise HTTPException(404, "no such kind of rows")
    return _json(rows_view(page.job.set_aside(kind, ASIDE), ASIDE))


def _check(page: WatchedPage, body: bytes) -> Response:
    page.job.check(_read(QueryRequest, body).query())
    return _json({})


def _add(page: WatchedPage, body: bytes) -> Response:
    asked = _read(QueryRequest, body)
    page.job.add(asked.query())
    return _json({"added": asked.name})


def _remove(page: WatchedPage, body: bytes) -> Response:
    asked = _read(RemovalRequest, body)
    page.job.remove(asked.name, asked.drain)
    return _json({"removed": asked.name})


def _read(kind: Any, body: bytes) -> Any:
    return records.decode(kind, body, "the request", records.refused)


def _json(found: object) -> Response:
    return Response(records.encode(found), media_type="application/json")


def _explained(_: Request, error: Exception) -> Response:
    """An error as the page shows it."""
    assert isinstance(error, CatchmentError)
    given = None if error.given is None else str(error.given)
    said = {"what": error.what, "given": given, "hint": error.hint, "text": str(error)}
    return Response(records.encode({"error": said}), 400, media_type="application/json")


class Page:
    """A page that is served, in a thread of its own, until it is closed."""

    def __init__(
        self,
        jobs: Sequence[WatchedJob],
        port: int,
        period: float = PERIOD,
        strangers: Strangers | None = None,
    ) -> None:
        self._socket = _bound(port)
        self.port = int(self._socket.getsockname()[1])
        self.token = secrets.token_urlsafe(24)
        routes = _Routes(jobs, period)
        self.watched = routes.pages
        self.strangers = Strangers() if strangers is None else strangers
        self.app = Guard(routes.app(), self.token, self.port, admit=self.strangers.leave)
        config = uvicorn.Config(
            self.app,
            http=protocol(self.strangers),
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_level="critical",
            access_log=False,
            server_header=False,
            limit_concurrency=_AT_ONCE,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="catchment-ui", daemon=True
        )

    @property
    def url(self) -> str:
        """The address, with the token."""
        return f"http://{HOST}:{self.port}/?token={self.token}"

    def start(self) -> Page:
        self._thread.start()
        return self

    def close(self) -> None:
        """Ends the streams, then the server."""
        for page in self.watched:
            page.feed.end()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(5)
        self._socket.close()

    def __enter__(self) -> Page:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _bound(port: int) -> socket.socket:
    """A socket at this host that listens; an error names the port."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # What a page before has left in TIME_WAIT is no page: a new one may have its port.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
        made.listen(64)
    except OSError as error:
        made.close()
        raise CatchmentError(
            f"the page cannot have port {port}",
            given=(error.strerror or str(error)).lower(),
            hint="another page may be there already; choose a port, or 0 for a free one",
        ) from error
    return made
