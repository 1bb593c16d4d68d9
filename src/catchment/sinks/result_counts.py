"""What results tell of a job, counted by query: rows, corrections, and how late they came.

Tables of results go in (`counts_of_results`); for each query comes out how many rows there were,
how many of them corrected or took back earlier ones, and how long after the end of its window each
came, as counts by bounds of seconds. Figures add up (`ResultCounts`): those of many tasks and
batches become one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0, 86400.0)
"""Seconds, in ascending order. The last count is of all that took longer."""
MOST = 1000
"""Queries that are counted one by one; all others together are `OTHERS`."""
OTHERS = "(others)"


class QueryCounts(Struct, frozen=True):
    """What there was of one query."""

    rows: int = 0
    revisions: int = 0
    """Rows that corrected an earlier one."""
    retracted: int = 0
    """Rows that took an earlier one back."""
    staleness: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    """Rows by the seconds from the end of the window to when they came, by `BOUNDS`."""
    seconds: float = 0.0
    """All these seconds together."""

    def plus(self, other: QueryCounts) -> QueryCounts:
        """Both together."""
        return QueryCounts(
            self.rows + other.rows,
            self.revisions + other.revisions,
            self.retracted + other.retracted,
            tuple(a + b for a, b in zip(self.staleness, other.staleness, strict=True)),
            self.seconds + other.seconds,
        )


def counts_of_results(results: Mapping[str, pa.Table], at: int) -> dict[str, QueryCounts]:
    """What there is of each query in results that come at a moment, in microseconds since 1970.

    >>> ends = pa.array([1_000_000, 3_900_000], pa.timestamp("us", "UTC"))
    >>> results = {"q": pa.table({"window_end": ends, "revision": [0, 1]})}
    >>> found = counts_of_results(results, 4_000_000)["q"]
    >>> found.rows, found.revisions, found.seconds
    (2, 1, 3.1)
    >>> {bound: n for bound, n in zip(BOUNDS, found.staleness) if n}
    {0.1: 1, 5.0: 1}
    """
    found: dict[str, QueryCounts] = {}
    for name, table in results.items():
        if table.num_rows:
            found[name] = _of(table, at)
    return found


def _of(table: pa.Table, at: int) -> QueryCounts:
    names = table.column_names
    late = (at - _ints(table, "window_end")) / 1e6
    places = np.searchsorted(np.array(BOUNDS), late, side="left")
    counts = np.bincount(places, minlength=len(BOUNDS) + 1)
    revised = _ints(table, "revision") > 0 if "revision" in names else _NONE
    retracted = _ints(table, "retracted") > 0 if "retracted" in names else _NONE
    return QueryCounts(
        table.num_rows,
        int(revised.sum()),
        int(retracted.sum()),
        tuple(map(int, counts)),
        float(late.sum()),
    )


_NONE = np.zeros(0, np.bool_)


def _ints(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    found = table[name].combine_chunks().cast(pa.int64())
    return found.to_numpy(zero_copy_only=False)


class ResultCounts:
    """What there was of each query since this process began."""

    def __init__(self) -> None:
        self.by_query: dict[str, QueryCounts] = {}

    def add(self, found: Mapping[str, QueryCounts]) -> None:
        """Adds what came; queries past `MOST` are counted together."""
        for name, one in found.items():
            known = name in self.by_query or len(self.by_query) < MOST
            place = name if known else OTHERS
            self.by_query[place] = self.by_query.get(place, QueryCounts()).plus(one)
