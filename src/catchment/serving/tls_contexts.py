"""The settings of TLS, for the side that listens and the side that connects: version 1.3."""

from __future__ import annotations

import ssl


def server_context(certificate: str, key: str, authority: str | None) -> ssl.SSLContext:
    """For the side that listens; with an authority, peers must show a certificate of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # nobody resumes a session
    context.load_cert_chain(certificate, key)
    if authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority)
    return context


def client_context(
    certificate: str | None, key: str | None, authority: str | None
) -> ssl.SSLContext:
    """For the side that connects; without an authority it trusts those that the system trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if authority is not None:
        context.load_verify_locations(authority)
    else:
        context.load_default_certs()
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context
