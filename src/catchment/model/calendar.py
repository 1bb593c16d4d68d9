"""Days and months of a time zone, as numbered points in time.

The days of a zone are numbered from 1970-01-01, its months from January 1970. A day or month begins
at the first instant at which the clocks of the zone show its first moment, or a later one:

* where clocks are put forward over midnight, it begins as they are put forward;
* where they are put back over midnight, it begins when they show midnight for the first time;
* a day that a zone leaves out (2011-12-30 in Pacific/Apia) begins with the next one, so it is
  empty.

So days follow each other without a gap, and each instant is in one. Java and Spark take the start
of a day alike (`LocalDate.atStartOfDay`).

What a clock shows is asked of `zoneinfo`, point by point, and kept in blocks: some hundred points
around those that are asked for. The rules are those of the package tzdata, whatever the machine has
of its own: processes with one version of it agree. Beyond the years that `datetime` knows, the
rules of the same year of another 400 years hold, after which the Gregorian calendar repeats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np

from catchment.errors import QueryError, did_you_mean
from catchment.model.arrays import Ints
from catchment.model.scale import Scale

Unit = Literal["day", "month"]

DAY = 86_400_000_000
"""Microseconds of a day by the clock, on most days."""
_PACES = {"day": float(DAY), "month": DAY * 30.436875}
_LONGEST_DAYS = {"day": 1, "month": 31}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")
_BLOCK = 256
"""Points that are worked out together."""
_BLOCKS = 4096
"""Blocks that are kept, of all zones together."""
_AROUND = np.arange(-3, 4, dtype=np.int64)
"""A clock is less than two days from UTC, and a day may begin almost a day after midnight."""
_SECOND = 1_000_000
_CYCLE = 146_097 * DAY
"""The length of 400 years, after which the calendar repeats."""
_EPOCH = datetime(1970, 1, 1)
_LOWEST = (datetime(3, 1, 1) - _EPOCH) // timedelta(microseconds=1)
_HIGHEST = (datetime(9997, 1, 1) - _EPOCH) // timedelta(microseconds=1)
_FARTHEST = 1 << 62


@lru_cache(maxsize=1024)
def time_zone(name: str) -> ZoneInfo:
    """The time zone of an IANA name."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        rules = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
        try:
            with rules.open("rb") as file:
                return ZoneInfo.from_file(file, key=name)
        except (OSError, ValueError):
            pass
    raise QueryError("no such time zone", given=repr(name), hint=_hint(str(name)))


def _hint(name: str) -> str:
    known = zone_names()
    alike = [zone for zone in known if zone.lower() == name.strip().lower()]
    if alike:
        return f"write {alike[0]}"
    if re.fullmatch(r"(UTC|GMT)?[+-]\d{1,2}(:?\d{2})?", name.strip(), re.IGNORECASE):
        return "name a place, as in Europe/Berlin; Etc/GMT-2 is always 2 h ahead of UTC"
    return did_you_mean(name, known, "name a place, as in Europe/Berlin or UTC")


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """All time zones there are, in order."""
    return tuple(sorted(resources.files("tzdata").joinpath("zones").read_text().split()))


@dataclass(frozen=True, slots=True)
class Calendar(Scale):
    """The days or months of a time zone, each from `shift` microseconds by the clock after its
    first moment on."""

    unit: Unit
    zone: str
    shift: int = 0

    def times(self, numbers: Ints) -> Ints:
        numbers = np.asarray(numbers, np.int64)
        block = numbers // _BLOCK
        if not numbers.size:
            return numbers
        low, high = int(block.min()), int(block.max())
        if low == high:
            return _block(self, low)[numbers - low * _BLOCK]
        needed, which = np.unique(block, return_inverse=True)
        blocks = np.stack([_block(self, number) for number in needed.tolist()])
        found: Ints = blocks[which.reshape(block.shape), numbers - block * _BLOCK]
        return found

    def numbers(self, times: Ints) -> Ints:
        times = np.asarray(times, np.int64)
        if times.size == 1:  # a frontier
            time = min(max(times.item(), -_FARTHEST), _FARTHEST)
            return np.full(times.shape, _number_at(self, time), np.int64)
        times = np.clip(times, -_FARTHEST, _FARTHEST)
        guess = _number(self.unit, times)[..., None] + _AROUND
        begun = self.times(guess) <= times[..., None]
        found: Ints = guess[..., 0] + np.count_nonzero(begun, axis=-1) - 1
        return found

    @property
    def pace(self) -> float:
        return _PACES[self.unit]

    def reach(self, points: int) -> int:
        """Clocks are put back by a day at most, where the date line moved, besides summer time."""
        return (points * _LONGEST_DAYS[self.unit] + 2) * DAY

    @property
    def grain(self) -> int:
        """Clocks differ from UTC by whole seconds."""
        return _SECOND if self.shift % _SECOND == 0 else 1


def _number(unit: Unit, times: Ints) -> Ints:
    """The number of the day or month in UTC."""
    if unit == "day":
        return times // DAY
    return times.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)


@lru_cache(maxsize=_BLOCKS)
def _number_at(calendar: Calendar, time: int) -> int:
    """The number of the last point by one time, without arrays around it."""
    about = time // DAY
    if calendar.unit == "month":
        about = int(_number("month", np.array([time]))[0])
    number = about + 3
    while _point(calendar, number) > time:
        number -= 1
    return number


def _point(calendar: Calendar, number: int) -> int:
    block, place = divmod(number, _BLOCK)
    return int(_block(calendar, block)[place])


def _midnight(unit: Unit, numbers: Ints) -> Ints:
    """What the clock shows as days or months begin, in microseconds since 1970 by the clock."""
    if unit == "day":
        return numbers * DAY
    return numbers.astype("datetime64[M]").astype("datetime64[us]").astype(np.int64)


@lru_cache(maxsize=_BLOCKS)
def _block(calendar: Calendar, block: int) -> Ints:
    """The points that are numbered from `block * _BLOCK` on."""
    numbers = np.arange(block * _BLOCK, (block + 1) * _BLOCK, dtype=np.int64)
    zone = time_zone(calendar.zone)
    shown = (_midnight(calendar.unit, numbers) + calendar.shift).tolist()
    found: Ints = np.array([_first_shown(zone, clock) for clock in shown], np.int64)
    found.flags.writeable = False
    return found


def _first_shown(zone: ZoneInfo, clock: int) -> int:
    """The first instant at which the clocks of a zone show a time or a later one."""
    cycles = 0
    if not _LOWEST <= clock <= _HIGHEST:
        cycles = (clock - (_LOWEST if clock < _LOWEST else _HIGHEST - _CYCLE)) // _CYCLE
        clock -= cycles * _CYCLE
    shown = _EPOCH + timedelta(0, 0, clock)
    before, after = _micros(zone, shown), _micros(zone, shown.replace(fold=1))
    found = clock - before
    if before < after:  # no clock shows it: they are put forward between two instants
        found = _change(zone, clock - after, found)
    return found + cycles * _CYCLE


def _micros(zone: ZoneInfo, shown: datetime) -> int:
    """How far clocks are ahead of UTC when they show a time."""
    ahead = zone.utcoffset(shown)
    assert ahead is not None
    return (ahead.days * 86_400 + ahead.seconds) * _SECOND


def _change(zone: ZoneInfo, low: int, high: int) -> int:
    """When clocks are put forward, by an instant before it and one at or after it."""
    until = _ahead(zone, high)
    while high - low > 1:
        middle = (low + high) // 2
        if _ahead(zone, middle) == until:
            high = middle
        else:
            low = middle
    return high


def _ahead(zone: ZoneInfo, time: int) -> timedelta | None:
    """How far clocks are ahead of UTC at an instant."""
    instant = _EPOCH.replace(tzinfo=UTC) + timedelta(0, 0, time)
    return instant.astimezone(zone).utcoffset()
