"""Small tables of events, and the rows of results, for tests that write both out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import Phase, settings

import catchment as ct
from catchment.testing.compare import rows_of

SECOND = 1_000_000
SOAK = "CATCHMENT_EXAMPLES" in os.environ


def examples(share: float) -> settings:
    """A share of the usual number of examples: always the same ones, and as they come.

    With CATCHMENT_EXAMPLES set they are random, and one that fails is made small.
    """
    usual = settings.default or settings()
    number = max(10, int(usual.max_examples * share))
    if SOAK:
        return settings(max_examples=number)
    return settings(max_examples=number, derandomize=True, phases=(Phase.explicit, Phase.generate))


_BOUNDS = ("window_start", "window_end", "window_index")


def table(times: Sequence[int | None], **columns: Any) -> pa.Table:
    """Events at these microseconds."""
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), **columns})


def seconds(times: Sequence[float], **columns: Any) -> pa.Table:
    """Events at these seconds."""
    return table([round(time * SECOND) for time in times], **columns)


def values(results: Mapping[str, pa.Table], name: str) -> list[tuple[Any, ...]]:
    """The rows of a query without the window's bounds, keys and aggregates alone."""
    shown = results[name]
    return [
        tuple(value for column, value in row.items() if column not in _BOUNDS)
        for row in rows_of(shown)
    ]


def starts(results: Mapping[str, pa.Table], name: str) -> list[int]:
    """The starts of a query's windows in microseconds, in order."""
    return sorted(row["window_start"] for row in rows_of(results[name]))


def everything(queries: Sequence[ct.Query], *tables: pa.Table, **settings: Any) -> ct.Results:
    """What the queries give at the end of this input."""
    engine = ct.Engine(queries, **settings)
    for events in tables:
        engine.push(events)
    return engine.close()
