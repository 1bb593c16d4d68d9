"""The demo's mix of queries in one engine: against one after the other, DuckDB, and late events.

The time is that of one core: what all threads of the process take together (`process_time`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import process_time

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

import catchment as ct
from benchmarks import mix_sql, scotty
from benchmarks.events import LATE_BY, LATE_SHARE, SECOND, Step, Workload, drive
from benchmarks.figure import Figure, at_least
from benchmarks.timing import Prepare, in_turns, ratio, typical
from catchment.cli import demo
from catchment.cli.demo_queries import mix
from catchment.generator import Generator

BATCH = 500_000
"""Events pushed before the results are read: ten seconds' worth."""
AFTER = 600 * SECOND
"""How far time goes on after the last event, so that every window in time ends."""


def figures(quick: bool = False) -> Iterator[Figure]:
    """The demo's queries, then those with late events, then Scotty's with small batches."""
    events, runs = (1_000_000, 2) if quick else (4_000_000, 5)
    yield from of_the_demo(events, runs)
    yield late(events, runs)
    for share in scotty.shares(quick, scotty.SMALL, clock=process_time):
        name = f"{share.name}, results read every {scotty.SMALL:,} events"
        yield at_least(name, share.value, scotty.UNIT, share.bar, f"{share.detail}, CPU time")


def of_the_demo(events: int, runs: int) -> Iterator[Figure]:
    """All together against one after the other, and against DuckDB."""
    asked = mix()
    load = batches(demo.EVENTS, events)
    texts = mix_sql.for_duckdb()
    other = in_memory(load)
    check(asked, load, {name: other.sql(text).to_arrow_table() for name, text in texts.items()})
    shared = [query for query in asked if query.name in texts]
    actions = [together(asked, load), apart(asked, load), one_by_one(other, texts)]
    if len(shared) < len(asked):
        actions.append(together(shared, load))
    # To check was to warm up.
    times = in_turns(runs, actions, warm_up=False, clock=process_time)
    speed = f"{load.events / typical(times, 0) / 1e6:.2f} M events/s a core"
    detail = f"{load.detail}; {speed}; CPU time, median of {runs} runs"
    yield at_least(
        f"the demo's {len(asked)} queries together, against one after the other",
        ratio(times, 1, 0),
        "times as fast",
        3,
        f"an engine for each alone: {typical(times, 1):.1f} s; {detail}",
    )
    yield at_least(
        f"the demo's queries together, against DuckDB, {len(shared)} one after the other",
        ratio(times, 2, len(actions) - 1 if len(shared) < len(asked) else 0),
        "times as fast",
        6,
        f"one thread each, the same Arrow table in memory; DuckDB {duckdb.__version__}: "
        f"{typical(times, 2):.1f} s; {detail}",
    )


def late(events: int, runs: int) -> Figure:
    """The same events, in order and not."""
    asked = mix()
    loads = [
        batches(replace(demo.EVENTS, late_share=share, late_by="2s"), events)
        for share in (0.0, LATE_SHARE)
    ]
    times = in_turns(runs, [together(asked, load) for load in loads], clock=process_time)
    return at_least(
        f"the demo's {len(asked)} queries, late events",
        ratio(times, 0, 1),
        "of the speed in order",
        0.6,
        f"{LATE_SHARE:.0%} late by up to {LATE_BY // SECOND} s; {loads[1].detail}; CPU time, "
        f"median of {runs} runs",
    )


def batches(events: Generator, count: int, size: int = BATCH) -> Workload:
    """Events in order of arrival; the frontier trails by what they may be late, and then goes on.

    The columns of a batch are one chunk each, as a reader would give them.
    """
    steps = []
    for batch in events.batches(size, count):
        newest = pc.max(batch["ts"].cast(pa.int64())).as_py()
        steps.append(Step(pa.Table.from_batches([batch]), newest - LATE_BY))
    steps[-1] = Step(steps[-1].table, steps[-1].frontier + AFTER)
    words = (
        f"{count:,} events of {events.keys} players, {events.rate:,.0f} per second of event time"
    )
    return Workload(tuple(steps), count, f"{words}, batches of {size:,}")


def together(queries: Sequence[ct.Query], load: Workload) -> Prepare:
    """One engine for all, which is made outside the timing."""

    def prepare() -> Callable[[], int]:
        engine = _engine(queries, load)
        return lambda: drive(engine, load.steps)

    return prepare


def apart(queries: Sequence[ct.Query], load: Workload) -> Prepare:
    """An engine for each query, one after the other."""

    def prepare() -> Callable[[], int]:
        engines = [_engine([query], load) for query in queries]
        return lambda: sum(drive(engine, load.steps) for engine in engines)

    return prepare


def _engine(queries: Sequence[ct.Query], load: Workload) -> ct.Engine:
    # The plan assumes what is known of the stream: its rate.
    span = load.steps[-1].table["ts"][-1].value - load.steps[0].table["ts"][0].value
    rate = load.events * SECOND / max(1, span)
    return ct.Engine(queries, rate=rate, schema=load.steps[0].table.schema)


def in_memory(load: Workload) -> duckdb.DuckDBPyConnection:
    """DuckDB with one thread over the same Arrow table."""
    made = duckdb.connect(config={"threads": 1})
    made.execute("SET TimeZone = 'UTC'")
    made.register("events", pa.concat_tables([step.table for step in load.steps]))
    return made


def one_by_one(system: duckdb.DuckDBPyConnection, texts: dict[str, str]) -> Prepare:
    """Each query's answer as an Arrow table."""
    return lambda: lambda: [system.sql(text).to_arrow_table() for text in texts.values()]


def check(queries: Sequence[ct.Query], load: Workload, answers: dict[str, pa.Table]) -> None:
    """Refuses to compare with a system whose answers are others."""
    engine = _engine(queries, load)
    parts: dict[str, list[pa.Table]] = {name: [] for name in answers}
    for table, frontier in load.steps:
        engine.push(table)
        results = engine.advance(frontier)
        for name in answers:
            parts[name].append(results[name])
    for name, answer in answers.items():
        mix_sql.agree(name, pa.concat_tables(parts[name]), answer)
