"""Queries over the results of other queries: windows of windows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from against_oracle import check
from catchment.errors import CatchmentError, QueryError
from catchment.model.rules import QueryRules, bound
from catchment.planner import plan
from catchment.simulate import World
from catchment.sinks.parquet import ParquetSink
from catchment.sources.parquet_file import Parquet
from catchment.testing.compare import assert_same, rows_of
from catchment.testing.oracle import oracle, oracle_run
from catchment.testing.strategies import (
    CHAINED,
    KINDS,
    UNITS,
    Scenario,
    Step,
    scenarios,
    windows,
)
from trees import SCHEMA, batches, charter, final
from trees import check as check_all

SECOND = 1_000_000
MEANS = "SELECT k, avg(v) AS mean, count(*) AS n FROM events GROUP BY k, window(ts, '10 seconds')"
SPEED = ct.sql(MEANS, "speed")
PEAK = ct.sql(
    "SELECT k, max(mean) AS peak, sum(n) AS n FROM speed GROUP BY k, window(window_time, '1 "
    "minute')",
    "peak",
)


def events(count: int = 2_000, seed: int = 1) -> list[dict[str, Any]]:
    dice = random.Random(seed)
    times = sorted(dice.randrange(600 * SECOND) for _ in range(count))
    return [{"ts": t, "k": dice.choice("abc"), "v": dice.randrange(100), "m": "on"} for t in times]


def table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
    return pa.table(columns, SCHEMA)


# -- random queries --------------------------------------------------------------------------------


@st.composite
def nested(draw: st.DrawFn) -> Scenario:
    """A scenario of queries of all kinds, over which there are others, up to three deep."""
    late, kinds = draw(st.sampled_from(["none", "drop"])), [*KINDS, *CHAINED]
    found = draw(scenarios(late=late, max_queries=3, kinds=kinds, readings=["global"]))
    unit = draw(st.sampled_from(UNITS))
    made = list(found.queries)
    for query in found.queries:
        inner = ct.Query(
            f"{query.name} read",
            ct.count().alias("n"),
            ct.sum("v").alias("total"),
            ct.min("n").alias("least"),
            window=query.window,
            by=query.by,
            where=query.where,
        )
        for depth in range(draw(st.integers(1, 2))):
            kind = draw(st.sampled_from(["tumbling", "sliding", "session", "count_tumbling"]))
            inner = ct.Query(
                f"{query.name} at {depth}",
                ct.count().alias("n"),
                ct.max("total").alias("total"),
                ct.sum("n").alias("least"),
                window=draw(windows(unit, 0, [kind], ["global"])),
                by=draw(st.sampled_from([(), inner.by])),
                where=draw(st.sampled_from([None, "n > 1"])),
                source=inner,
            )
            made.append(inner)
    return Scenario(made, found.steps, found.lateness, found.late, found.keep, found.nodes)


@given(nested())
def test_any(scenario: Scenario) -> None:
    check(scenario)


@given(nested())
def test_a_snapshot_between_any_two_steps_changes_nothing(scenario: Scenario) -> None:
    check(scenario, lambda engine: ct.Engine.restore(engine.snapshot()))


def test_stages_whose_windows_end_with_the_data() -> None:
    """Each may still end a window just at its frontier, so each one lags by a moment.

    Random queries of seed 1 found that the oracle let only the last stage lag.
    """
    ones = ct.Query("ones", ct.count().alias("n"), window=ct.count_tumbling(1))
    bursts = ct.Query("bursts", ct.sum("n").alias("n"), window=ct.session("1s"), source=ones)
    read = ct.Query("read", ct.max("n"), window=ct.tumbling("1s"), source=bursts)
    steps: list[Step] = [("push", [{"ts": 0, "v": 1.0}] * 3)]
    steps += [("advance", SECOND + by) for by in range(4)]
    check(Scenario([ones, bursts, read], [*steps, ("close",)], 0, "drop", None, [0, 0, 0]))


# -- runtimes --------------------------------------------------------------------------------------

READERS = [
    SPEED,
    PEAK,
    ct.sql(
        f"SELECT max_by(k, mean) AS best, count(*) AS n FROM ({MEANS} HAVING count(*) > 2) AS s "
        "WHERE k <> 'c' GROUP BY window(window, '1 minute')",
        "best",
    ),
    ct.sql(
        f"WITH s AS ({MEANS}), m AS (SELECT k, max(mean) AS peak FROM s "
        "GROUP BY k, window(window_time, '1 minute')) "
        "SELECT avg(peak) AS level FROM m GROUP BY window(window_time, '5 minutes')",
        "level",
    ),
    ct.Query(
        "after rest",
        ct.count().alias("visits"),
        ct.max("n").alias("longest"),
        window=ct.tumbling("2m"),
        source=ct.Query("visits", ct.count().alias("n"), by="k", window=ct.session("3s")),
    ),
    ct.Query(
        "runs",
        ct.first("mean").alias("first"),
        ct.last("mean").alias("last"),
        by="k",
        window=ct.count_tumbling(4),
        table="speed",
    ),
]


def resolved() -> list[ct.Query]:
    others = {query.name: query for query in READERS}
    return [bound(query, QueryRules("ts"), others) for query in READERS]


def test_in_one_process() -> None:
    rows = events()
    expected = oracle(resolved(), rows)
    given = ct.run(table(rows), READERS, spark=False)
    for name, wanted in expected.items():
        assert wanted
        assert_same(wanted, given[name], name)


def test_in_a_tree() -> None:
    """Slices climb; results are read at the root, where windows are assembled."""
    rows = events(600)
    parents = {"root": None, "a": "root", "mid": "root", "b": "mid", "c": "mid"}
    parts = {id: [table(rows[number::3])] for number, id in enumerate("abc")}
    world = World(charter(parents, READERS), parts, seed=3)
    world.run()
    assert world.done
    check_all(world.deliveries, parts, resolved())


def test_windows_over_results_come_without_a_node_that_is_missing() -> None:
    inner = ct.Query("inner", ct.count().alias("n"), by="k", window=ct.tumbling("2s"))
    outer = ct.Query("outer", ct.sum("n").alias("s"), window=ct.tumbling("20s"), source=inner)
    parents: dict[str, str | None] = {"root": None, "a": "root", "b": "root"}
    ruled = charter(parents, [inner, outer], timeout=2_000_000)
    world = World(ruled, {"a": batches(1, 90, 15), "b": batches(2, 90, 15)}, seed=1, until=0)
    world.crash("b", 200)
    world.run(100)
    rows = final(world.deliveries, "outer")
    assert [(row["window_end"], row["complete"], row["missing"]) for row in rows] == [
        (20_000_000, False, "b")
    ]


@pytest.mark.spark
def test_on_spark(spark: Any) -> None:
    rows = events()
    expected = oracle(resolved(), rows)
    given = ct.run(table(rows), READERS, spark=spark, buckets=3)
    for name, wanted in expected.items():
        assert_same(wanted, given[name], name)


@pytest.mark.spark
def test_in_a_stream_on_spark(spark: Any, tmp_path: Path) -> None:
    """Results are read in the bucket where they meet, and go on from batch to batch."""
    rows = table(events())
    (tmp_path / "in").mkdir()
    for number in range(3):
        part = rows.slice(number * 700, 700)
        pq.write_table(part, tmp_path / "in" / f"{number}.parquet")
    job = ct.Job(
        queries=READERS,
        source=Parquet(path=str(tmp_path / "in"), max_files_per_batch=1),
        sinks=[ParquetSink(path=str(tmp_path / "out"))],
        checkpoint=str(tmp_path / "state"),
        trigger="available-now",
        buckets=2,
    )
    job.start(spark).wait()
    engine = ct.Engine(READERS)
    engine.push(rows)
    wanted = engine.advance(rows.column("ts")[-1].value)
    for query in READERS:
        given = ParquetSink(path=str(tmp_path / "out")).read(query.name)
        assert_same(rows_of(wanted[query.name]), given, query.name)


# -- plans -----------------------------------------------------------------------------------------


def test_what_is_read_is_computed_once() -> None:
    made = plan([SPEED, PEAK, ct.Query("n", ct.sum("n"), window=ct.tumbling("1h"), table="speed")])
    assert len(made.groups) == 1 and len(made.groups[0].answers) == 1
    assert [group.source for group in made.nested] == [*made.sources] * 2
    assert type(made).from_bytes(made.to_bytes()) == made


def test_explain_says_what_is_read() -> None:
    text = ct.explain([SPEED, PEAK])
    assert "group 1: by k, of results of group 0" in text
    assert "root: the results are its events, each at the last moment of its window" in text


def test_added_while_running_it_begins_with_the_first_window_it_can_answer() -> None:
    rows = events()
    engine = ct.Engine([SPEED])
    half = next(n for n, row in enumerate(rows) if row["ts"] > 150 * SECOND)
    engine.push(table(rows[:half]))
    engine.advance(150 * SECOND)
    engine.add(PEAK)
    engine.push(table(rows[half:]))
    out = [engine.advance(200 * SECOND)["peak"], engine.close()["peak"]]
    whole = ct.run(table(rows), [SPEED, PEAK], spark=False)["peak"]
    start = whole["window_start"].cast(pa.int64()).to_numpy()
    assert_same(
        whole.filter(pa.array(start >= 180 * SECOND)).to_pylist(), pa.concat_tables(out), "peak"
    )
    engine.remove("speed", drain=False)
    assert set(engine.queries) == {"peak"}


def test_a_query_that_leaves_gives_what_it_began() -> None:
    rows = events()
    engine = ct.Engine([SPEED, PEAK])
    half = next(n for n, row in enumerate(rows) if row["ts"] > 150 * SECOND)
    engine.push(table(rows[:half]))
    engine.advance(150 * SECOND)
    engine.remove("peak")
    engine.push(table(rows[half:]))
    given = engine.advance(400 * SECOND)["peak"]
    assert set(given["window_start"].cast(pa.int64()).to_pylist()) == {120 * SECOND}
    assert set(engine.queries) == {"speed"}


# -- mistakes --------------------------------------------------------------------------------------


def of(text: str, name: str = "q") -> ct.Query:
    return ct.sql(text, name)


MISTAKES: list[tuple[list[ct.Query], str]] = [
    (
        [
            of("SELECT max(m) AS m FROM b GROUP BY window(window_time, '1 minute')", "a"),
            of("SELECT max(m) AS m FROM a GROUP BY window(window_time, '1 minute')", "b"),
        ],
        (
            "query 'a' depends on itself (given: a reads b reads a); FROM takes events, or a query "
            "that "
            "does not read from this one"
        ),
    ),
    (
        [of("SELECT max(m) AS m FROM a GROUP BY window(window_time, '1 minute')", "a")],
        (
            "query 'a' depends on itself (given: a reads a); FROM takes events, or a query that "
            "does "
            "not read from this one"
        ),
    ),
    (
        [SPEED, of("SELECT max(mean) AS m FROM speed GROUP BY window(ts, '1 minute')")],
        (
            "query 'q': its window names the column 'ts', but the time of the results that it "
            "reads is "
            "'window_time' (given: ts); write window(window_time, ...): it is the last moment of "
            "each "
            "window read"
        ),
    ),
    (
        [SPEED, of("SELECT max(mena) AS m FROM speed GROUP BY window(window_time, '1 minute')")],
        "query 'q': no such column (given: mena); did you mean 'mean'?",
    ),
    (
        [SPEED, of("SELECT max(mean) AS m FROM sped GROUP BY window(window_time, '1 minute')")],
        "query 'q': FROM takes the events of the job (given: FROM sped); did you mean 'speed'?",
    ),
]


@pytest.mark.parametrize(("queries", "text"), MISTAKES)
def test_mistakes(queries: list[ct.Query], text: str) -> None:
    with pytest.raises(CatchmentError) as caught:
        ct.run(table(events(10)), queries, spark=False)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"late": "update"},
            (
                "query 'peak': results that are corrected cannot be read by another query (given: "
                "late='update'); drop or collect late events, or read the events"
            ),
        ),
        (
            {"emit": "changes"},
            (
                "query 'peak': results that are corrected cannot be read by another query (given: "
                "emit='changes'); give final results only, or read the events"
            ),
        ),
    ],
)
def test_results_that_are_corrected_are_not_read(options: dict[str, Any], text: str) -> None:
    with pytest.raises(QueryError) as caught:
        ct.Engine([SPEED, PEAK], **options)
    assert str(caught.value) == text


def reading(**inner: Any) -> ct.Query:
    given = {"window": ct.tumbling("1s")} | inner
    source = ct.Query("inner", ct.count().alias(given.pop("called", "n")), **given)
    return ct.Query("outer", ct.max("n"), window=ct.tumbling("1m"), source=source)


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        (
            {"measure": "processing"},
            (
                "query 'outer': results are read by event time (given: measure='processing'); "
                "leave "
                "out measure, of this query and of the one it reads from"
            ),
        ),
        (
            {"window": ct.cut("v > 1", reading="local")},
            (
                "query 'outer': windows that each stream has for itself cannot be read from "
                "(given: "
                "reading='local' of 'inner'); leave out reading"
            ),
        ),
        (
            {"called": "window_time"},
            (
                "query 'outer' reads results that have a column 'window_time' of their own (given: "
                "inner); give that column another name: it is that of the time of results"
            ),
        ),
    ],
)
def test_what_cannot_be_read(inner: dict[str, Any], text: str) -> None:
    with pytest.raises(QueryError) as caught:
        reading(**inner)
    assert str(caught.value) == text


def test_at_most_eight_above_one_another() -> None:
    query = ct.Query("0", ct.count().alias("n"), window=ct.tumbling("1s"))
    for number in range(1, 8):
        query = ct.Query(
            str(number), ct.max("n").alias("n"), window=ct.tumbling("1s"), source=query
        )
    with pytest.raises(QueryError, match="at most 8"):
        ct.Query("8", ct.max("n").alias("n"), window=ct.tumbling("1s"), source=query)


def test_sessions_cannot_be_read_by_a_query_that_comes_later() -> None:
    engine = ct.Engine([SPEED])
    engine.push(table(events(100)))
    inner = ct.Query("visits", ct.count().alias("n"), by="k", window=ct.session("3s"))
    with pytest.raises(QueryError) as caught:
        engine.add(ct.Query("q", ct.max("n"), window=ct.tumbling("1m"), source=inner))
    assert str(caught.value) == (
        "windows that begin and end with the data cannot be read by a query that is added while "
        "others run (given: session(3s)); start the job with this query, or read windows of a "
        "fixed length"
    )
    assert set(engine.queries) == {"speed"}


def test_a_window_in_from_over_another_query() -> None:
    flink = of(
        "SELECT k, max(mean) AS peak, sum(n) AS n FROM TABLE(TUMBLE(TABLE speed, "
        "DESCRIPTOR(window_time), INTERVAL '1' MINUTE)) GROUP BY k, window_start, window_end"
    )
    rows = table(events())
    given = ct.run(rows, [SPEED, PEAK, flink], spark=False)
    assert_same(given["peak"].to_pylist(), given["q"], "flink")


def test_oracle_steps() -> None:
    """The frontier passes on as it is: a minute is complete once its last ten seconds are."""
    rows = events(50)
    steps = [("push", rows), ("advance", 60 * SECOND), ("close",)]
    first = oracle_run(resolved(), steps)[0]["peak"]
    engine = ct.Engine(READERS)
    engine.push(table(rows))
    assert_same(first, engine.advance(60 * SECOND)["peak"], "peak")
    assert first
