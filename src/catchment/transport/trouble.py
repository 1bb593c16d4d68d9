"""Says in a sentence what went wrong on the line."""

from __future__ import annotations

import logging

import pyarrow as pa
import pyarrow.flight as flight

from catchment.transport.wire import UnreachableError

log = logging.getLogger("catchment.transport")

ERRORS = (flight.FlightError, pa.ArrowException, OSError)
"""What the library raises when a stream fails."""

RIGHT = "is the node running, and is the address right?"
LOST = "the connection was lost"
FOREIGN = "the other side's certificate is not one of the authority's"

SENTENCES = (
    ("certificate has expired", "the other side's certificate has expired", "renew it"),
    ("certificate expired", "the certificate shown to the other side has expired", "renew it"),
    ("certificate is not yet valid", "the other side's certificate is not valid yet", None),
    ("certificate required", "the other side asks for a certificate", "give one and its key"),
    ("unknown ca", "the other side does not know who signed the certificate shown to it", None),
    ("certificate verify failed", FOREIGN, "check `authority`, and who signed that certificate"),
    ("self-signed", FOREIGN, "check `authority`, and who signed that certificate"),
    ("hostname verification", "the other side's certificate is for another host",
     "connect by a name or address that the certificate lists"),
    ("peer name", "the other side's certificate is for another host",
     "connect by a name or address that the certificate lists"),
    ("wrong version number", "the other side does not speak TLS", "give it a certificate"),
    ("handshake", "no secure connection could be made", "check the certificates of both sides"),
    ("connection refused", "nobody listens there", RIGHT),
    ("name resolution", "the host is not known", "check its name"),
    ("domain name", "the host is not known", "check its name"),
    ("dns", "the host is not known", "check its name"),
    ("no route", "there is no way to the host", "check the address and the network"),
    ("unreachable", "there is no way to the host", "check the address and the network"),
    ("deadline", "no answer came in time", RIGHT),
    ("timed out", "no answer came in time", RIGHT),
    ("timeout", "no answer came in time", RIGHT),
    ("unimplemented", "what listens there is no node of a tree", RIGHT),
    ("socket closed", LOST, None),
    ("connection reset", LOST, None),
    ("broken pipe", LOST, None),
    ("goaway", LOST, None),
    ("cancel", LOST, None),
)  # fmt: skip
"""What is looked for in the library's text, in this order, and what is said instead."""


def unreachable(
    address: str, error: Exception, secure: bool, fresh: bool = True
) -> UnreachableError:
    """An error of the library as one of ours; its own text goes to the log.

    `fresh` says that nothing had been heard of the other side yet.
    """
    text = str(error)
    log.debug("the link to %s failed: %s", address, text)
    # One library of TLS writes its reasons in words, another in constants.
    low = text.lower().replace("_", " ")
    for mark, what, hint in SENTENCES:
        if mark in low:
            if fresh and what == LOST:
                hint = _tls_hint(secure)
            return UnreachableError(what, given=address, hint=hint)
    return UnreachableError("the other side cannot be reached", given=address, hint=RIGHT)


def _tls_hint(secure: bool) -> str | None:
    """A peer that wants TLS, or a certificate, hangs up without a word."""
    if secure:
        return "the other side may not accept this side's certificate"
    return "the other side may want TLS"
