"""Bytes, and bytes a second, as people write them."""

from __future__ import annotations

import math
import re

from catchment.errors import JobError

_SIZES = {
    "b": 1,
    "byte": 1,
    "bytes": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_TIMES = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86400,
    "day": 86400,
    "month": 30 * 86400,
}
_RATE = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)\s*/\s*([a-z]+)\s*$")
_EXAMPLE = 'write as in "1 MB/h", "200 kB/s" or "500 MB/day"'


def rate(value: object, what: str) -> float:
    """Bytes a second.

    >>> rate("1 MB/h", "budget"), rate("64 KiB/s", "bandwidth")
    (277.77777777777777, 65536.0)
    """
    found = _RATE.match(value.lower()) if isinstance(value, str) else None
    if found is None or found[2] not in _SIZES or found[3] not in _TIMES:
        raise JobError(
            f"the {what} is not an amount of bytes in a time", given=repr(value), hint=_EXAMPLE
        )
    number = float(found[1]) * _SIZES[found[2]] / _TIMES[found[3]]
    if not number > 0 or math.isinf(number):
        raise JobError(f"the {what} must be more than nothing", given=value, hint=_EXAMPLE)
    return number


def shown(bytes_per_second: float) -> str:
    """A rate as people read it.

    >>> shown(1_250_000), shown(12.0), shown(float("inf"))
    ('1.25 MB/s', '12 B/s', 'unlimited')
    """
    if math.isinf(bytes_per_second):
        return "unlimited"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_per_second >= size:
            return f"{bytes_per_second / size:.3g} {unit}/s"
    return f"{bytes_per_second:.3g} B/s"
