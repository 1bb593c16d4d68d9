"""Rows for fewer keys, merged from rows of the finest keys: ROLLUP, CUBE and GROUPING SETS.

Rows of complete windows go in, each of one window and combination of all keys. For each set of keys
come out the rows that stand for its groups, and their merged fields. A set is merged from the
smallest one above it that is there already, so that of a cube most sets cost little:

    (a, b, c)  50,000 rows  -->  (a, b)  10,000 rows  -->  (a)  1,000 rows  -->  ()  60 rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from catchment.engine.keys import distinct, encode
from catchment.engine.rows import Operators, merge_fields
from catchment.errors import LimitError
from catchment.model.capacity import machine_memory
from catchment.operators import Grouping
from catchment.operators.ragged import Field, Ints

_BYTES_A_ROW = 512
"""What a row takes until it is delivered, with its keys and fields; a round figure."""


class Subtotals(NamedTuple):
    """The groups of a set of keys: for each, one of its rows of the finest keys, and its fields."""

    rows: Ints
    fields: Mapping[str, Field]


def subtotals(
    bounds: Sequence[Ints],
    keys: Sequence[pa.Array[Any]],
    fields: Mapping[str, Field],
    operators: Operators,
    sets: Sequence[tuple[int, ...]],
) -> list[Subtotals]:
    """What there is for each of the sets, which are places of keys; rows of one window agree in
    all of `bounds`."""
    n = len(bounds[0])
    windows = np.zeros(n, np.int64)
    for bound in bounds:
        values, place = np.unique(bound, return_inverse=True)
        windows = _joined(windows, place.astype(np.int64, copy=False), len(values))
    encoded = [encode([column]) for column in keys]
    found = {frozenset(range(len(keys))): Subtotals(np.arange(n, dtype=np.int64), fields)}
    for places in sorted(sets, key=len, reverse=True):
        wanted = frozenset(places)
        if wanted in found:
            continue
        above = min((s for s in found if s > wanted), key=lambda some: len(found[some].rows))
        finer = found[above]
        codes = windows[finer.rows]
        for number in sorted(wanted):
            own = encoded[number].codes
            assert own is not None
            codes = _joined(codes, own[finer.rows], encoded[number].count)
        found[wanted] = _merged(finer, codes, operators)
        _bounded(sum(len(some.rows) for some in found.values()))
    return [found[frozenset(places)] for places in sets]


def _bounded(rows: int) -> None:
    """Refuses more rows than the machine's memory holds."""
    most = machine_memory() // _BYTES_A_ROW
    if rows > most:
        raise LimitError(
            "the subtotals of one step have more rows than memory has room for",
            given=f"{rows:,} rows, at most {most:,}",
            hint="list fewer sets of keys, or keys with fewer values",
        )


def _joined(codes: Ints, more: Ints, count: int) -> Ints:
    """Small numbers for pairs of numbers, in order of the pairs."""
    return distinct(codes * max(count, 1) + more)[1]


def _merged(finer: Subtotals, codes: Ints, operators: Operators) -> Subtotals:
    """One row for each code."""
    present, place = distinct(codes)
    if len(present) == len(codes):  # nothing to merge
        return finer
    first = np.empty(len(present), np.int64)
    first[place[::-1]] = np.arange(len(place), dtype=np.int64)[::-1]
    merged = merge_fields(finer.fields, Grouping(place, len(present)), operators)
    return Subtotals(finer.rows[first], merged)
