"""Parts of times: hour, month, day of the week; and times cut down to a unit. All in UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from catchment.expression.nodes import Call
from catchment.expression.values import INT, TIME, Value, kind, need, null

_PARTS: dict[str, Callable[[Any], Any]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "day": pc.day,
    "dayofyear": pc.day_of_year,
    "weekofyear": pc.iso_week,
    "dayofweek": lambda v: pc.add(pc.day_of_week(v, week_start=7), 1),
    "weekday": pc.day_of_week,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}


def part(node: Call, args: Sequence[Value]) -> Value:
    """A part of a time, as a whole number."""
    need(node, args, ("time", "date", "null"), "a time")
    if kind(args[0]) == "null":
        return null(INT)
    return pc.cast(_PARTS[node.op](_in_utc(args[0])), INT)


def truncated(node: Call, args: Sequence[Value]) -> Value:
    """date_trunc: the time at which the unit began that a time is in."""
    need(node, args[1:], ("time", "date", "null"), "a time")
    if kind(args[1]) == "null":
        return null(TIME)
    unit: Any = args[0].as_py().lower()
    return pc.floor_temporal(_in_utc(args[1]), unit=unit)


def _in_utc(value: Value) -> Value:
    """A time in UTC; one without a zone is in UTC, and so is the beginning of a day."""
    if kind(value) == "date":
        return pc.cast(value, TIME)
    return pc.cast(value, pa.timestamp(value.type.unit, "UTC"))
