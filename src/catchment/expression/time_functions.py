"""Times as numbers and texts, in other time zones, and moved by a number of units. All in UTC."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catchment.errors import QueryError, did_you_mean
from catchment.expression.arithmetic import arithmetic
from catchment.expression.casting import cast
from catchment.expression.nodes import Call, render
from catchment.expression.values import (
    DATE,
    INT,
    NUMBERS,
    STRING,
    TIME,
    Value,
    convert,
    integer,
    kind,
    need,
    null,
    where,
)

_TIMES = ("time", "date", "null")
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_LENGTHS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": _SECOND,
    "MINUTE": 60 * _SECOND,
    "HOUR": 3_600 * _SECOND,
    "DAY": _DAY,
    "WEEK": 7 * _DAY,
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_QUARTER_HOUR = 900 * _SECOND
_REACH = 253_402_300_800 * _SECOND
"""Behind the last year with four digits: times are moved no further."""
_Ints = np.ndarray[Any, np.dtype[np.int64]]


def _over_numpy(function: Callable[..., _Ints], to: pa.DataType, *values: Value) -> Value:
    """A function of whole numbers over values of which some may be null, as values of a type."""
    scalar = all(isinstance(value, pa.Scalar) for value in values)
    missing: Any = False
    parts = []
    for value in values:
        whole: Any = (
            pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else value
        )
        missing = missing | pc.is_null(whole).to_numpy(zero_copy_only=False)
        parts.append(pc.fill_null(whole, 0).to_numpy(zero_copy_only=False).astype(np.int64))
    found = function(*parts)
    outside = np.abs(found) > _REACH if to == TIME else False
    made: Value = pc.cast(pa.array(found, mask=np.broadcast_to(missing | outside, found.shape)), to)
    return made[0] if scalar else made


def _micros(value: Value) -> Value:
    return pc.cast(pc.cast(convert(value, TIME), TIME), INT)


def _days(value: Value) -> Value:
    day = value if kind(value) == "date" else pc.cast(convert(value, TIME), DATE)
    return pc.cast(pc.cast(pc.cast(day, DATE), pa.int32()), INT)


def since_epoch(node: Call, args: Sequence[Value]) -> Value:
    """unix_seconds, unix_millis and unix_micros: rounded down; unix_timestamp: towards 1970."""
    need(node, args, _TIMES, "a time")
    if kind(args[0]) == "null":
        return null(INT)
    if node.op == "unix_timestamp":
        return _over_numpy(lambda us: _whole_between(us * 0, us, _SECOND), INT, _micros(args[0]))
    length = {"unix_seconds": _SECOND, "unix_millis": 1_000, "unix_micros": 1}[node.op]
    return _over_numpy(lambda micros: micros // length, INT, _micros(args[0]))


def unix_date(node: Call, args: Sequence[Value]) -> Value:
    need(node, args, _TIMES, "a day")
    return null(INT) if kind(args[0]) == "null" else _days(args[0])


def from_epoch(node: Call, args: Sequence[Value]) -> Value:
    """timestamp_seconds, timestamp_millis and timestamp_micros."""
    of = ("int", "null") if node.op != "timestamp_seconds" else NUMBERS
    need(node, args, of, "a number")
    if kind(args[0]) not in ("int", "null"):
        return cast(Call("cast", node.args, "TIMESTAMP"), args)
    length = {"timestamp_seconds": _SECOND, "timestamp_millis": 1_000, "timestamp_micros": 1}
    return _from_units(integer(args[0]), length[node.op])


def _from_units(value: Value, length: int) -> Value:
    most = _REACH // length
    fits = pc.and_(pc.less(value, pa.scalar(most)), pc.greater(value, pa.scalar(-most)))
    return pc.cast(pc.multiply(where(fits, value, null(INT)), pa.scalar(length)), TIME)


# -- texts -----------------------------------------------------------------------------------------

_MONTH_NAMES = ["January", "February", "March", "April", "May", "June", "July", "August"]
_MONTH_NAMES += ["September", "October", "November", "December"]
_DAY_NAMES = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def _named(names: list[str], width: int | None, of: Callable[[Any], Any], first: int) -> Any:
    short = [name[:width] for name in names]
    return lambda value: pa.array(short).take(pc.subtract(of(value), pa.scalar(first)))


def _number(of: Callable[[Any], Any], width: int) -> Any:
    return lambda value: pc.utf8_lpad(pc.cast(of(value), STRING), width, "0")


def _hour_of_twelve(value: Any) -> Any:
    hours = pc.hour(value)
    late = pc.if_else(pc.greater(hours, pa.scalar(12)), pc.subtract(hours, pa.scalar(12)), hours)
    return pc.if_else(pc.equal(hours, pa.scalar(0)), pa.scalar(12, pa.int64()), late)


def _fraction(width: int) -> Any:
    def shown(value: Any) -> Any:
        micros = pc.subtract(
            pc.cast(value, INT), pc.cast(pc.floor_temporal(value, 1, "second"), INT)
        )
        return pc.utf8_slice_codeunits(
            pc.utf8_rpad(pc.utf8_lpad(pc.cast(micros, STRING), 6, "0"), 9, "0"), 0, width
        )

    return shown


_FIELDS: dict[str, Any] = {
    "y": _number(pc.year, 1),
    "yyyy": _number(pc.year, 4),
    "yy": lambda value: pc.utf8_slice_codeunits(_number(pc.year, 4)(value), -2),
    "M": _number(pc.month, 1),
    "MM": _number(pc.month, 2),
    "MMM": _named(_MONTH_NAMES, 3, pc.month, 1),
    "MMMM": _named(_MONTH_NAMES, None, pc.month, 1),
    "d": _number(pc.day, 1),
    "dd": _number(pc.day, 2),
    "D": _number(pc.day_of_year, 1),
    "DDD": _number(pc.day_of_year, 3),
    "E": _named(_DAY_NAMES, 3, pc.day_of_week, 0),
    "EEE": _named(_DAY_NAMES, 3, pc.day_of_week, 0),
    "EEEE": _named(_DAY_NAMES, None, pc.day_of_week, 0),
    "Q": _number(pc.quarter, 1),
    "H": _number(pc.hour, 1),
    "HH": _number(pc.hour, 2),
    "h": _number(_hour_of_twelve, 1),
    "hh": _number(_hour_of_twelve, 2),
    "m": _number(pc.minute, 1),
    "mm": _number(pc.minute, 2),
    "s": _number(pc.second, 1),
    "ss": _number(pc.second, 2),
    "a": lambda value: pc.if_else(pc.less(pc.hour(value), pa.scalar(12)), "AM", "PM"),
    **{"S" * width: _fraction(width) for width in range(1, 7)},
}
"""What runs of letters in a format stand for, as in Java."""
_FIELDS["u"], _FIELDS["uuuu"] = _FIELDS["y"], _FIELDS["yyyy"]


@lru_cache(maxsize=1024)
def _format(text: str) -> tuple[tuple[str, bool], ...] | str:
    """The parts of a format, and whether each is a field; what is none, where something is not."""
    parts: list[tuple[str, bool]] = []
    place = 0
    while place < len(text):
        char = text[place]
        end = place + 1
        if char == "'":
            end = text.find("'", place + 1) + 1
            if not end:
                return text[place:]
            parts.append((text[place + 1 : end - 1] or "'", False))
        elif char.isascii() and char.isalpha():
            while end < len(text) and text[end] == char:
                end += 1
            if text[place:end] not in _FIELDS:
                return text[place:end]
            parts.append((text[place:end], True))
        else:
            parts.append((char, False))
        place = end
    return tuple(parts)


def formatted(node: Call, args: Sequence[Value]) -> Value:
    """date_format, in Java's letters: 'yyyy-MM-dd HH:mm'."""
    need(node, args[:1], _TIMES, "a time")
    parts = _format(args[1].as_py())
    if isinstance(parts, str):
        raise QueryError(
            "a format of times has what is not supported",
            given=f"{parts} in {render(node)}",
            hint=f"supported are {' '.join(_FIELDS)}; other letters stand in '...'",
        )
    value = args[0]
    if kind(value) == "null":
        return null(STRING)
    scalar = isinstance(value, pa.Scalar)
    plain: Any = pa.array([value.as_py()], value.type) if scalar else value
    plain = pc.cast(convert(plain, TIME), TIME)
    texts = [
        pc.cast(_FIELDS[part](plain), STRING) if is_field else pa.scalar(part)
        for part, is_field in parts
    ]
    missing = pc.is_null(plain)
    made: Value = pc.binary_join_element_wise(
        pc.if_else(missing, null(STRING), pa.scalar("")), *texts, pa.scalar("")
    )
    return made[0] if scalar else made


def from_seconds(node: Call, args: Sequence[Value]) -> Value:
    """from_unixtime: seconds since 1970 as a text."""
    need(node, args[:1], ("int", "null"), "a whole number")
    moments = _from_units(integer(args[0]), _SECOND)
    form = args[1] if len(args) > 1 else pa.scalar("yyyy-MM-dd HH:mm:ss")
    return formatted(node, [moments, form])


# -- zones -----------------------------------------------------------------------------------------


def in_zone(node: Call, args: Sequence[Value]) -> Value:
    """from_utc_timestamp: what clocks of a zone show, as if it were UTC; to_utc_timestamp: back."""
    need(node, args[:1], _TIMES, "a time")
    zone = _zone(node, args[1].as_py())
    if kind(args[0]) == "null":
        return null(TIME)
    sign = 1 if node.op == "from_utc_timestamp" else -1
    read = _after_utc if sign > 0 else _after_local
    return _over_numpy(
        lambda micros: micros + sign * _offsets(micros, zone, read), TIME, _micros(args[0])
    )


@lru_cache(maxsize=64)
def _known_zone(name: str) -> zoneinfo.ZoneInfo | None:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _zone(node: Call, name: str) -> zoneinfo.ZoneInfo:
    found = _known_zone(name)
    if found is None:
        near = did_you_mean(name, sorted(zoneinfo.available_timezones()), "write Europe/Berlin")
        raise QueryError("no such time zone", given=f"{name} in {render(node)}", hint=near)
    return found


_EPOCH = datetime(1970, 1, 1)


def _after_utc(micros: int, zone: zoneinfo.ZoneInfo) -> int:
    moment = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=UTC).astimezone(zone)
    offset = moment.utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)


def _after_local(micros: int, zone: zoneinfo.ZoneInfo) -> int:
    offset = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=zone).utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)


_Offset = Callable[[int, zoneinfo.ZoneInfo], int]
_LEAST, _LATEST = -62_135_510_400 * _SECOND, 253_402_214_400 * _SECOND
"""A day behind the first and before the last moment that Python has."""


def _offsets(micros: _Ints, zone: zoneinfo.ZoneInfo, read: _Offset) -> _Ints:
    """What clocks are ahead of UTC: once for each quarter of an hour in which that is the same."""
    inside = np.clip(micros, _LEAST, _LATEST - _QUARTER_HOUR)
    quarters, place = np.unique(inside // _QUARTER_HOUR, return_inverse=True)
    begins = np.array([read(int(q) * _QUARTER_HOUR, zone) for q in quarters], np.int64)
    ends = np.array([read(int(q + 1) * _QUARTER_HOUR - 1, zone) for q in quarters], np.int64)
    made: _Ints = begins[place]
    for row in np.flatnonzero((begins != ends)[place]):
        made[row] = read(int(inside[row]), zone)
    return made


# -- moving ----------------------------------------------------------------------------------------


def moved(node: Call, args: Sequence[Value]) -> Value:
    """timestampadd and + INTERVAL: a time moved by a number of units; months keep the day."""
    unit, count, value = args[0].as_py(), args[1], args[2]
    need(node, [count], ("int", "null"), "a whole number of units")
    need(node, [value], _TIMES, "a time")
    if "null" in (kind(count), kind(value)):
        return null(TIME)
    stays = node.op == "plus_interval" and kind(value) == "date" and _of_days(unit)
    made = _over_numpy(_moving(unit), TIME, _micros(value), integer(count))
    return pc.cast(made, DATE) if stays else made


def _of_days(unit: str) -> bool:
    return unit in _MONTHS or unit in ("DAY", "WEEK")


def _moving(unit: str) -> Callable[[_Ints, _Ints], _Ints]:
    if unit in _MONTHS:
        return lambda micros, count: _by_months(micros, _clipped(count, _MONTHS[unit]))
    return lambda micros, count: micros + _clipped(count, _LENGTHS[unit])


def _clipped(count: _Ints, length: int) -> _Ints:
    """So many units, at most as many as lead behind all times."""
    most = 2 * _REACH // length if length >= 1000 or length == 1 else 300_000
    return np.clip(count, -most, most) * length


def _by_months(micros: _Ints, months: _Ints) -> _Ints:
    days, within = np.divmod(micros, _DAY)
    dates = days.astype("datetime64[D]")
    month = dates.astype("datetime64[M]")
    day = (dates - month.astype("datetime64[D]")).astype(np.int64)
    after = month + months.astype("timedelta64[M]")
    first = after.astype("datetime64[D]").astype(np.int64)
    length = (after + 1).astype("datetime64[D]").astype(np.int64) - first
    made: _Ints = (first + np.minimum(day, length - 1)) * _DAY + within
    return made


def days_moved(node: Call, args: Sequence[Value]) -> Value:
    """date_add and date_sub: a day so many days later or earlier."""
    need(node, args[:1], _TIMES, "a day")
    need(node, args[1:], ("int", "null"), "a whole number of days")
    if "null" in (kind(args[0]), kind(args[1])):
        return null(DATE)
    sign = 1 if node.op == "date_add" else -1
    made = _over_numpy(
        lambda days, count: (days + sign * _clipped(count, _DAY) // _DAY) * _DAY,
        TIME,
        _days(args[0]),
        integer(args[1]),
    )
    return pc.cast(made, DATE)


def added(node: Call, args: Sequence[Value]) -> Value:
    """+ and -: of a day and a whole number, so many days later or earlier; else, of numbers."""
    kinds = [kind(arg) for arg in args]
    if kinds == ["int", "date"] and node.op == "+":
        args, kinds = args[::-1], kinds[::-1]
    if kinds != ["date", "int"]:
        return arithmetic(node, args)
    return days_moved(Call("date_add" if node.op == "+" else "date_sub", node.args), args)


def last_day(node: Call, args: Sequence[Value]) -> Value:
    """The last day of the month."""
    need(node, args, _TIMES, "a day")
    if kind(args[0]) == "null":
        return null(DATE)

    def last(days: _Ints) -> _Ints:
        after = days.astype("datetime64[D]").astype("datetime64[M]") + 1
        return (after.astype("datetime64[D]").astype(np.int64) - 1) * _DAY

    return pc.cast(_over_numpy(last, TIME, _days(args[0])), DATE)


def days_between(node: Call, args: Sequence[Value]) -> Value:
    """datediff(end, begin): days from one to the other."""
    need(node, args, _TIMES, "days")
    if "null" in (kind(args[0]), kind(args[1])):
        return null(INT)
    return pc.subtract(_days(args[0]), _days(args[1]))


def difference(node: Call, args: Sequence[Value]) -> Value:
    """timestampdiff: whole units from one time to another."""
    need(node, args[1:], _TIMES, "times")
    if "null" in (kind(args[1]), kind(args[2])):
        return null(INT)
    unit = args[0].as_py()
    between = _months_between if unit in _MONTHS else _whole_between
    length = _MONTHS.get(unit) or _LENGTHS[unit]
    return _over_numpy(
        lambda begin, end: between(begin, end, length), INT, _micros(args[1]), _micros(args[2])
    )


def _whole_between(begin: _Ints, end: _Ints, length: int) -> _Ints:
    apart = end - begin
    units: _Ints = np.sign(apart) * (np.abs(apart) // length)
    return units


def _months_between(begin: _Ints, end: _Ints, length: int) -> _Ints:
    (first, of_first), (last, of_last) = _month_of(begin), _month_of(end)
    months = last - first
    months = months - ((months > 0) & (of_last < of_first)) + ((months < 0) & (of_last > of_first))
    units: _Ints = np.sign(months) * (np.abs(months) // length)
    return units


def _month_of(micros: _Ints) -> tuple[_Ints, _Ints]:
    """The number of a month, and what of it has passed."""
    month = (micros // _DAY).astype("datetime64[D]").astype("datetime64[M]")
    began = month.astype("datetime64[D]").astype(np.int64) * _DAY
    return month.astype(np.int64), micros - began


def made_date(node: Call, args: Sequence[Value]) -> Value:
    """make_date(year, month, day); null where there is no such day."""
    need(node, args, ("int", "null"), "whole numbers")
    year, month, day = (integer(arg) for arg in args)
    fits: Any = pc.and_(pc.greater_equal(year, pa.scalar(1)), pc.less(year, pa.scalar(10_000)))
    fits = pc.and_(fits, pc.is_in(month, value_set=pa.array(range(1, 13), INT)))
    fits = pc.and_(fits, pc.is_in(day, value_set=pa.array(range(1, 32), INT)))

    def began(year: _Ints, month: _Ints, day: _Ints) -> _Ints:
        first = ((year - 1970) * 12 + month - 1).astype("datetime64[M]").astype("datetime64[D]")
        return (first.astype(np.int64) + day - 1) * _DAY

    there = [where(fits, arg, null(INT)) for arg in (year, month, day)]
    made: Any = pc.cast(_over_numpy(began, TIME, *there), DATE)
    # A day behind the last one of its month is in the next.
    return where(pc.equal(pc.month(made), there[1]), made, null(DATE))
