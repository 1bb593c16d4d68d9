"""Says in a sentence what went wrong with a connection, in place of the text of an OSError."""

from __future__ import annotations

import errno
import logging
import socket
import ssl

from catchment.transport.wire import PeerUnreachableError

log = logging.getLogger("catchment.transport")

CauseAndHint = tuple[str, str | None]
"""What is wrong, and a hint."""

RIGHT = "is the node running, and is the address right?"
LATE: CauseAndHint = ("no answer came in time", RIGHT)
LOST = "the connection was lost"
NO_WAY: CauseAndHint = ("there is no way to the host", "check the address and the network")
HOST: CauseAndHint = (
    "the other side's certificate is for another host",
    "connect by a name or address that the certificate lists",
)

BY_NUMBER: dict[int, CauseAndHint] = {
    errno.ECONNREFUSED: ("nobody listens there", RIGHT),
    errno.ETIMEDOUT: LATE,
    errno.EHOSTUNREACH: NO_WAY,
    errno.ENETUNREACH: NO_WAY,
    errno.EADDRNOTAVAIL: NO_WAY,
    **dict.fromkeys(
        (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED, errno.ESHUTDOWN), (LOST, None)
    ),
}

# The numbers are X509_V_ERR_... of OpenSSL.
BY_VERIFICATION: dict[int, CauseAndHint] = {
    9: ("the other side's certificate is not valid yet", "are the clocks right?"),
    10: ("the other side's certificate has expired", "renew it"),
    62: HOST,
    64: HOST,
}
FOREIGN: CauseAndHint = (
    "the other side's certificate is not one of the authority's",
    "check `authority`, and who signed that certificate",
)

BY_REASON: tuple[tuple[str, CauseAndHint], ...] = (
    ("CERTIFICATE_EXPIRED", ("the certificate shown to the other side has expired", "renew it")),
    ("CERTIFICATE_REQUIRED", ("the other side asks for a certificate", "give one and its key")),
    (
        "UNKNOWN_CA",
        (
            "the other side does not know who signed the certificate shown to it",
            "check `authority`",
        ),
    ),
    ("WRONG_VERSION_NUMBER", ("the other side does not speak TLS", "give it a certificate")),
    ("RECORD_LAYER_FAILURE", ("the other side does not speak TLS", "give it a certificate")),
)
"""What is looked for in the reason that OpenSSL gives, in this order."""
UNSAFE: CauseAndHint = (
    "no secure connection could be made",
    "check the certificates of both sides",
)


def unreachable(address: str, error: OSError | UnicodeError) -> PeerUnreachableError:
    """An error of a socket or of TLS as one of ours; its own text goes to the log."""
    log.debug("the link to %s failed: %s", address, error)
    what, hint = _sentence(error)
    return PeerUnreachableError(what, given=address, hint=hint)


def _sentence(error: OSError | UnicodeError) -> CauseAndHint:
    if isinstance(error, ssl.SSLCertVerificationError):
        return BY_VERIFICATION.get(error.verify_code, FOREIGN)
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        return next((said for mark, said in BY_REASON if mark in reason), UNSAFE)
    if isinstance(error, socket.gaierror | UnicodeError):
        return "the host is not known", "check its name"
    if isinstance(error, TimeoutError):
        return LATE
    known = BY_NUMBER.get(error.errno or 0)
    return known or ("the other side cannot be reached", RIGHT)
