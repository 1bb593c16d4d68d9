"""Events to measure with, and the loop that every user of an engine runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import catchment as ct

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SECOND = 1_000_000
LATE_SHARE = 0.2
LATE_BY = 2 * SECOND


class Step(NamedTuple):
    """A batch of events, and the frontier that is promised after it."""

    table: pa.Table
    frontier: int


@dataclass(frozen=True)
class Workload:
    """Batches in order of arrival, and in words what they are."""

    steps: tuple[Step, ...]
    events: int
    detail: str

    def column(self, name: str) -> list[npt.NDArray[np.generic]]:
        """A column of each batch, as NumPy sees it, without a copy."""
        return [step.table.column(name).chunk(0).to_numpy() for step in self.steps]


def workload(
    events: int,
    rate: int,
    *,
    batch: int = 1_000_000,
    keys: int = 0,
    strings: bool = False,
    late: bool = False,
    pauses: int = 0,
    seed: int = 7,
) -> Workload:
    """Events evenly spaced in time, with random values and keys.

    With `late`, one in five arrives up to 2 s after its time, and the frontier trails by as much,
    so that none is dropped. `pauses` parts the events by that many pauses of 2 s per minute.
    """
    random = np.random.default_rng(seed)
    times = np.arange(events, dtype=np.int64) * SECOND // rate
    if pauses:
        times += times // (60 * SECOND // pauses) * LATE_BY
    arrival = times
    order = None
    if late:
        behind = random.random(events) < LATE_SHARE
        arrival = times + np.where(behind, random.integers(1, LATE_BY + 1, events), 0)
        order = np.argsort(arrival, kind="stable")
        times, arrival = times[order], arrival[order]
    columns: dict[str, Any] = {"ts": pa.array(times).view(pa.timestamp("us", "UTC"))}
    if keys:
        columns["k"] = _keys(random.integers(0, keys, events), keys, strings)
    columns["v"] = pa.array(random.random(events))
    table = pa.table(columns)
    steps = [
        Step(_part(table, at, batch), int(arrival[min(at + batch, events) - 1]) - late * LATE_BY)
        for at in range(0, events, batch)
    ]
    return Workload(tuple(steps), events, _words(events, rate, batch, keys, late, pauses))


def _keys(codes: Ints, keys: int, strings: bool) -> Any:
    if not strings:
        return pa.array(codes)
    names = pa.array([f"sensor-{number:06d}" for number in range(keys)])
    return names.take(codes)


def _part(table: pa.Table, at: int, size: int) -> pa.Table:
    """A batch of its own, as a reader would give it: one chunk per column."""
    return pa.table(
        {name: table.column(name).chunk(0).slice(at, size) for name in table.column_names}
    )


def _words(events: int, rate: int, batch: int, keys: int, late: bool, pauses: int) -> str:
    words = [f"{events:,} events, {rate:,} per second of event time, batches of {batch:,}"]
    if keys:
        words.append(f"{keys:,} keys")
    if late:
        words.append(f"{LATE_SHARE:.0%} late by up to {LATE_BY // SECOND} s")
    if pauses:
        words.append(f"{pauses} pauses of {LATE_BY // SECOND} s a minute")
    return ", ".join(words)


def drive(engine: ct.Engine, steps: Sequence[Step]) -> int:
    """All that a user pays: push, advance, and read every query's table; gives the rows read."""
    rows = 0
    for table, frontier in steps:
        engine.push(table)
        rows += sum(result.num_rows for result in engine.advance(frontier).values())
    return rows


def ours(queries: Sequence[ct.Query], load: Workload) -> Callable[[], Callable[[], int]]:
    """Prepares a fresh engine; what is timed is `drive`."""
    # The plan assumes what is known of the stream: its rate.
    rate = load.events * SECOND / max(1, load.steps[-1].frontier)

    def prepare() -> Callable[[], int]:
        engine = ct.Engine(queries, rate=rate, schema=load.steps[0].table.schema)
        return lambda: drive(engine, load.steps)

    return prepare


def tumbling(lengths: Sequence[int], *aggregates: ct.Aggregate, by: str = "") -> list[ct.Query]:
    """A query of each length (in microseconds); the aggregates take turns."""
    turns = [aggregates[n % len(aggregates)] for n in range(len(lengths))]
    return [
        ct.Query(f"q{n}", aggregate, by=by or (), window=ct.tumbling(f"{length}us"))
        for n, (length, aggregate) in enumerate(zip(lengths, turns, strict=True))
    ]
