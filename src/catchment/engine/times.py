"""Event times as microseconds since 1970, UTC."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from catchment.errors import DataError
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask, one_piece

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY = 86_400_000_000
FARTHEST = 1 << 60
"""Microseconds from 1970 that a time may be: some 36,500 years."""


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


def refuse_bad(table: pa.Table, column: str) -> None:
    """Raises DataError when a row has no usable time, before anything is done with any row."""
    if column not in table.schema.names:
        return
    times, good = times_of(table.column(column))
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
