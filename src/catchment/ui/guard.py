"""Who may use the page: whoever has the address that was printed, from this host, in a browser.

The address has a random token. It is shown once, for a cookie that scripts cannot read and other
sites cannot use; every request without that cookie is refused, those for files too. A name that
leads here by DNS is refused by the Host header, since a strange page could be behind it. What
changes something needs a header that other sites cannot set.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY = 64 << 10
"""Bytes that a request may bring."""
MARK = "x-catchment"
"""The header without which nothing is changed."""
_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Stands before the page and refuses what may not pass.

    `admit` is told the address of everybody who was let in.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        port: int,
        admit: Callable[[Any], None] = lambda peer: None,
    ) -> None:
        self._app, self._admit = app, admit
        self._token = token
        self._cookie = f"catchment_{port}"
        self._session = secrets.token_urlsafe(32)
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refusal(scope) or self._entrance(scope)
        await (answer or self._app)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Why a request may not pass, whoever sends it."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host.lower() not in self._hosts:
            return _no(421, "this page answers at 127.0.0.1 only")
        if scope["method"] in ("GET", "HEAD"):
            return None
        if scope["method"] != "POST":
            return _no(405, "there is nothing to do like that")
        origin = headers.get("origin")
        if headers.get(MARK) != "1" or (origin and origin != f"http://{host}"):
            return _no(403, "only the page itself may change something")
        size = headers.get("content-length", "")
        if not size.isdigit() or int(size) > BODY:
            return _no(413, f"a request must say its size, of at most {BODY:,} bytes")
        return None

    def _entrance(self, scope: Scope) -> Response | None:
        """What a request gets that does not come from a page that was let in."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        shown = query.get("token", [""])[0]
        if scope["path"] == "/" and shown and _same(shown, self._token):
            self._admit(scope.get("client"))
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
            return answer
        if _same(_cookie(scope, self._cookie), self._session):
            self._admit(scope.get("client"))
            return None
        return _no(403, "open the address that the command has printed: it has a token")


def _cookie(scope: Scope, name: str) -> str:
    try:
        found = SimpleCookie(Headers(scope=scope).get("cookie", ""))
    except CookieError:
        return ""
    return found[name].value if name in found else ""


def _same(given: str, wanted: str) -> bool:
    """Compares in a time that does not tell how much of it is right."""
    return secrets.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _no(code: int, text: str) -> Response:
    return PlainTextResponse(f"catchment: {text}\n", code)
