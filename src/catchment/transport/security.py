"""Who may connect: certificates for the line, tokens for the nodes.

Job files are read in processes that fork, which Flight must not be loaded in: so here it is loaded
only when a link is made.
"""

from __future__ import annotations

import hmac
import logging
import re
from typing import TYPE_CHECKING, Any

from pydantic import Field

from catchment.errors import RefusedError
from catchment.model.section import Section
from catchment.transport.certificates import SecurityError, check_authority, check_pair, read

if TYPE_CHECKING:
    import pyarrow.flight as flight

ADMIN = "admin"
"""The name under which the token of commands is kept; no node may have it."""

MIDDLEWARE = "token"
HEADER = "authorization"
SCHEME = "Bearer "
TOKEN = re.compile("[!-~]+")

log = logging.getLogger("catchment.transport")


class Security(Section):
    """Certificates and tokens of one process, for the links it opens and those it accepts.

    With a certificate it accepts only TLS, and with an authority or a certificate it connects only
    by TLS; without an authority, it trusts those that the system trusts. `mutual` also asks whoever
    connects for a certificate of the authority. With `tokens`, every node must show its own, and a
    command that of "admin".
    """

    certificate: str | None = None
    key: str | None = None
    authority: str | None = None
    mutual: bool = False
    tokens: dict[str, str] = Field(default_factory=dict, repr=False)
    token: str | None = Field(default=None, repr=False)

    def check(self, serving: bool = False) -> None:
        """Finds what cannot work before anything starts; `serving` when links are accepted."""
        if (self.certificate is None) != (self.key is None):
            missing = "key" if self.key is None else "certificate"
            raise SecurityError(
                "a certificate and its key go together",
                given=self.certificate or self.key, hint=f"add the {missing}",
            )  # fmt: skip
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

    def server_options(self) -> dict[str, Any]:
        """What the Flight server is made with."""
        from catchment.transport.tokens import Tokens

        options: dict[str, Any] = {"middleware": {MIDDLEWARE: Tokens()}}
        if self.certificate is not None and self.key is not None:
            pair = read(self.certificate, "certificate"), read(self.key, "key")
            options["tls_certificates"] = [pair]
        if self.mutual and self.authority is not None:
            options["verify_client"] = True
            options["root_certificates"] = read(self.authority, "authority")
        return options

    def client_options(self) -> dict[str, Any]:
        """What the Flight client is made with."""
        options: dict[str, Any] = {}
        if self.authority is not None:
            options["tls_root_certs"] = read(self.authority, "authority")
        if self.certificate is not None and self.key is not None:
            options["cert_chain"] = read(self.certificate, "certificate")
            options["private_key"] = read(self.key, "key")
        return options

    def call_options(self, timeout: float | None = None) -> flight.FlightCallOptions:
        """What a call carries."""
        import pyarrow.flight as flight

        headers: Any = []
        if self.token is not None:
            headers.append((HEADER.encode(), (SCHEME + self.token).encode()))
        return flight.FlightCallOptions(timeout=timeout, headers=headers)

    def admit(self, name: str, shown: str | None, peer: str) -> None:
        """Refuses, and logs, whoever does not show the token of the name that it goes by."""
        if not self.tokens:
            return
        why = self._objection(name, shown)
        if why is not None:
            log.warning("refused %s, which claims to be %r: %s", peer, name, why.what)
            raise why

    def _objection(self, name: str, shown: str | None) -> RefusedError | None:
        hint = f"give the token of {name!r}"
        if shown is None:
            return RefusedError("a token is needed here, and none was shown", hint=hint)
        expected = self.tokens.get(name)
        if expected is not None and _same(expected, shown):
            return None
        if any(_same(token, shown) for token in self.tokens.values()):
            return RefusedError("the token shown is another's", given=name, hint=hint)
        return RefusedError("the token shown is not known here", given=name, hint=hint)


def _same(one: str, other: str) -> bool:
    """Compares in the same time wherever the first difference is."""
    return hmac.compare_digest(one.encode(), other.encode())
