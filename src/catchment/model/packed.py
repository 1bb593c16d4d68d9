"""Records as compressed bytes that say their format, so that another version knows what it has."""

from __future__ import annotations

import zlib
from functools import partial
from typing import TypeVar

import msgspec

from catchment.errors import CatchmentError, StateError
from catchment.model import records

_T = TypeVar("_T")


class _Format(msgspec.Struct, frozen=True):
    """What all such bytes have in common."""

    format: int


def pack(record: object, format: int) -> bytes:
    """A record as bytes; equal records give equal bytes."""
    return zlib.compress(records.encode({"format": format} | records.plain(record)), 1)


def unpack(data: bytes, what: str, format: int, kind: type[_T]) -> _T:
    """The inverse, of bytes that hold such a record in this format.

    >>> unpack(pack({"n": 1}, 1), "plan", 1, dict[str, int])["n"]
    1
    """
    try:
        text = zlib.decompress(data)
    except zlib.error as error:
        raise _foreign(len(data), what, str(error)) from error
    foreign = partial(_foreign, len(data))
    found = records.decode(_Format, text, what, foreign).format
    records.check_format(f"the {what}", found, format, "upgrade the side that wrote it")
    return records.decode(kind, text, what, foreign)


def _foreign(size: int, what: str, why: str) -> CatchmentError:
    return StateError(
        f"these bytes are not a {what}",
        given=f"{size} bytes",
        hint=f"they were cut short, or are of something else: {why[:200]}",
    )
