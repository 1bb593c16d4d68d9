"""Records as compressed bytes that say their format, so that another version knows what it has."""

from __future__ import annotations

import zlib
from typing import TypeVar

import msgspec

from catchment.errors import StateError
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
        found = msgspec.json.decode(text, type=_Format).format
        read = msgspec.json.decode(text, type=kind) if found == format else None
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StateError(
            f"these bytes are not a {what}",
            given=f"{len(data)} bytes",
            hint=f"they were cut short, or are of something else: {str(error)[:200]}",
        ) from error
    if read is None:
        records.check_format(f"the {what}", found, format, "upgrade the side that wrote it")
    assert read is not None
    return read
