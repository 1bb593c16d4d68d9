"""What could not be read as events: kept with the reason and where it was found."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from catchment.sources.base import BAD

_LONGEST = 1 << 20


class Aside(NamedTuple):
    """One row, line, or part of a file."""

    origin: str
    place: int
    reason: str
    body: bytes = b""


def aside(rows: list[Aside]) -> pa.Table | None:
    """The rows as a table; None when there are none.

    >>> aside([Aside("a.csv", 3, "not a number", b"1,x")]).num_rows
    1
    """
    if not rows:
        return None
    origin, place, reason, body = zip(*rows, strict=True)
    # A file without line ends would be one body: its beginning is enough to recognize it.
    bodies = [part[:_LONGEST] for part in body]
    arrays = [
        pa.array(values, field.type)
        for values, field in zip((origin, place, reason, bodies), BAD, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=BAD)


def reason_of(error: BaseException) -> str:
    """An error in one line, without a trace of how it was reached."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip()[:500]
