"""Sources that receive by HTTP: what they have in common as options, and how they keep requests.

A class below names its path, says which bodies it takes (`Intake`), and reads them as events. The
server, `receiver_server.py`, is loaded only where a source is opened.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from pydantic import Field, PrivateAttr, SecretStr, model_validator

from catchment.durable.folder import Folder
from catchment.errors import SourceError
from catchment.serving.addresses import loopback, resolved
from catchment.serving.certificates import check_authority, check_pair
from catchment.sources.base import NeverRead
from catchment.sources.decode import MOST_ROWS
from catchment.sources.needs import module
from catchment.sources.spool import Stored
from catchment.sources.spooled import SpooledSource

_TOKEN = re.compile("[!-~]+")
_BLOCK_BYTES = 8 << 20
"""Bytes of bodies, as they are when decompressed, that are read at once."""


MOST_LABELS = 256
"""Labels of one series, or attributes of one point; Prometheus itself warns of thirty."""


class RefusedRequest(Exception):  # noqa: N818 - an answer, which no user of the package sees
    """A request that is not taken: the status of the answer, and why."""

    def __init__(self, status: int, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry_after = status, reason, retry_after


@dataclass(frozen=True)
class Inspected:
    """What a body holds."""

    rows: int
    size: int
    """Bytes, decompressed."""
    passed_over: dict[str, int] = field(default_factory=dict)
    """What it has besides that is not read, and how many of it."""


@dataclass(frozen=True)
class ReceiverAnswer:
    """An answer to a sender."""

    status: int
    body: bytes = b""
    media: str = "text/plain"
    headers: dict[str, str] = field(default_factory=dict)


class Intake(Protocol):
    """Which bodies a source takes, and how it answers."""

    def form(self, media: str, encoding: str) -> str:
        """A name for the form of a body, by its headers; RefusedRequest if it is not taken."""

    def inspect(self, form: str, body: bytes) -> Inspected:
        """Looks a body through. Raises RefusedRequest: 400 if it is malformed, 413 if too large."""

    def accepted(self, form: str, found: Inspected) -> ReceiverAnswer:
        """The answer to a request that is safe."""

    def refused(self, media: str, refused: RefusedRequest) -> ReceiverAnswer:
        """The answer to a request that is not taken."""


class ReceiverSettings(NamedTuple):
    """What the server of a receiver is to do."""

    listen: str
    path: str
    token: str | None
    certificate: str | None
    key: str | None
    authority: str | None
    max_connections: int
    max_body: int
    max_spool: int


class KeptRequest(NamedTuple):
    """A request as it is kept."""

    form: str
    size: int
    """Bytes of the body when it is decompressed."""

    @property
    def topic(self) -> bytes:
        return f"{self.form} {self.size}".encode()

    @staticmethod
    def of(stored: Stored) -> KeptRequest:
        form, _, size = stored.topic.partition(" ")
        return KeptRequest(form, int(size))


class HttpReceiver(SpooledSource):
    """A source that others send to by HTTP.

    The driver or node listens. A request is answered with success only when it is safe in the
    spool, a folder on local disk that must be at the same path wherever tasks run. While the spool
    is full, requests are answered 503 with Retry-After: senders keep what they have and try again.

    Other addresses than those of loopback need a token and a certificate, or `exposed: true`.
    """

    when_full: ClassVar[str] = "requests are answered 503, and their senders try again later"
    batch_bytes: ClassVar[int] = 16 << 20

    listen: str = Field(description="host and port, as in 127.0.0.1:9201")
    path: str = Field(description="where requests are taken")
    token: SecretStr | None = Field(
        None, description="what senders must show, as in Authorization: Bearer <token>"
    )
    certificate: str | None = Field(None, description="a PEM file; with it, only TLS 1.3 is spoken")
    key: str | None = Field(None, description="the PEM file of the certificate's key")
    authority: str | None = Field(
        None, description="a PEM file; senders must show a certificate that it signed"
    )
    exposed: bool = Field(
        False, description="listen anywhere, to everybody, without a token and a certificate"
    )
    max_per_batch: int = Field(10_000, gt=0, description="requests per batch")
    max_connections: int = Field(128, gt=0, le=4096, description="senders connected at once")
    max_body: int = Field(4 << 20, gt=0, le=64 << 20, description="bytes of a request as sent")
    max_decompressed: int = Field(
        8 << 20, gt=0, le=256 << 20, description="bytes of a request, decompressed"
    )

    _server: Any = PrivateAttr(None)

    @abstractmethod
    def intake(self) -> Intake:
        """Which bodies are taken; loads the packages that this needs."""

    @model_validator(mode="after")
    def _fits_http(self) -> HttpReceiver:
        if not self.path.startswith("/"):
            raise SourceError("the path does not begin with a slash", given=self.path)
        if (self.certificate is None) != (self.key is None):
            missing = "key" if self.key is None else "certificate"
            raise SourceError("a certificate and its key go together", hint=f"add the {missing}")
        if self.authority is not None and self.certificate is None:
            raise SourceError(
                "an authority without a certificate checks nobody", hint="add certificate and key"
            )
        if self.token is not None and not _TOKEN.fullmatch(self.token.get_secret_value()):
            raise SourceError("the token is not one", hint="a token is ASCII, without spaces")
        return self

    def check(self) -> None:
        self.intake()
        _server()
        self._check_listening()
        if self.certificate is not None and self.key is not None:
            check_pair(self.certificate, self.key)
        if self.authority is not None:
            check_authority(self.authority)

    def open(self, home: Folder) -> None:
        self.check()
        spool = self.open_spool(home)
        token = None if self.token is None else self.token.get_secret_value()
        settings = ReceiverSettings(
            self.listen,
            self.path,
            token,
            self.certificate,
            self.key,
            self.authority,
            self.max_connections,
            self.max_body,
            self.max_spool,
        )
        try:
            self._server = _server().ReceiverServer(settings, self.intake(), spool)
        except BaseException:
            self.close()
            raise
        self._server.start()

    @property
    def port(self) -> int:
        """The port of a source that is open."""
        return int(self._server.port)

    def failure(self) -> SourceError | None:
        return None if self._server is None else self._server.failed

    def never_read(self) -> list[NeverRead]:
        counts = {} if self._server is None else self._server.counts()
        told = [
            NeverRead(self.partition, reason, rows=rows) for reason, rows in sorted(counts.items())
        ]
        return [*super().never_read(), *told]

    def spread(self) -> int:
        return MOST_ROWS

    def blocks(self, stored: Iterator[Stored]) -> Iterator[list[Stored]]:
        block: list[Stored] = []
        held = 0
        for one in stored:
            size = KeptRequest.of(one).size
            if block and held + size > _BLOCK_BYTES:
                yield block
                block, held = [], 0
            block.append(one)
            held += size
        if block:
            yield block

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()
        self._server = None
        super().close()

    def _check_listening(self) -> None:
        """Raises if others than this machine could send without a token and a certificate."""
        try:
            endpoints = resolved(self.listen)
        except (OSError, UnicodeError):
            endpoints = []  # a name that is not known here is not one of this machine alone
        if self.exposed or (endpoints and all(map(loopback, endpoints))):
            return
        lacks = [
            *(["a certificate"] if self.certificate is None else []),
            *(["a token"] if self.token is None else []),
        ]
        if lacks:
            raise SourceError(
                f"a receiver that others than this machine can reach needs {' and '.join(lacks)}",
                given=f"listen: {self.listen}",
                hint="listen at 127.0.0.1, add certificate, key and token, or write exposed: true "
                "if everybody who reaches the port may send events",
            )


def _server() -> Any:
    return module("receiver_server", "receivers")
