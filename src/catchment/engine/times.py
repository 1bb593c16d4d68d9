"""Event times as microseconds since 1970, UTC, from columns of times, epochs and texts."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.engine.nested import column_at, with_paths
from catchment.errors import DataError, SchemaError, did_you_mean
from catchment.expression import column_in
from catchment.expression.values import is_text
from catchment.model.time_column import TimeColumn, TimeSpec, time_name
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask, one_piece

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400_000_000
FARTHEST = 1 << 60
"""Microseconds from 1970 that a time may be: some 36,500 years."""
TIME = pa.timestamp("us", "UTC")


def check_time(schema: pa.Schema, time: TimeSpec) -> None:
    """Refuses events without a column of times, or of what is to be read as times, of that name."""
    name = time_name(time)
    if name not in schema.names:
        raise SchemaError(
            "the events have no such time column",
            given=name,
            hint=did_you_mean(name, schema.names),
        )
    if schema.names.count(name) > 1:
        raise SchemaError("two columns have one name", given=name, hint="rename one of them")
    kind = schema.field(name).type
    if isinstance(time, TimeColumn):
        _check_readable(kind, time)
    elif not is_time(kind):
        raise SchemaError(
            f"the time column {name!r} is not a time",
            given=str(kind),
            hint=_instead(_plain_type(kind), name),
        )


def _instead(kind: pa.DataType, name: str) -> str:
    """What to say of a time column that is not a time."""
    if _is_number(kind):
        return f"say what it counts since 1970, as in time: {{column: {name}, unit: ms}}"
    if is_text(kind):
        return f'say how it is written, as in time: {{column: {name}, format: "%d/%m/%Y %H:%M"}}'
    return "cast it to a timestamp first, or name another column with time="


def timed_schema(schema: pa.Schema, time: TimeSpec) -> pa.Schema:
    """The columns of events as they are worked on: what is to be read as times is times."""
    schema = with_paths(schema, [time_name(time)])
    check_time(schema, time)
    if not isinstance(time, TimeColumn):
        return schema
    return schema.set(schema.get_field_index(time.column), pa.field(time.column, TIME))


def _check_readable(kind: pa.DataType, time: TimeColumn) -> None:
    word = "unit" if time.unit else "format"
    if is_time(kind):
        raise SchemaError(
            f"the time column {time.column!r} is a time already, and has a {word}",
            given=f"{kind}, {word} {time.unit or time.format}",
            hint=f"leave the {word} out; where a source has guessed the type of texts wrongly, "
            f"say schema: {{{time.column}: string, ...}}",
        )
    plain = _plain_type(kind)
    if is_text(plain) or (time.unit is not None and _is_number(plain)):
        return
    raise SchemaError(
        f"the time column {time.column!r} cannot be read by a {word}",
        given=f"{kind}, {word} {time.unit or time.format}",
        hint="a unit is for numbers and texts of numbers, a format for texts",
    )


def is_time(kind: pa.DataType) -> bool:
    """Whether values of a type are times."""
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def _is_number(kind: pa.DataType) -> bool:
    is_ = pa.types
    return is_.is_integer(kind) or is_.is_floating(kind) or is_.is_decimal(kind)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def with_times(table: pa.Table, time: TimeSpec) -> pa.Table:
    """Events whose time column holds times."""
    name = time_name(time)
    if name not in table.schema.names:
        check_time(with_paths(table.schema, [name]), time)
        table = table.append_column(name, column_at(table, name))
    check_time(table.schema, time)
    if not isinstance(time, TimeColumn):
        return table
    place = table.schema.get_field_index(time.column)
    return table.set_column(place, time.column, read_times(table.column(place), time))


def read_times(column: pa.ChunkedArray[Any], time: TimeColumn) -> pa.ChunkedArray[Any]:
    """Epochs or texts as times; null where a value is none.

    >>> epochs = pa.chunked_array([[0, 1500]])
    >>> read_times(epochs, TimeColumn("t", unit="ms")).cast(pa.int64()).to_pylist()
    [0, 1500000]
    """
    array = one_piece(column)
    if isinstance(array, pa.DictionaryArray):
        made = _read(array.dictionary, time).take(array.indices)
    else:
        made = _read(array, time)
    return pa.chunked_array([made])


def _read(array: pa.Array[Any], time: TimeColumn) -> pa.Array[Any]:
    if time.unit is None:
        assert time.format is not None
        return _parsed(array, time.format)
    if is_text(array.type):
        array = _numbers(array)
    return _epochs(array, _PER_SECOND[time.unit])


def _epochs(array: pa.Array[Any], per: int) -> pa.Array[Any]:
    """Counts since 1970 as times: whole ones exactly, others to the nearest microsecond."""
    good = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_integer(array.type):
        given = array.fill_null(0).to_numpy(zero_copy_only=False)
        most = min(FARTHEST * per // 1_000_000, 1 << 63)
        good = good & (given < most) & (given > -most)
        whole = np.where(good, given, 0).astype(np.int64)
        micros = whole * (1_000_000 // per) if per <= 1_000_000 else whole // (per // 1_000_000)
    else:
        floats = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        scaled = floats * (1_000_000 / per)
        good = good & (np.abs(scaled) < float(FARTHEST))
        micros = np.rint(np.where(good, scaled, 0.0)).astype(np.int64)
    return pa.array(micros, mask=~good).view(TIME)


def _numbers(texts: pa.Array[Any]) -> pa.Array[Any]:
    """Texts as numbers, null where they are none: whole ones, unless one has a fraction."""
    import polars as pl  # here, since to load it takes as long as all the rest

    given = pl.Series(texts).str.strip_chars()
    whole = given.cast(pl.Int64, strict=False)
    if whole.null_count() == given.null_count():
        return whole.to_arrow()
    floats = given.cast(pl.Float64, strict=False)
    return whole.to_arrow() if floats.null_count() == whole.null_count() else floats.to_arrow()


def _parsed(texts: pa.Array[Any], format: str) -> pa.Array[Any]:
    """Texts of a format as times; null where they are of another one."""
    import polars as pl  # here, since to load it takes as long as all the rest

    given = pl.Series("text", texts, dtype=pl.String)
    if "%S,%f" in format:
        # Polars reads a fraction after a dot only.
        given = given.str.replace(r"^(.*),(\d+)", "$1.$2")
    if format.endswith("%z"):
        given = given.str.replace(r"[Zz]$", "+0000")
    for code in ("%S.%f", "%S,%f"):
        format = format.replace(code, "%S%.f")
    if "%M" not in format and ("%H" in format or "%I" in format):
        given, format = given + " 00", format + " %M"
    made = given.str.to_datetime(format, strict=False, time_unit="us")
    return made.to_arrow().cast(TIME)


def times_of(column: pa.ChunkedArray[Any]) -> tuple[Ints, Mask | None]:
    """The times, and where they are good (None: everywhere): not null, nor too far to convert."""
    array = one_piece(column)
    kind = array.type
    good: Mask | None = None
    if array.null_count:
        good = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_date32(kind):
        array, numerator, denominator = array.view(pa.int32()), _DAY, 1
    elif pa.types.is_date64(kind):
        array, numerator, denominator = array.view(pa.int64()), 1_000, 1
    else:
        per = _PER_SECOND[kind.unit]
        array = array.view(pa.int64())
        numerator, denominator = max(1_000_000 // per, 1), max(per // 1_000_000, 1)
    if array.null_count:
        array = array.fill_null(0)
    values = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    if numerator > 1:
        fits = (values > -(FARTHEST // numerator)) & (values < FARTHEST // numerator)
        if not fits.all():
            good = fits if good is None else good & fits
            values = np.where(fits, values, 0)
        return values * numerator, good
    if denominator > 1:
        return values // denominator, good
    return values, good


def out_of_range(values: Ints, ceiling: int = FARTHEST) -> Mask:
    """Microseconds too far from 1970 to reckon with, or later than any event may be."""
    return (values <= -FARTHEST) | (values >= ceiling)


def refuse_bad(table: pa.Table, time: TimeSpec) -> None:
    """Raises DataError when a row has no usable time, before anything is done with any row."""
    if column_in(table.schema.names, time_name(time)) is None:
        return
    times, good = times_of(with_times(table, time).column(time_name(time)))
    bad = out_of_range(times) if good is None else ~good | out_of_range(times)
    if bad.any():
        row = table.slice(int(np.flatnonzero(bad)[0]), 1)
        raise DataError(
            "a row has no usable time",
            given=row.to_string(preview_cols=8)[-200:],
            hint='bad="collect" sets such rows aside and goes on',
        )


def now() -> int:
    """The wall clock, in microseconds."""
    return time.time_ns() // 1000
