"""Posts to HTTP servers: tries again while a server is away, and says why it refuses.

Connection errors and the answers 408, 429 and 5xx are tried again, after pauses that double and
that a server may ask for by Retry-After, until the time for a delivery is over. Any other answer
that is no success is final. Redirects are not followed: they could lead a token elsewhere.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import NamedTuple
from urllib.parse import urlsplit

from catchment.errors import SinkError
from catchment.serving.tls_contexts import client_context

_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_LONGEST_ANSWER = 64 << 10
_SHOWN = 300
_AGAIN = (408, 429)


class HttpRefusedError(SinkError):
    """A server's final no; `status` is that of its answer, `reason` its text."""

    status = 0
    reason = ""


class HttpAnswer(NamedTuple):
    status: int
    text: str
    """The beginning of the body, in one line."""
    retry_after: float | None
    location: str | None


@dataclass(frozen=True)
class HttpTarget:
    """Where to post, and how long a delivery may take. `sink` is its type, for errors."""

    sink: str
    url: str
    timeout: float
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    authority: str | None = None


class HttpPoster:
    """Posts for one delivery, over one connection as long as it lasts."""

    def __init__(self, target: HttpTarget, pause: Callable[[float], None] = time.sleep) -> None:
        self._target, self._pause = target, pause
        self._end = time.monotonic() + target.timeout
        self._connection: HTTPConnection | None = None

    def __enter__(self) -> HttpPoster:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Posts until the server takes it; SinkError when time is over, or it refuses."""
        pause = _FIRST_PAUSE
        while True:
            trouble: str | None = None
            wait = pause * random.uniform(0.5, 1.0)  # many tasks must not come back at once
            try:
                answer = self._once(body, headers)
            except (OSError, HTTPException) as error:
                self._drop()
                trouble = _why(error)
            else:
                if 200 <= answer.status < 300:
                    return
                if answer.status < 500 and answer.status not in _AGAIN:
                    raise self._refusal(answer)
                trouble = f"HTTP {answer.status}: {answer.text}"
                wait = max(wait, answer.retry_after or 0.0)
            if time.monotonic() + wait >= self._end:
                raise SinkError(
                    f"the {self._target.sink} sink's server takes nothing",
                    given=shown_url(self._target.url),
                    hint=f"tried for {self._target.timeout:.0f} s; the last trouble: {trouble}",
                )
            self._pause(wait)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _once(self, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        left = max(0.1, self._end - time.monotonic())
        if self._connection is None:
            self._connection = connection_to(self._target, left)
        connection = self._connection
        if connection.sock is not None:
            connection.sock.settimeout(left)
        parts = urlsplit(self._target.url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, {**self._target.headers, **headers})
        answer = connection.getresponse()
        text = answer.read(_LONGEST_ANSWER)
        if not answer.isclosed():  # the rest of a long answer is not waited for
            self._drop()
        return HttpAnswer(
            answer.status,
            " ".join(text.decode(errors="replace").split())[:_SHOWN],
            _seconds(answer.headers.get("retry-after")),
            answer.headers.get("location"),
        )

    def _refusal(self, answer: HttpAnswer) -> HttpRefusedError:
        said = answer.text or "it says no more"
        if answer.location is not None and 300 <= answer.status < 400:
            said = f"it is at {answer.location}: write that as url"
        made = HttpRefusedError(
            f"the {self._target.sink} sink's server refuses results with HTTP {answer.status}",
            given=shown_url(self._target.url),
            hint=said,
        )
        made.status, made.reason = answer.status, answer.text
        return made

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def check_target(target: HttpTarget) -> None:
    """Raises SinkError unless the URL is one and its server can be connected to."""
    check_url(target.sink, target.url)
    connection = connection_to(target, min(target.timeout, 10.0))
    try:
        connection.connect()
    except (OSError, HTTPException) as error:
        raise SinkError(
            f"the {target.sink} sink's server cannot be reached",
            given=shown_url(target.url),
            hint=_why(error),
        ) from error
    finally:
        connection.close()


def check_url(sink: str, url: str) -> None:
    """Raises SinkError unless a text is a URL of HTTP."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise SinkError(
            f"the url of the {sink} sink is not one", given=url, hint="as in https://host/path"
        )
    if parts.username is not None or parts.password is not None:
        raise SinkError(
            f"the url of the {sink} sink has a password in it", hint="give it as token or headers"
        )


def connection_to(target: HttpTarget, timeout: float) -> HTTPConnection:
    parts = urlsplit(target.url)
    host = parts.hostname or ""
    if parts.scheme == "https":
        context = client_context(None, None, target.authority)
        # Other people's servers may not speak version 1.3 yet.
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return HTTPSConnection(host, parts.port, timeout=timeout, context=context)
    return HTTPConnection(host, parts.port, timeout=timeout)


def shown_url(url: str) -> str:
    """A URL as it may be shown: webhooks have secrets in their query, and often in their path.

    >>> shown_url("https://hooks.example:8443/services/T0/secret?key=1")
    'https://hooks.example:8443/services/...'
    """
    parts = urlsplit(url)
    first, _, rest = parts.path.lstrip("/").partition("/")
    return f"{parts.scheme}://{parts.netloc}/{first}" + ("/..." if rest or parts.query else "")


def _seconds(given: str | None) -> float | None:
    """Retry-After in seconds; a date is left to our own pauses."""
    return float(given) if given is not None and given.isascii() and given.isdigit() else None


def _why(error: BaseException) -> str:
    return " ".join(str(error).split())[:_SHOWN] or type(error).__name__
