"""How much may come out of what somebody else has packed.

A few bytes can stand for gigabytes: a column whose values are all alike is written as one of them,
and a compressor makes as little of zeros. Whoever reads what another process sent sets a limit for
all of it, and whatever unpacks something says before it does how many bytes that will take:

    with at_most(1 << 30):           unpacks(8 * rows)     DataError, once it is more than that
        read(message)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from catchment.errors import DataError


class _Room:
    """How many bytes may still be unpacked."""

    def __init__(self, total: int) -> None:
        self.total = self.left = total


_room: ContextVar[_Room | None] = ContextVar("room", default=None)


@contextmanager
def at_most(nbytes: int) -> Iterator[None]:
    """Around the reading of something: all that is unpacked meanwhile may take so many bytes."""
    token = _room.set(_Room(nbytes))
    try:
        yield
    finally:
        _room.reset(token)


def unpacks(nbytes: int) -> None:
    """Says that so many bytes are about to be unpacked; raises where they are too many.

    >>> with at_most(100):
    ...     unpacks(60)
    ...     unpacks(60)
    Traceback (most recent call last):
    ...
    catchment.errors.DataError: what was packed is too large to unpack (given: more than 100 bytes)
    """
    room = _room.get()
    if room is None:
        return
    room.left -= nbytes
    if room.left < 0:
        raise DataError(
            "what was packed is too large to unpack", given=f"more than {room.total} bytes"
        )


def uncompressed(message: memoryview) -> bool:
    """Whether the buffers of a message in Arrow's format for streams are written as they are.

    `message` is its metadata: a table of FlatBuffers. Arrow itself would unpack what it finds, and
    the length that compressed buffers claim is theirs alone.
    """
    header = _field(message, _root(message), 2)
    if header is None:
        return True
    kind = _field(message, _root(message), 1)
    batch = _table(message, header)
    if kind is not None and message[kind] == _DICTIONARY:
        data = _field(message, batch, 1)
        if data is None:
            return True
        batch = _table(message, data)
    elif kind is None or message[kind] != _BATCH:
        return True
    return _field(message, batch, 3) is None


_DICTIONARY, _BATCH = 2, 3
"""Kinds of messages that have buffers."""


def _u32(data: memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _root(data: memoryview) -> int:
    return _u32(data, 0)


def _table(data: memoryview, at: int) -> int:
    """Where the table is that a field refers to."""
    return at + _u32(data, at)


def _field(data: memoryview, table: int, number: int) -> int | None:
    """Where a field of a table is; None: it is not there."""
    vtable = table - int.from_bytes(data[table : table + 4], "little", signed=True)
    size = int.from_bytes(data[vtable : vtable + 2], "little")
    at = 4 + 2 * number
    if at + 2 > size:
        return None
    place = int.from_bytes(data[vtable + at : vtable + at + 2], "little")
    return table + place if place else None
