"""The demo's events, and what its queries cost together and apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import catchment as ct
from catchment.cli.demo_queries import hundred
from catchment.generator import Generator
from catchment.model.query import Query

RATE = 50_000  # events per second of event time
BATCH = 200_000
SAMPLE = 4.0  # seconds of event time for the comparison with separate engines
LATE_BY = "2s"
SHOWN = ("speed", "sprints", "possession", "top_speed", "laps", "thousand")
"""The queries whose last windows the demo prints."""

SETTINGS: dict[str, Any] = {
    "seed": 2013,
    "keys": 10,
    "rate": RATE,
    "gaps": ("20s", "3s"),
    "markers": 0.0005,
    "late_share": 0.1,
    "late_by": LATE_BY,
}
EVENTS = Generator(**SETTINGS)

EVERYTHING = 10_000_000
"""Events, if nothing else is asked for."""

OnProgress = Callable[[float, int, int], None]
"""Told, after each batch, the seconds of event time, the events and the results so far."""


@dataclass(frozen=True)
class DemoCost:
    """What some queries took to answer."""

    events: int
    slices: int
    operator_calls: int
    seconds: float


@dataclass(frozen=True)
class AgainstSpark:
    """Some of the queries over files of events: ours in one pass, and Spark's, one by one."""

    events: int
    queries: tuple[str, ...]
    ours: float
    """Seconds."""
    spark: float


@dataclass
class DemoOutcome:
    """What the demo found."""

    queries: int
    events: int = 0
    late: int = 0
    seconds: float = 0.0
    started: float = 0.0
    """Seconds that Spark took before the first event."""
    state_bytes: int = 0
    folder: str | None = None
    """Where the results lie, if they are kept."""
    results: dict[str, int] = field(default_factory=dict)
    last: dict[str, pa.Table] = field(default_factory=dict)
    sample_seconds: float = 0.0
    together: DemoCost = DemoCost(0, 0, 0, 0.0)
    apart: DemoCost = DemoCost(0, 0, 0, 0.0)
    against_spark: AgainstSpark | None = None
    """None where Spark was not asked."""

    def to_dict(self) -> dict[str, Any]:
        data = {name: value for name, value in vars(self).items() if name != "last"}
        speed = round(self.events / self.seconds) if self.seconds else 0
        costs = {"together": asdict(self.together), "apart": asdict(self.apart)}
        against = None if self.against_spark is None else asdict(self.against_spark)
        return {**data, **costs, "against_spark": against, "events_per_second": speed}


def nothing_yet(asked: Sequence[Query]) -> DemoOutcome:
    """What is known before the first event."""
    return DemoOutcome(len(asked), results={query.name: 0 for query in asked})


def run(events: int, report: OnProgress) -> DemoOutcome:
    """Runs the demo in this process, and compares one engine with one per query."""
    asked = hundred()
    outcome = nothing_yet(asked)
    started = time.perf_counter()
    engine = ct.Engine(asked, time="ts", lateness=LATE_BY)
    for batch in EVENTS.batches(BATCH, events):
        newest = pc.max(batch["ts"]).as_py()
        engine.push(batch)
        keep(outcome, engine.advance(newest))
        outcome.events += batch.num_rows
        report(outcome.events / RATE, outcome.events, sum(outcome.results.values()))
    outcome.state_bytes = engine.stats.state_bytes
    keep(outcome, engine.close())
    outcome.late = engine.stats.late
    outcome.seconds = time.perf_counter() - started
    compare(outcome, asked)
    return outcome


def keep(outcome: DemoOutcome, results: Any) -> None:
    """Counts results, and keeps the last windows of the queries that are shown."""
    for name, table in results.items():
        outcome.results[name] += table.num_rows
        if name in SHOWN and table.num_rows:
            order = ["window_end", *(["player"] if "player" in table.column_names else [])]
            ordered = table.sort_by([(column, "ascending") for column in order])
            outcome.last[name] = ordered.slice(max(0, table.num_rows - 3))


def compare(outcome: DemoOutcome, asked: Sequence[Query]) -> None:
    """The same events through one engine for all queries, then through an engine for each."""
    sample = EVENTS.table(min(outcome.events, round(SAMPLE * RATE)))
    outcome.sample_seconds = sample.num_rows / RATE
    _cost(asked, sample.slice(0, 1000))  # what is computed once in a process is nobody's cost
    outcome.together = _cost(asked, sample)
    costs = [_cost([query], sample) for query in asked]
    outcome.apart = DemoCost(
        sum(cost.events for cost in costs),
        sum(cost.slices for cost in costs),
        sum(cost.operator_calls for cost in costs),
        sum(cost.seconds for cost in costs),
    )


def _cost(asked: Sequence[Query], sample: pa.Table) -> DemoCost:
    started = time.perf_counter()
    engine = ct.Engine(asked, time="ts", lateness=LATE_BY)
    engine.push(sample)
    engine.close()
    stats = engine.stats
    elapsed = time.perf_counter() - started
    return DemoCost(stats.events, stats.slices, stats.operator_calls, elapsed)
