"""The time column of events: its name, and how values are read that are no times yet.

Wherever a user names the time column, a name alone means a column of timestamps or dates. Epochs
and texts need one word more: a unit, or a format of `strptime`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from msgspec import Struct

from catchment.errors import QueryError, did_you_mean
from catchment.model.settings import column_name, one_of

EpochUnit = Literal["s", "ms", "us", "ns"]
UNITS: tuple[EpochUnit, ...] = get_args(EpochUnit)
DIRECTIVES = "YymdjbBaAHIMSfpz%"
"""The letters that a format may have after %, with the meanings of Python's strptime."""
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_EXAMPLE = 'as in "%d/%b/%Y:%H:%M:%S %z"'


class TimeColumn(Struct, frozen=True):
    """A time column that holds epochs or texts: `column` is its name.

    `unit` says what numbers count since 1970: `s`, `ms`, `us` or `ns`. `format` says how texts are
    written, with the codes of Python's `strptime`; times without an offset (%z) are UTC. Of both,
    one is given. A value that cannot be read so is a row without a usable time.

        ct.run(events, queries, time=ct.TimeColumn("epoch", unit="ms"))
        ct.Engine(queries, time=ct.TimeColumn("when", format="%d/%b/%Y:%H:%M:%S %z"))

    Whoever takes a time column raises QueryError for a unit or format that there is not.
    """

    column: str
    unit: EpochUnit | None = None
    format: str | None = None

    def __str__(self) -> str:
        return f"{self.column} in {self.unit or self.format}"


TimeSpec = str | TimeColumn
"""What is told of the time column: the name of a column of times, or how others are read."""


def time_spec(given: TimeSpec | Mapping[str, Any]) -> TimeSpec:
    """What a user said of the time column, checked.

    >>> time_spec({"column": "epoch", "unit": "ms"})
    TimeColumn(column='epoch', unit='ms', format=None)
    >>> time_spec("ts"), time_spec({"column": "ts"})
    ('ts', 'ts')
    """
    if isinstance(given, Mapping):
        keys = ("column", "unit", "format")
        for key in given:
            if key not in keys:
                hint = did_you_mean(str(key), keys)
                raise QueryError("no such setting of the time column", given=key, hint=hint)
        given = TimeColumn(given.get("column", ""), given.get("unit"), given.get("format"))
    if not isinstance(given, TimeColumn):
        return column_name(given, "time column")
    name = column_name(given.column, "time column")
    if given.unit is not None and given.format is not None:
        raise QueryError(
            "the time column has a unit and a format",
            given=f"{given.unit} and {given.format}",
            hint="numbers have a unit, texts a format: leave out one of them",
        )
    if given.unit is not None:
        one_of(given.unit, UNITS, "the unit of times")
        return given
    if given.format is None:
        return name
    _check_format(given.format)
    return given


def time_name(time: TimeSpec) -> str:
    """The name of the time column."""
    return time.column if isinstance(time, TimeColumn) else time


def _check_format(text: str) -> None:
    """Refuses a format that names no day, or what cannot be read."""
    if not isinstance(text, str):
        raise QueryError("the format of times is not a text", given=repr(text), hint=_EXAMPLE)
    codes = _DIRECTIVE.findall(text)
    for code in codes:
        if not code or code not in DIRECTIVES:
            known = ", ".join(f"%{one}" for one in DIRECTIVES)
            raise QueryError(
                "the format of times has a code that is not known",
                given=f"%{code} in {text!r}",
                hint=f"known are {known}, as Python's strptime has them",
            )
    found = set(codes)
    day = "j" in found or ("d" in found and found & {"m", "b", "B"})
    if not (found & {"Y", "y"} and day):
        raise QueryError(
            "the format of times names no day",
            given=repr(text),
            hint=f"it has a year, a month and a day, {_EXAMPLE}",
        )
    if "M" in found and not found & {"H", "I"}:
        raise QueryError(
            "the format of times has minutes without an hour", given=repr(text), hint=_EXAMPLE
        )
    before = [text[: at.start()] for at in _DIRECTIVE.finditer(text) if at[1] == "f"]
    if before and not (len(before) == 1 and before[0].endswith(("%S.", "%S,"))):
        raise QueryError(
            "the format of times has a fraction that does not follow the seconds",
            given=repr(text),
            hint="write it as %S.%f or %S,%f",
        )
