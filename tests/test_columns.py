"""Columns on their way: what is packed comes back bit by bit, and what is cut short is refused."""

from __future__ import annotations

import datetime
import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.engine import columns
from catchment.errors import DataError

WHOLE = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats() | st.integers(-(2**60), 2**60).map(float),
    pa.float32(): st.floats(width=32),
    pa.timestamp("us", "UTC"): st.datetimes().map(lambda t: t.replace(tzinfo=datetime.UTC)),
    pa.date32(): st.dates(),
    pa.string(): st.text(),
}
"""Types of columns, and values of them."""
_REFUSALS = (
    DataError,
    pa.ArrowException,
    LookupError,
    OSError,
    ValueError,
    TypeError,
    struct.error,
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 40))
    found: dict[str, Any] = {}
    for n, kind in enumerate(draw(st.lists(st.sampled_from([*WHOLE]), max_size=4))):
        some = WHOLE[kind] if draw(st.booleans()) else WHOLE[kind] | st.none()
        values = draw(st.lists(some, min_size=rows, max_size=rows))
        found[f"c{n}"] = pa.array(values, kind)
    runs = draw(st.lists(st.lists(st.floats(), max_size=5), min_size=rows, max_size=rows))
    found["runs"] = pa.array([sorted(run) for run in runs], pa.list_(pa.float64()))
    return pa.table(found)


def bits(table: pa.Table) -> list[bytes]:
    """All values, told apart by their bits: NaN is NaN, and a zero may be negative."""
    return [
        np.array(column.combine_chunks().fill_null(0.0)).tobytes()
        if pa.types.is_floating(column.type)
        else repr(column.to_pylist()).encode()
        for column in table.columns
    ]


@given(tables())
def test_what_is_packed_comes_back(table: pa.Table) -> None:
    back = columns.unpack(columns.pack(table), table.schema)
    back.validate(full=True)
    assert back.schema == table.schema
    assert bits(back) == bits(table)


@given(tables(), st.data())
def test_what_is_cut_short_is_refused(table: pa.Table, data: st.DataObject) -> None:
    """By an error of ours, or one of those that a message turns into ours."""
    packed = columns.pack(table)
    cut = packed[: data.draw(st.integers(0, len(packed) - 1))]
    with pytest.raises(_REFUSALS):
        columns.unpack(cut, table.schema)


def test_rows_that_nobody_sent_are_refused() -> None:
    """A column of equal values has no bytes for each row: a few bytes must not become a table that
    fills the memory."""
    packed = columns.pack(pa.table({"v": pa.array([1, 1])}))
    huge = (1 << 31).to_bytes(4, "big") + packed[4:]
    with pytest.raises(DataError, match="not as long"):
        columns.unpack(huge, pa.schema([("v", pa.int64())]))


@pytest.mark.parametrize(
    ("values", "most"),
    [
        ([7] * 1000, 20),
        (list(range(10**15, 10**15 + 3000, 3)), 40),
        ([10**15 + n * 50 + n % 7 for n in range(1000)], 1040),
        ([float(n % 200) for n in range(1000)], 1040),
    ],
)
def test_numbers_take_the_bytes_that_they_need(values: list[Any], most: int) -> None:
    assert len(columns.pack(pa.table({"v": pa.array(values)}))) <= most


def test_zeros_and_what_is_no_number_keep_their_bits() -> None:
    odd = pa.table(
        {"v": pa.array([0.0, -0.0, math.nan, math.inf, -math.inf, 2.0**53, 2.0**53 + 2])}
    )
    assert bits(columns.unpack(columns.pack(odd), odd.schema)) == bits(odd)
