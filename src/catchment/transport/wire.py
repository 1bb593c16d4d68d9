"""What travels over a connection: kinds of frames, notes in JSON, errors, versions, addresses.

The side that connects says who it is (`WHO`), then either registers as a node (`HELLO`, followed by
any number of `MESSAGE` and `BEAT`, each answered by a `REPLY`) or puts one question (`ASK`). The
side that listens may send a `PUSH` at any time. `REFUSED` and `BYE` say why a connection ends. A
message is bytes; all other bodies are notes, records as JSON. The records of this module are the
transport's own; what nodes and commands say to each other it carries as it is.
"""

from __future__ import annotations

import socket

from msgspec import Raw, Struct

from catchment.errors import CatchmentError, RefusedError
from catchment.model import records

PROTOCOL = 2
OLDEST = 2
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
EMPTY = b"{}"
"""A note that says nothing."""
UP = frozenset((WHO, HELLO, MESSAGE, BEAT, ASK, BYE))
DOWN = frozenset((REPLY, REFUSED, PUSH, BYE))


class PeerUnreachableError(CatchmentError, OSError):
    """The other side is not there, not there any more, or not to be trusted.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(PeerUnreachableError("nobody listens there", given="here:7000")))
    PeerUnreachableError('nobody listens there (given: here:7000)')
    """


class Who(Struct, frozen=True, omit_defaults=True):
    """What a side that connects says first, on every connection."""

    protocol: int | None = None
    oldest: int | None = None
    """The newest and the oldest version of the protocol that it speaks."""
    name: str | None = None
    token: str | None = None


class Welcome(Struct, frozen=True):
    """The answer to a hello that was accepted."""

    protocol: int
    limit: int
    """Bytes that a message may have."""
    answer: Raw
    """The note of the handler."""


class ErrorNote(Struct, frozen=True, omit_defaults=True):
    """Why a connection ends: the parts of an error."""

    what: str = "no reason was given"
    given: str | None = None
    hint: str | None = None


def pack(kind: bytes, note: bytes) -> bytes:
    """A frame of a note; an empty note is the byte of its kind alone.

    >>> pack(BEAT, b'{"at":5}'), pack(REPLY, EMPTY)
    (b'b{"at":5}', b'r')
    """
    return kind if note == EMPTY else kind + note


def note_of(body: bytes) -> bytes:
    """The note that the body of a frame is; its inverse."""
    return body or EMPTY


def pack_error(kind: bytes, error: CatchmentError) -> bytes:
    """An error as the note that the other side makes the same error of."""
    given = None if error.given is None else _valid(str(error.given))
    hint = None if error.hint is None else _valid(error.hint)
    return pack(kind, records.encode(ErrorNote(_valid(error.what), given, hint)))


def _valid(text: str) -> str:
    """A text as Unicode can say it: what a file or a stranger is named need not be that."""
    return text.encode(errors="replace").decode()


def unpack_error(kind: bytes, body: bytes) -> CatchmentError:
    """The error that the other side sent.

    >>> sent = pack_error(REFUSED, RefusedError("no", given=5, hint="ask again"))
    >>> unpack_error(REFUSED, sent[1:])
    RefusedError('no (given: 5); ask again')
    """
    note = records.decode(ErrorNote, note_of(body), "a refusal", records.refused)
    known = RefusedError if kind == REFUSED else PeerUnreachableError
    return known(note.what, given=note.given, hint=note.hint)


def agree(theirs: Who) -> int:
    """The highest version that both sides speak, or a refusal that says whom to upgrade.

    >>> agree(Who(protocol=7, oldest=1)) == PROTOCOL
    True
    """
    newest, oldest = theirs.protocol, theirs.oldest
    if newest is None or oldest is None:
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
