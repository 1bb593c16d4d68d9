"""What travels over a connection: kinds of frames, notes in JSON, errors, versions, addresses.

The side that connects says who it is (`WHO`), then either registers as a node (`HELLO`, followed by
any number of `MESSAGE` and `BEAT`, each answered by a `REPLY`) or puts one question (`ASK`). The
side that listens may send a `PUSH` at any time. `REFUSED` and `BYE` say why a connection ends. A
message is bytes; all other bodies are notes: JSON objects.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

from catchment.errors import CatchmentError, RefusedError

PROTOCOL = 1
OLDEST = 1
"""The newest and the oldest version of the protocol that this code speaks."""

LIMIT = 256 << 20
"""How long a message may be, in bytes, where nothing else is said."""

KEEPALIVE = 60
"""Seconds of silence after which the system asks whether the other side is still there."""

WHO, HELLO, MESSAGE, BEAT, ASK = b"w", b"h", b"m", b"b", b"a"
"""Frames of the side that connects."""
REPLY, REFUSED, PUSH = b"r", b"x", b"p"
"""Frames of the side that listens."""
BYE = b"q"
"""A frame of both sides: whoever sends it wants the connection to end."""
UP = frozenset((WHO, HELLO, MESSAGE, BEAT, ASK, BYE))
DOWN = frozenset((REPLY, REFUSED, PUSH, BYE))


class AddressError(CatchmentError, ValueError):
    """An address that cannot be one, or that cannot be listened at."""


class PeerUnreachableError(CatchmentError, OSError):
    """The other side is not there, not there any more, or not to be trusted.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(PeerUnreachableError("nobody listens there", given="here:7000")))
    PeerUnreachableError('nobody listens there (given: here:7000)')
    """


def pack(kind: bytes, note: Mapping[str, Any]) -> bytes:
    """A note as bytes; an empty one is the byte of its kind alone.

    >>> pack(BEAT, {"at": 5}), pack(REPLY, {})
    (b'b{"at":5}', b'r')
    """
    if not note:
        return kind
    text = json.dumps(note, separators=(",", ":"), ensure_ascii=False)
    # What a stranger said may be quoted in an error, and need not be valid Unicode.
    return kind + text.encode(errors="surrogatepass")


def unpack(body: bytes) -> dict[str, Any]:
    """The note that a body holds.

    >>> unpack(b'{"at":5}'), unpack(b"")
    ({'at': 5}, {})
    """
    if not body:
        return {}
    try:
        note = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RefusedError("a note is not JSON", given=body[:40]) from error
    if not isinstance(note, dict):
        raise RefusedError("a note is not a JSON object", given=body[:40])
    return note


def pack_error(kind: bytes, error: CatchmentError) -> bytes:
    """An error as the note that the other side makes the same error of."""
    given = None if error.given is None else str(error.given)
    parts = {"what": error.what, "given": given, "hint": error.hint}
    return pack(kind, {name: part for name, part in parts.items() if part is not None})


def unpack_error(kind: bytes, body: bytes) -> CatchmentError:
    """The error that the other side sent.

    >>> sent = pack_error(REFUSED, RefusedError("no", given=5, hint="ask again"))
    >>> unpack_error(REFUSED, sent[1:])
    RefusedError('no (given: 5); ask again')
    """
    note = unpack(body)
    known = RefusedError if kind == REFUSED else PeerUnreachableError
    what, hint = str(note.get("what", "no reason was given")), note.get("hint")
    return known(what, given=note.get("given"), hint=None if hint is None else str(hint))


def versions() -> dict[str, Any]:
    return {"protocol": PROTOCOL, "oldest": OLDEST}


def agree(theirs: Mapping[str, Any]) -> int:
    """The highest version that both sides speak, or a refusal that says whom to upgrade.

    >>> agree({"protocol": 7, "oldest": 1})
    1
    """
    newest, oldest = theirs.get("protocol"), theirs.get("oldest")
    if not isinstance(newest, int) or not isinstance(oldest, int):
        raise RefusedError(
            "a peer did not say which versions of the protocol it speaks",
            given={"protocol": newest, "oldest": oldest},
        )
    if newest >= OLDEST and oldest <= PROTOCOL:
        return min(newest, PROTOCOL)
    raise RefusedError(
        f"the two sides share no version of the protocol: the one that connects speaks "
        f"{_span(oldest, newest)}, the one that listens {_span(OLDEST, PROTOCOL)}",
        hint=f"upgrade the one that {'connects' if newest < OLDEST else 'listens'}",
    )


def _span(oldest: int, newest: int) -> str:
    return str(newest) if oldest == newest else f"{oldest} to {newest}"


def prepare(connection: socket.socket) -> None:
    """Sets what both sides want of a socket: small frames go at once, a dead peer is noticed."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of an address.

    >>> split_address("localhost:7000"), split_address("[::1]:0")
    (('localhost', 7000), ('[::1]', 0))
    """
    host, _, port = address.rpartition(":")
    bare = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not host or bare or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise AddressError(
            "an address is a host and a port", given=repr(address), hint='such as "localhost:7000"'
        )
    return host, int(port)
