"""Plain data as bytes that say their format, so that another version knows what it has."""

from __future__ import annotations

import json
import zlib
from typing import Any

from catchment.errors import StateError


def pack(data: dict[str, Any], format: int) -> bytes:
    """Data as bytes; equal data give equal bytes."""
    text = json.dumps({"format": format} | data, separators=(",", ":"))
    return zlib.compress(text.encode(), 1)


def unpack(data: bytes, what: str, format: int) -> dict[str, Any]:
    """The inverse, of bytes that hold such a thing in this format.

    >>> unpack(pack({"n": 1}, 1), "plan", 1)["n"]
    1
    """
    try:
        read: dict[str, Any] = json.loads(zlib.decompress(data))
        found = read["format"]
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"these bytes are not a {what}",
            given=f"{len(data)} bytes",
            hint="they were cut short, or are of something else",
        ) from error
    if found != format:
        raise StateError(
            f"the {what} was written in another format",
            given=f"format {found}",
            hint=f"this version reads format {format}: upgrade the older side",
        )
    return read
