"""Looks at certificates before they are used, so that a bad one is named and not just refused."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

from catchment.errors import CatchmentError

VERSION, SHORT_YEAR = 0xA0, 0x17


class SecurityError(CatchmentError, ValueError):
    """Certificates, keys or tokens that cannot be used as they are given."""


def read(path: str, role: str) -> bytes:
    """A PEM file; `role` says in an error what it was to be."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise SecurityError(
            f"the {role} cannot be read", given=path, hint=error.strerror or str(error)
        ) from error


def check_authority(path: str) -> None:
    read(path, "authority")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        raise SecurityError(
            "the authority is not a certificate", given=path, hint="it must be a PEM file"
        ) from error


def check_pair(certificate: str, key: str) -> None:
    """A certificate, its key, that they belong together, and that it is valid now."""
    pem = read(certificate, "certificate")
    read(key, "key")
    try:
        # A key with a passphrase would ask for it at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise SecurityError(
            "the certificate and the key cannot be used together",
            given=f"{certificate}, {key}",
            hint="both must be PEM files, the key that of the certificate and without a passphrase",
        ) from error
    check_dates(certificate, pem)


def check_dates(path: str, pem: bytes) -> None:
    try:
        start, end = validity(pem)
    except (ValueError, IndexError):
        # The handshake judges the dates in any case; here they would only be named sooner.
        return
    now = datetime.now(UTC)
    if now > end:
        raise SecurityError(
            f"the certificate expired on {end:%Y-%m-%d %H:%M} UTC", given=path, hint="renew it"
        )
    if now < start:
        raise SecurityError(
            f"the certificate is not valid before {start:%Y-%m-%d %H:%M} UTC",
            given=path,
            hint="is the clock right?",
        )


def validity(pem: bytes) -> tuple[datetime, datetime]:
    """From when to when the first certificate of a PEM file is valid.

    The standard library reads dates only out of certificates of authorities, hence by hand:
    certificate, its signed part, then version, serial, algorithm, issuer, dates.
    """
    mark = "-----END CERTIFICATE-----"
    text = pem.decode("ascii", "replace")
    first = text[text.index("-----BEGIN CERTIFICATE-----") : text.index(mark) + len(mark)]
    der = ssl.PEM_cert_to_DER_cert(first)
    _, at, _ = _element(der, 0)
    _, at, _ = _element(der, at)
    tag, _, end = _element(der, at)
    if tag == VERSION:
        at = end
    for _ in range(3):
        _, _, at = _element(der, at)
    _, at, _ = _element(der, at)
    start, at = _date(der, at)
    return start, _date(der, at)[0]


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag, start and end of the content of the DER element at a place."""
    tag, length, at = der[at], der[at + 1], at + 2
    if length >= 0x80:
        width = length & 0x7F
        length, at = int.from_bytes(der[at : at + width], "big"), at + width
    return tag, at, at + length


def _date(der: bytes, at: int) -> tuple[datetime, int]:
    tag, start, end = _element(der, at)
    text = der[start:end].decode("ascii")
    if tag == SHORT_YEAR:
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC), end
