"""Who may connect: certificates, tokens of nodes and commands, and where nodes may listen."""

from __future__ import annotations

import hmac
import logging
import re
from typing import TYPE_CHECKING, Any

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PrivateAttr,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError

from catchment.errors import JobError, RefusedError
from catchment.model.section import Section
from catchment.serving.addresses import Endpoint, loopback, resolved
from catchment.serving.certificates import SecurityError as SecurityError
from catchment.serving.certificates import check_authority, check_pair

if TYPE_CHECKING:
    import ssl

ADMIN = "admin"
"""The name under which the token of commands is kept; no node may have it."""

NONE = "none"
"""What stands in a job file where nodes are to listen to everybody."""

TOKEN = re.compile("[!-~]+")

log = logging.getLogger("catchment.transport")


class Security(Section):
    """Certificates and tokens of one process, for the links it opens and those it accepts.

    With a certificate it accepts only TLS, and with an authority or a certificate it connects only
    by TLS; without an authority, it trusts those that the system trusts. `mutual` also asks whoever
    connects for a certificate of the authority. With `tokens`, every node must show its own, and a
    command that of "admin"; a node shows `token`, or the one that `tokens` has for it.

    A node listens at loopback addresses only, unless it has both a certificate and tokens. The text
    `none` in place of this section lets it listen anywhere, to everybody.
    """

    certificate: str | None = None
    key: str | None = None
    authority: str | None = None
    mutual: bool = False
    tokens: dict[str, str] = Field(default_factory=dict, repr=False)
    token: str | None = Field(default=None, repr=False)
    _exposed: bool = PrivateAttr(default=False)

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, given: Any, handler: ModelWrapValidatorHandler[Security]) -> Security:
        if not isinstance(given, str):
            return handler(given)
        if given != NONE:
            raise PydanticCustomError("security", "Input should be a mapping, or the word none")
        made = handler({})
        made._exposed = True
        return made

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: Any, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [handler(core), {"const": NONE}]}

    @property
    def exposed(self) -> bool:
        """Whether it is the word none: nodes may listen anywhere without certificate or tokens."""
        return self._exposed

    def check(self, serving: bool = False) -> None:
        """Finds what cannot work before anything starts; `serving` when links are accepted."""
        if (self.certificate is None) != (self.key is None):
            missing = "key" if self.key is None else "certificate"
            raise SecurityError(
                "a certificate and its key go together",
                given=self.certificate or self.key,
                hint=f"add the {missing}",
            )
        if self.mutual and (self.certificate is None or self.authority is None):
            missing = "authority" if self.authority is None else "certificate and its key"
            raise SecurityError("mutual TLS lacks a part", hint=f"add the {missing}")
        if serving and self.authority is not None and self.certificate is None:
            raise SecurityError(
                "links over TLS cannot be accepted without a certificate", hint="add it and its key"
            )
        if self.certificate is not None and self.key is not None:
            check_pair(self.certificate, self.key)
        if self.authority is not None:
            check_authority(self.authority)
        self._check_tokens()

    def _check_tokens(self) -> None:
        for name, token in [*self.tokens.items(), (None, self.token)]:
            if token is not None and not TOKEN.fullmatch(token):
                whose = "of this process" if name is None else f"of {name!r}"
                raise SecurityError(
                    f"the token {whose} is not one", hint="a token is ASCII, without spaces"
                )
        if len(set(self.tokens.values())) < len(self.tokens):
            raise SecurityError(
                "two nodes have the same token", hint="a token says which node it is"
            )

    @property
    def tls(self) -> bool:
        """Whether links are opened over TLS."""
        return self.certificate is not None or self.authority is not None

    def server_context(self) -> ssl.SSLContext | None:
        """What connections are accepted with; None without TLS."""
        from catchment.serving.tls_contexts import server_context

        if self.certificate is None or self.key is None:
            return None
        return server_context(self.certificate, self.key, self.authority if self.mutual else None)

    def client_context(self) -> ssl.SSLContext | None:
        """What connections are opened with; None without TLS."""
        from catchment.serving.tls_contexts import client_context

        return client_context(self.certificate, self.key, self.authority) if self.tls else None

    def token_of(self, name: str) -> str | None:
        """The token that is shown by a node, or by a command as "admin"."""
        return self.token if self.token is not None else self.tokens.get(name)

    def admit(self, name: str, shown: str | None) -> None:
        """Refuses a peer that does not show the token of the name that it gives."""
        if not self.tokens:
            return
        hint = f"give the token of {name!r}"
        if shown is None:
            raise RefusedError("a token is needed here, and none was shown", hint=hint)
        expected = self.tokens.get(name)
        if expected is not None and _same(expected, shown):
            return
        if any(_same(token, shown) for token in self.tokens.values()):
            raise RefusedError("the token shown is another's", given=name, hint=hint)
        raise RefusedError("the token shown is not known here", given=name, hint=hint)


def _same(one: str, other: str) -> bool:
    """Compares in the same time wherever the first difference is."""
    # What a stranger shows need not be valid Unicode.
    return hmac.compare_digest(one.encode(), other.encode(errors="surrogatepass"))


def check_listening(listen: str, security: Security | None) -> None:
    """Raises if a node that has no certificate and tokens would be reached from elsewhere."""
    try:
        endpoints = resolved(listen)
    except (OSError, UnicodeError):
        endpoints = []  # a name that is not known here is not one of this machine alone
    check_endpoints(listen, endpoints, security)


def check_endpoints(listen: str, endpoints: list[Endpoint], security: Security | None) -> None:
    """The same, for addresses that are known."""
    security = security or Security()
    if security.exposed or (endpoints and all(map(loopback, endpoints))):
        return
    lacks = [
        *(["a certificate"] if security.certificate is None else []),
        *(["tokens"] if not security.tokens else []),
    ]
    if lacks:
        raise JobError(
            f"a node that others than this machine can reach needs {' and '.join(lacks)}",
            given=f"listen: {listen}",
            hint="listen at 127.0.0.1, add certificate, key and tokens under security:, or write "
            "security: none if everybody who reaches the port may read, change and stop the job",
        )
