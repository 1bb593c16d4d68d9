"""Where slices are cut, as Spark SQL over the time in microseconds, and where each ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql.types import DataType, DateType, TimestampNTZType, TimestampType

from catchment.engine.times import FARTHEST
from catchment.model.duration import show
from catchment.model.window import Window
from catchment.operators.ragged import Ints
from catchment.planner.cost import edges_of
from catchment.planner.edges import EARLIEST, LATEST

_DAY = 86_400_000_000
_FINER = 2
"""How many times the edges there are a grid may have, for each series whose division it saves."""
_MOST = 12
"""Series of edges, and single edges, that are worth working out for each event."""


@dataclass(frozen=True)
class Cuts:
    """All edges `offset + k * slide` of some series, and single points."""

    series: tuple[tuple[int, int], ...]
    points: tuple[int, ...]

    @property
    def few(self) -> bool:
        return len(self.series) <= _MOST and len(self.points) <= _MOST

    def describe(self) -> str:
        if len(self.series) == 1 and not self.points:
            return f"slices of {show(self.series[0][0])}"
        return f"slices between {len(self.series)} series of edges and {len(self.points)} points"

    def start(self, time: str) -> str:
        """The last edge at or before a time, which must not be null."""
        found = [f"{time} - pmod({time} - {offset}L, {slide}L)" for slide, offset in self.series]
        if self.points or not found:
            cases = "".join(f"WHEN {time} >= {p}L THEN {p}L " for p in sorted(self.points)[::-1])
            found.append(f"CASE {cases}ELSE {EARLIEST}L END" if cases else f"{EARLIEST}L")
        return found[0] if len(found) == 1 else f"greatest({', '.join(found)})"

    def ends(self, starts: Ints) -> Ints:
        """The first edge after each of these starts."""
        ends = np.full(len(starts), LATEST, np.int64)
        for slide, offset in self.series:
            ends = np.minimum(ends, starts - (starts - offset) % slide + slide)
        if self.points:
            points = np.append(np.array(sorted(self.points), np.int64), LATEST)
            ends = np.minimum(ends, points[np.searchsorted(points, starts, side="right")])
        return ends


def cuts_of(windows: Sequence[Window]) -> Cuts:
    """The edges that these windows need; slices may be cut finer, where that costs less."""
    edges = edges_of(windows)
    series = set(zip(edges.slides.tolist(), edges.offsets.tolist(), strict=True))
    kept = [one for one in series if not any(_holds(other, one) for other in series - {one})]
    return Cuts(_on_a_grid(sorted(kept), edges.rate), tuple(edges.points.tolist()))


def _holds(other: tuple[int, int], one: tuple[int, int]) -> bool:
    """Whether every edge of the one series is an edge of the other."""
    return one[0] % other[0] == 0 and (one[1] - other[1]) % other[0] == 0


def _on_a_grid(series: list[tuple[int, int]], rate: float) -> tuple[tuple[int, int], ...]:
    if len(series) < 2:
        return tuple(series)
    base = series[0][1]
    unit = math.gcd(*(slide for slide, _ in series), *(offset - base for _, offset in series))
    fine = 1e6 / unit > _FINER * len(series) * rate
    return tuple(series) if fine else ((unit, base % unit),)


def micros_of(column: str, kind: DataType) -> str | None:
    """A time in microseconds since 1970, as the engine reads it; None for what is no time."""
    if isinstance(kind, TimestampType):
        return f"unix_micros({column})"
    if isinstance(kind, TimestampNTZType):
        # It is taken as UTC, in every session: others may have no such hour. Spark knows which
        # branch it is before it runs.
        since = f"CAST(({column} - TIMESTAMP_NTZ '1970-01-01 00:00:00') AS DECIMAL(20, 6))"
        return (
            f"IF(current_timezone() = 'UTC', unix_micros(CAST({column} AS TIMESTAMP)), "
            f"CAST({since} * 1000000 AS BIGINT))"
        )
    if isinstance(kind, DateType):
        return f"try_multiply(CAST(unix_date({column}) AS BIGINT), {_DAY}L)"
    return None


def reach_of(kind: DataType) -> int:
    """How far from 1970 a time of this type may be to be reckoned with, in microseconds."""
    return FARTHEST // _DAY * _DAY if isinstance(kind, DateType) else FARTHEST
