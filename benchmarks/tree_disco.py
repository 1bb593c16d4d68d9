"""Disco's own design as a baseline: slices stay at the leaves, each window sends its results."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from benchmarks.figure import Figure, plain
from catchment.measure.central import CollectorLink

KEYS = 10
LENGTHS = tuple(range(1, 11))
"""Of windows, in seconds; they take turns."""
_BODY = struct.Struct(">IqqqdQ")
"""Which window, its start and end, the key, sum and count: as lean as it can be."""
_SAMPLE = 2000


def windows_closing(count: int) -> float:
    """Windows that close in a second.

    >>> windows_closing(1)
    1.0
    >>> round(windows_closing(10), 2)
    2.93
    """
    return sum(1 / LENGTHS[number % len(LENGTHS)] for number in range(count))


def message(window: int, end: int, key: int) -> bytes:
    """A window's partial of one key."""
    return _BODY.pack(window, end - 1_000_000, end, key, 0.1 * key * end, end)


def per_message(sample: int = _SAMPLE) -> float:
    """The bytes that a partial takes on a link; nobody acknowledges it."""
    line = CollectorLink()
    try:
        bodies = (message(n % 1000, 1_000_000 * n, n % KEYS) for n in range(sample))
        return line.cost(bodies).up / sample
    finally:
        line.close()


def figures(ours: Mapping[int, float]) -> Iterator[Figure]:
    """`ours`: windows to the bytes of a slice of 1 s on one of our links."""
    each = per_message()
    for count, per_slice in ours.items():
        partials = windows_closing(count) * KEYS
        name = f"{count:,} window{'s' if count > 1 else ''}"
        yield plain(
            f"Disco's design, bytes of {name}",
            partials * each / per_slice,
            "of ours",
            f"avg by {KEYS} keys, windows of 1 to 10 s: {partials:.0f} messages a second of "
            f"{each:.0f} bytes, one for each window and key that closes, measured on {_SAMPLE:,} "
            f"going up; ours {per_slice:.0f} bytes a second, acknowledgements included",
        )
        yield plain(
            f"Disco's design, partials that the root merges, {name}",
            partials / KEYS,
            "of ours",
            f"{partials:.0f} partials of each child a second, ours {KEYS}: one for each slice and "
            f"key, whatever the windows",
        )
