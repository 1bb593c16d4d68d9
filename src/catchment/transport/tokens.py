"""Tokens of calls, on the server's side."""

from __future__ import annotations

import pyarrow.flight as flight

from catchment.transport.security import HEADER, MIDDLEWARE, SCHEME


class _Shown(flight.ServerMiddleware):
    """Keeps the token that came with a call, until the call is looked at."""

    def __init__(self, token: str | None) -> None:
        self.token = token


class Tokens(flight.ServerMiddlewareFactory):
    def start_call(
        self, info: flight.CallInfo, headers: dict[str, list[str] | list[bytes]]
    ) -> flight.ServerMiddleware | None:
        for value in headers.get(HEADER, []):
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            if text.startswith(SCHEME):
                return _Shown(text.removeprefix(SCHEME))
        return None


def shown(context: flight.ServerCallContext) -> str | None:
    """The token that a call came with."""
    middleware = context.get_middleware(MIDDLEWARE)
    return middleware.token if isinstance(middleware, _Shown) else None
