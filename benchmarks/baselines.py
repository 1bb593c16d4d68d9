"""What others do (paper 000, section 6.1): buffers, buckets, and slices shared within a function.

They work over the same Arrow columns as the engine, a batch at a time in NumPy, for tumbling
windows; results are plain arrays, which is less than the engine's users get.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.accumulators import Accumulator, accumulator
from catchment.errors import QueryError
from catchment.model.query import Query

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Rows = slice | Ints
Function = tuple[str, tuple[Any, ...]]
"""A function's name and parameters: quantiles of two shares are two functions."""


class Columns(NamedTuple):
    """A batch: times in microseconds, keys that are small numbers, values."""

    times: Ints
    keys: Ints
    values: Floats
    in_order: bool


class Answer(NamedTuple):
    """A complete window of a query: the keys that have events, and each one's result."""

    query: str
    start: int
    end: int
    keys: Ints
    values: Floats


class Tumble(NamedTuple):
    """A query as the baselines see it."""

    name: str
    function: Function
    length: int
    offset: int

    def start(self, number: int) -> int:
        return self.offset + number * self.length

    def number(self, time: int) -> int:
        return (time - self.offset) // self.length


class Baseline(ABC):
    """Takes events like an engine; `advance` gives the windows that are complete."""

    def __init__(self, queries: Sequence[Query], time: str = "ts") -> None:
        self.time = time
        self.queries = [_tumble(query) for query in queries]
        self.value = queries[0].aggregates[0].column or time
        self.by = queries[0].by

    def push(self, table: pa.Table) -> None:
        times = _numpy(table.column(self.time).cast(pa.timestamp("us")).cast(pa.int64()))
        keys = _numpy(table.column(self.by[0])) if self.by else np.zeros(len(times), np.int64)
        in_order = bool((times[1:] >= times[:-1]).all())
        self.take(Columns(times, keys, _numpy(table.column(self.value)), in_order))

    @abstractmethod
    def take(self, batch: Columns) -> None:
        """Takes in a batch of at least one event."""

    @abstractmethod
    def advance(self, frontier: int) -> list[Answer]:
        """The windows that end at or before the frontier, and were not given before."""


class CeBuffer(Baseline):
    """A buffer of events per window; when a window ends, all its events are aggregated."""

    def __init__(self, queries: Sequence[Query], time: str = "ts") -> None:
        super().__init__(queries, time)
        self.buffers: list[dict[int, list[tuple[Ints, Floats]]]] = [{} for _ in self.queries]

    def take(self, batch: Columns) -> None:
        for query, buffers in zip(self.queries, self.buffers, strict=True):
            for number, rows in _by_window(batch, query):
                events = batch.keys[rows], batch.values[rows]
                buffers.setdefault(number, []).append(events)

    def advance(self, frontier: int) -> list[Answer]:
        answers = []
        for query, buffers in zip(self.queries, self.buffers, strict=True):
            for number in _ended(query, buffers, frontier):
                kept = accumulator(*query.function)
                parts = buffers.pop(number)
                kept.update(*(np.concatenate(column) for column in zip(*parts, strict=True)))
                answers.append(_answer(query, number, kept))
        return answers


class DeBucket(Baseline):
    """An accumulator per window of each query, brought up to date with every event."""

    def __init__(self, queries: Sequence[Query], time: str = "ts") -> None:
        super().__init__(queries, time)
        self.buckets: list[dict[int, Accumulator]] = [{} for _ in self.queries]

    def take(self, batch: Columns) -> None:
        for query, buckets in zip(self.queries, self.buckets, strict=True):
            for number, rows in _by_window(batch, query):
                if number not in buckets:
                    buckets[number] = accumulator(*query.function)
                buckets[number].update(batch.keys[rows], batch.values[rows])

    def advance(self, frontier: int) -> list[Answer]:
        return [
            _answer(query, number, buckets.pop(number))
            for query, buckets in zip(self.queries, self.buckets, strict=True)
            for number in _ended(query, buckets, frontier)
        ]


class DeSW(Baseline):
    """Slices shared by the windows of one function; each function slices all events for itself."""

    def __init__(self, queries: Sequence[Query], time: str = "ts") -> None:
        super().__init__(queries, time)
        shared: dict[Function, list[Tumble]] = {}
        for query in self.queries:
            shared.setdefault(query.function, []).append(query)
        self.groups = [_Slices(function, members) for function, members in shared.items()]

    def take(self, batch: Columns) -> None:
        for group in self.groups:
            group.take(batch)

    def advance(self, frontier: int) -> list[Answer]:
        return [answer for group in self.groups for answer in group.advance(frontier)]


class _Slices:
    """The slices of one function, between all edges of its windows."""

    def __init__(self, function: Function, queries: list[Tumble]) -> None:
        self.function = function
        self.queries = queries
        self.series = sorted({(query.length, query.offset) for query in queries})
        self.slices: dict[int, Accumulator] = {}
        self.frontier: int | None = None

    def take(self, batch: Columns) -> None:
        low, high = int(batch.times.min()), int(batch.times.max())
        edges = np.unique(
            np.concatenate(
                [
                    np.arange((low - offset) // length * length + offset, high + 1, length)
                    for length, offset in self.series
                ]
            )
        )
        edges = edges[max(int(np.searchsorted(edges, low, side="right")) - 1, 0) :]
        for place, rows in _pieces(batch, edges):
            start = int(edges[place])
            if start not in self.slices:
                self.slices[start] = accumulator(*self.function)
            self.slices[start].update(batch.keys[rows], batch.values[rows])

    def advance(self, frontier: int) -> list[Answer]:
        starts = np.array(sorted(self.slices), np.int64)
        answers = []
        for query in self.queries if len(starts) else ():
            first = query.number(int(starts[0]))
            if self.frontier is not None:
                first = max(first, query.number(self.frontier))
            last = min(query.number(frontier) - 1, query.number(int(starts[-1])))
            for number in range(first, last + 1):
                bounds = query.start(number), query.start(number + 1)
                inside = slice(*np.searchsorted(starts, bounds).tolist())
                parts = [self.slices[start] for start in starts[inside].tolist()]
                if parts:
                    answers.append(_answer(query, number, parts[0].merged(parts[1:])))
        self.frontier = frontier
        needed = min(query.start(query.number(frontier)) for query in self.queries)
        self.slices = {start: kept for start, kept in self.slices.items() if start >= needed}
        return answers


def _tumble(query: Query) -> Tumble:
    aggregate = query.aggregates[0]
    periods = query.window.periods
    tumbling = len(periods) == 1 and periods[0].length == periods[0].slide and not periods[0].only
    tumbling = tumbling and periods[0].scale is None
    if not tumbling or query.where or len(query.by) > 1:
        raise QueryError(
            "a baseline takes tumbling windows, at most one key and no condition", given=query.name
        )
    (period,) = periods
    function = aggregate.function, aggregate.params
    return Tumble(query.name, function, period.length, period.offset)


def _numpy(column: Any) -> Any:
    """A column as an array, without a copy if it is one piece."""
    return column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()


def _by_window(batch: Columns, query: Tumble) -> Iterator[tuple[int, Rows]]:
    """The rows of a batch by the number of the window they are in."""
    low = query.number(int(batch.times[0] if batch.in_order else batch.times.min()))
    high = query.number(int(batch.times[-1] if batch.in_order else batch.times.max()))
    edges = query.offset + np.arange(low, high + 1) * query.length
    for place, rows in _pieces(batch, edges):
        yield low + place, rows


def _pieces(batch: Columns, edges: Ints) -> Iterator[tuple[int, Rows]]:
    """The rows between one edge and the next, where there are any."""
    if len(edges) == 1:
        yield 0, slice(None)
        return
    if batch.in_order:
        bounds = [0, *np.searchsorted(batch.times, edges[1:]).tolist(), len(batch.times)]
        for place, (low, high) in enumerate(pairwise(bounds)):
            if low < high:
                yield place, slice(low, high)
        return
    places = np.searchsorted(edges, batch.times, side="right") - 1
    order = np.argsort(places.astype(np.uint16) if len(edges) < 1 << 16 else places, kind="stable")
    counts = np.bincount(places)
    ends = np.cumsum(counts)
    for place in np.flatnonzero(counts).tolist():
        yield place, order[ends[place] - counts[place] : ends[place]]


def _ended(query: Tumble, windows: dict[int, Any], frontier: int) -> list[int]:
    return sorted(number for number in windows if query.start(number + 1) <= frontier)


def _answer(query: Tumble, number: int, kept: Accumulator) -> Answer:
    return Answer(query.name, query.start(number), query.start(number + 1), *kept.result())
