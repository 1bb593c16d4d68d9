"""A Spark DataFrame as events: the same results as the engine's, whoever slices."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import catchment as ct
from catchment.errors import SchemaError, SourceError
from catchment.model.window import Periodic
from catchment.planner import plan as make_plan
from catchment.planner.cost import edges_of
from catchment.spark import frames
from catchment.spark.catalyst_edges import cuts_of
from catchment.spark.frames import how
from catchment.testing import strategies
from catchment.testing.compare import assert_same, rows_of

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

EXAMPLES = max(3, settings.default.max_examples // 25)
BASE = datetime(1970, 1, 1, tzinfo=UTC)


def check(frame: Any, table: pa.Table, queries: list[ct.Query], **options: Any) -> Any:
    """Runs the queries both ways, and gives back what Spark made of them."""
    engine = ct.Engine(queries, **options)
    engine.push(table)
    wanted = engine.close()
    given = ct.run(frame, queries, **options)
    for query in queries:
        expected = wanted[query.name]
        keys = expected.schema.names[: expected.schema.get_field_index("window_start")]
        assert_same(rows_of(expected), given[query.name], query.name, keys=keys)
        assert given[query.name].schema.equals(expected.schema)
    counts = dict(given.counts)
    assert counts.pop("aside_dropped") <= counts["bad"], "a frame has no folder for bad rows"
    assert counts == engine.counts
    assert counts["accepted"] + counts["bad"] + counts["duplicates"] == counts["events"]
    return given


def ways(frame: Any, queries: list[ct.Query], time: str = "ts") -> dict[str, str]:
    """By query, who slices it."""
    plan = make_plan(queries)
    found = how(plan, frame.schema, time)
    return {name: found[group][0] for name, (group, _) in plan.names.items()}


def at(*seconds: float | None) -> pa.Array[Any]:
    times = [None if s is None else BASE + timedelta(seconds=s) for s in seconds]
    return pa.array(times, pa.timestamp("us", "UTC"))


# -- random queries over random events -----------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[ct.Query], pa.Table]:
    unit = draw(st.sampled_from(strategies.UNITS[1:]))
    base = draw(st.sampled_from(strategies.BASES))
    rows = draw(strategies.events(unit, base, 40, special=True, huge=True))
    return draw(strategies.queries(unit, base, 6)), in_spark(strategies.to_table(rows))


def in_spark(table: pa.Table) -> pa.Table:
    """The table as Spark may have it, which has no unsigned integers and reads them as decimals."""
    place = table.schema.get_field_index("u")
    return table.set_column(place, "u", table.column(place).cast(pa.decimal128(20, 0)))


@given(case=cases())
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def test_any_queries_give_what_the_engine_gives(spark: Any, case: Any) -> None:
    queries, table = case
    queries = [query for query in queries if not query.distinct_on]
    # One partition: the order of arrival is then that of the table.
    frame = spark.createDataFrame(table).coalesce(1)
    if queries:
        check(frame, table, queries)


EASY = ("sum", "avg", "min", "max", "range", "count", "variance", "stddev_pop")
VALUES = (
    "v",
    "n",
    "j",
    "v * n",
    "n + j",
    "v / n",
    "-n",
    "abs(n)",
    "n % j",
    "coalesce(n, j)",
    "CASE WHEN m THEN v ELSE n END",
    "nullif(n, j)",
    "greatest(v, n)",
    "n * n",
    "CAST(n AS DOUBLE)",
    "d",
    "u",
)
DOUBLES = ("v * n", "CASE WHEN m THEN v ELSE n END", "greatest(v, n)", "CAST(n AS DOUBLE)")
"""Those of the values that make doubles of integers."""
WHERES = (
    None,
    "v > 0",
    "v <> 1.5",
    "n IN (1, 2, 4)",
    "v IN (0.0, 1.0, 2.5)",
    "k = 'a'",
    "k <> 'å'",
    "k < 'b'",
    "m",
    "NOT m",
    "m IS NULL",
    "s LIKE 'x%'",
    "n % 2 = 0",
    "n + 1 > j OR m",
    "v BETWEEN -1 AND 1",
    "v / n > 0.5",
    "n NOT IN (1, NULL)",
    "NULL",
    "TRUE",
    "s IS NOT NULL",
    "ts >= TIMESTAMP '1970-01-01 00:00:05'",
    "n * n > 4",
    "n < v",
)


@st.composite
def easy_cases(draw: st.DrawFn) -> tuple[list[ct.Query], pa.Table]:
    """Queries that Spark slices itself."""
    base = draw(st.sampled_from([0, -20]))
    huge = draw(st.booleans())
    rows = draw(strategies.events(1_000_000, base, 60, special=True, huge=huge))
    # A double sum in which huge values cancel out depends on the order of addition.
    values = [value for value in VALUES if value not in DOUBLES] if huge else VALUES
    queries = []
    wheres = draw(st.lists(st.sampled_from(WHERES), min_size=1, max_size=4, unique=True))
    for number in range(10):
        functions = draw(st.lists(st.sampled_from(EASY), min_size=1, max_size=3))
        wanted = [ct.Aggregate(f, draw(st.sampled_from(values))) for f in functions]
        kinds = ("tumbling", "sliding", "session", "fixed")
        window = draw(strategies.windows(1_000_000, base, kinds, ("global",)))
        by = draw(st.sampled_from([(), ("k",), ("j", "v"), ("m",)]))
        where = draw(st.sampled_from(wheres))
        aggregates = [a.alias(f"a{i}") for i, a in enumerate(wanted)]
        queries.append(ct.Query(f"q{number}", *aggregates, window=window, by=by, where=where))
    return queries, in_spark(strategies.to_table(rows))


@given(case=easy_cases())
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def test_spark_slices_as_the_engine_does(spark: Any, case: Any) -> None:
    queries, table = case
    frame = spark.createDataFrame(table).repartition(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_MOST_SCANS", 99)
        assert set(ways(frame, queries).values()) == {"columns"}
        check(frame, table, queries)


@given(st.lists(strategies.windows(kinds=("tumbling", "sliding", "fixed")), min_size=1, max_size=6))
def test_slices_end_at_the_next_edge_and_hold_none(windows: list[Periodic]) -> None:
    """Every edge of the windows is one of the cuts, and slices reach from one to the next."""
    cuts = cuts_of(windows)
    edges = edges_of(windows).between(-30_000_000, 60_000_000)
    for edge in edges[1:-1].tolist():
        before, after = cuts.ends(np.array([edge - 1, edge]))
        assert before == edge < after


# -- types ---------------------------------------------------------------------------------------


def test_keys_of_every_type(spark: Any) -> None:
    day = date(2024, 3, 10)
    columns = {
        "i8": pa.array([1, None, 1, -128], pa.int8()),
        "i16": pa.array([1, None, 1, 2], pa.int16()),
        "f32": pa.array([0.0, -0.0, math.nan, math.nan], pa.float32()),
        "f64": pa.array([None, -0.0, 0.0, math.nan], pa.float64()),
        "s": pa.array(["a", "A", None, "å'\\"]),
        "b": pa.array([b"\x00", b"\x00", None, b"\xff"]),
        "d": pa.array([Decimal("1.50"), Decimal("1.50"), None, Decimal("-2.25")]),
        "day": pa.array([day, None, day, date(1, 1, 1)]),
        "t": at(0, None, 0, -0.000001),
        "m": pa.array([True, False, None, True]),
    }
    table = pa.table({"ts": at(0, 0.5, -0.5, 1), **columns})
    frame = spark.createDataFrame(table).repartition(2)
    queries = [
        ct.Query(name, ct.count(), window=ct.tumbling("1s"), by=[name], where=f"{name} IS NOT NULL")
        for name in ("i8", "s")
    ]
    queries += [
        ct.Query("all", ct.count(), window=ct.sliding("2s", "1s"), by=[*columns]),
        ct.Query("double", ct.count(), window=ct.tumbling("1s"), by=["f64"]),
    ]
    assert set(ways(frame, queries).values()) == {"columns"}
    check(frame, table, queries)


def test_values_of_every_type(spark: Any) -> None:
    columns = {
        "i8": pa.array([127, 127, None, -128], pa.int8()),
        "i32": pa.array([2**31 - 1, 2**31 - 1, None, -(2**31)], pa.int32()),
        "i64": pa.array([2**63 - 1, 1, None, -(2**63)], pa.int64()),
        "f32": pa.array([0.1, math.inf, math.nan, None], pa.float32()),
        "d": pa.array([Decimal("1.50"), None, Decimal("0.10"), Decimal("-2.25")]),
        "day": pa.array([date(2024, 3, 10), None, None, date(1, 1, 1)]),
        "t": at(5, None, 0, -0.000001),
        "m": pa.array([True, False, None, True]),
    }
    table = pa.table({"ts": at(0, 0.5, -0.5, 0.7), **columns})
    frame = spark.createDataFrame(table).repartition(2)
    numbers = ("i8", "i32", "i64", "f32", "d")
    wanted = [f(n) for n in numbers for f in (ct.sum, ct.avg, ct.variance)]
    wanted += [f(n) for n in columns for f in (ct.min, ct.max, ct.count)]
    named = [a.alias(f"a{i}") for i, a in enumerate(wanted)]
    queries = [
        ct.Query("some", *named, window=ct.tumbling("1s")),
        ct.Query("none", *named, window=ct.tumbling("1s"), where="i8 IS NULL", by=["m"]),
    ]
    assert set(ways(frame, queries).values()) == {"columns"}
    check(frame, table, queries)


# -- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_of_every_type_and_bad_ones(spark: Any, zone: str) -> None:
    """A time without a zone is taken as UTC, also within the hour that a session's zone skips."""
    moments = [datetime(2024, 3, 10, 2, 30, 0, 500_000), datetime(1960, 2, 29, 23, 59, 59, 1)]
    rows = 2 * moments + [datetime(1, 1, 1), None, datetime(9999, 12, 31, 23, 59, 59, 999_999)]
    columns = {
        "naive": pa.array(rows, pa.timestamp("us")),
        "aware": pa.array(rows, pa.timestamp("us", "UTC")),
        "day": pa.array([row and row.date() for row in rows]),
    }
    table = pa.table({**columns, "v": pa.array(range(len(rows)))})
    schema = "naive timestamp_ntz, aware timestamp, day date, v long"
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.createDataFrame(table, schema)
        for name in columns:
            queries = [
                ct.Query("sums", ct.sum("v"), ct.max(name), window=ct.tumbling("10m")),
                ct.Query(
                    "when",
                    ct.count(),
                    window=ct.tumbling("1s"),
                    by=["aware"],
                    where="naive < TIMESTAMP '2024-03-10 02:30:01' AND day IS NOT NULL",
                ),
            ]
            assert set(ways(frame, queries, name).values()) == {"columns"}
            assert check(frame, table, queries, time=name).counts["bad"] == 1
            ends = ct.Query("ends", ct.last("v"), window=ct.tumbling("1h"), by=["naive"])
            assert ways(frame, [ends], name) == {"ends": "python"}
            check(frame.coalesce(1), table, [ends], time=name)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_times_too_far_away_are_bad(spark: Any) -> None:
    micros = [0, 1 << 60, -(1 << 60), (1 << 60) - 1, 2**63 - 1, -(2**63), None]
    table = pa.table({"ts": pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))})
    frame = spark.createDataFrame([(m,) for m in micros], "m long")
    frame = frame.selectExpr("timestamp_micros(m) AS ts")
    queries = [
        ct.Query("a", ct.count(), window=ct.tumbling("1s")),
        ct.Query("b", ct.count(), window=ct.fixed(0, 1_000_000), where="ts IS NULL OR TRUE"),
    ]
    assert check(frame, table, queries).counts["bad"] == 5


# -- who slices ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> pa.Table:
    seconds = [0, 0.25, 1, 1, 2.5, -3, None, 9, 9.5, 30]
    return pa.table(
        {
            "ts": at(*seconds),
            "k": pa.array(list("ababababab")),
            "v": pa.array([1.0, math.nan, None, -2.0, 0.5, 4.0, 1.0, 2.0, 2.0, -1.0]),
            "n": pa.array(range(10)),
        }
    )


def test_columns_and_python_together(spark: Any, table: pa.Table) -> None:
    frame = spark.createDataFrame(table).coalesce(1)
    second = ct.tumbling("1s")
    queries = [
        ct.Query("mean", ct.avg("v"), window=ct.sliding("3s", "1s")),
        ct.Query("session", ct.sum("v"), window=ct.session("2s"), by=["k"]),
        ct.Query("last", ct.last("n"), window=second),
        ct.Query("median", ct.median("n"), window=second, where="n > 1"),
        ct.Query("count", ct.sum("n"), window=ct.count_tumbling(3), where="n > 2"),
        ct.Query("cut", ct.count(), window=ct.cut("n % 4 = 0"), where="n >= 0"),
        ct.Query("log", ct.sum("ln(n)"), window=second, where="n < 9"),
        ct.Query("quick", ct.sum("n"), window=ct.session("5ms"), where="n < 7"),
        ct.Query("sum", ct.sum("n"), window=second, where="n < 6"),
    ]
    columns = {"session"}
    found = ways(frame, [queries[1], *queries[3:]])
    assert found == {name: "columns" if name in columns else "python" for name in found}
    check(frame, table, [queries[1], *queries[3:]])
    check(frame, table, queries)
    reasons = how(make_plan([queries[1], *queries[3:]]), frame.schema, "ts")
    assert reasons[0] == ("columns", "slices of 2s")
    assert ("python", "Spark has no sort like ours") in reasons.values()
    assert ("python", "Python gets its columns anyway") in reasons.values()


def test_many_aggregations_become_one_stage(spark: Any, table: pa.Table) -> None:
    frame = spark.createDataFrame(table)
    queries = [
        ct.Query(f"q{i}", ct.sum("v"), window=ct.tumbling("1s"), where=f"n <> {i}")
        for i in range(5)
    ]
    assert set(ways(frame, queries[:4]).values()) == {"columns"}
    assert set(ways(frame, queries).values()) == {"python"}
    check(frame, table, queries[:4])
    check(frame, table, queries)


def test_repeated_events(spark: Any, table: pa.Table) -> None:
    frame = spark.createDataFrame(table).coalesce(1)
    once = {"distinct_on": ["k"], "distinct_within": "1h"}
    query = ct.Query("once", ct.sum("n"), window=ct.tumbling("5s"), **once)
    engine = ct.Engine([query])
    engine.push(table)
    given = ct.run(frame, query)
    assert_same(rows_of(engine.close()["once"]), given["once"])
    assert given.counts["duplicates"] == engine.counts["duplicates"] > 0


def test_windows_without_a_common_grid(spark: Any, table: pa.Table) -> None:
    frame = spark.createDataFrame(table)
    few = [
        ct.Query(f"q{i}", ct.sum("n"), window=ct.tumbling(f"{i}ms"), by=["k"])
        for i in (1009, 2003, 4001)
    ]
    few += [ct.Query("fixed", ct.sum("n"), window=ct.fixed(250_000, 9_000_001), by=["k"])]
    assert set(ways(frame, few).values()) == {"columns"}
    check(frame, table, few)
    many = [
        ct.Query(f"q{i}", ct.sum("n"), window=ct.tumbling(f"{i}ms"))
        for i in range(10_001, 12_001, 97)
    ]
    assert set(ways(frame, many).values()) == {"python"}


def test_windows_too_short_for_slices(spark: Any, table: pa.Table) -> None:
    frame = spark.createDataFrame(table)
    windows = [
        ct.tumbling("7us"),
        ct.sliding("3us", "11us", offset="2us"),
        ct.sliding("9us", "5us"),
    ]
    queries = [ct.Query(f"q{i}", ct.count(), window=w) for i, w in enumerate(windows)]
    assert all(group.way == "accumulators" for group in make_plan(queries).groups)
    assert ways(frame, queries[:2]) == {"q0": "columns", "q1": "columns"}
    assert ways(frame, queries[2:]) == {"q2": "python"}
    check(frame, table, queries[:2])
    check(frame, table, queries[2:])


def test_names_that_sql_would_trip_over(spark: Any, table: pa.Table) -> None:
    table = table.rename_columns(["the.time", "select", "V", "v"])
    frame = spark.createDataFrame(table)
    queries = [
        ct.Query("a", ct.sum("v"), ct.sum("V"), window=ct.tumbling("1s"), by=["select"]),
        ct.Query("b", ct.product("V"), window=ct.tumbling("1s"), by=["select"]),
    ]
    check(frame, table, queries, time="the.time")


def test_conditions_on_doubles_do_not_lose_nan(spark: Any, tmp_path: Path) -> None:
    """Statistics of Parquet files leave NaN out, and Spark would pass over the file by them."""
    table = pa.table({"ts": at(0, 0, 0), "v": [1.0, math.nan, -0.0], "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "events.parquet")
    frame = spark.read.parquet(str(tmp_path))
    long = ", ".join(f"{number}.0" for number in range(20))
    conditions = (None, "v > 5", f"v IN ({long})", "n > 1")
    queries = [
        ct.Query(f"q{i}", ct.count(), window=ct.tumbling("1s"), where=where)
        for i, where in enumerate(conditions)
    ]
    assert set(ways(frame, queries).values()) == {"columns"}
    check(frame, table, queries)


def test_no_rows(spark: Any, table: pa.Table) -> None:
    query = ct.Query("a", ct.sum("n"), window=ct.tumbling("1s"), by=["k"])
    frame = spark.createDataFrame(table).filter("n < 0")
    check(frame, table.slice(0, 0), [query])


def test_ansi_or_not_nothing_fails(spark: Any) -> None:
    table = pa.table({"ts": at(0, 0, 0), "n": [2**63 - 1, -(2**63), 0], "z": [0, -1, 0]})
    frame = spark.createDataFrame(table)
    texts = ["n + n", "n * 2", "n - z", "n / z", "n % z", "-n", "abs(n)"]
    queries = [
        ct.Query("a", *(ct.sum(t).alias(t) for t in texts), window=ct.tumbling("1s")),
        ct.Query("b", ct.count(), window=ct.tumbling("1s"), where="n / z IS NULL"),
    ]
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        check(frame, table, queries)
    spark.conf.unset("spark.sql.ansi.enabled")


def test_errors_come_before_anything_is_read(spark: Any, table: pa.Table) -> None:
    frame = spark.createDataFrame(table)
    with pytest.raises(SchemaError, match="no such time column"):
        ct.run(frame, ct.Query("a", ct.sum("n"), window=ct.tumbling("1s")), time="when")
    with pytest.raises(SchemaError, match="no such column"):
        ct.run(frame, ct.Query("a", ct.sum("m"), window=ct.tumbling("1s")))
    odd = frame.selectExpr("*", "make_interval(1) AS odd")
    check(odd, table, [ct.Query("a", ct.sum("n"), window=ct.tumbling("1s"))])
    with pytest.raises(SchemaError, match="Arrow has not"):
        ct.run(odd, ct.Query("a", ct.count("odd"), window=ct.tumbling("1s")))
    stream = spark.readStream.format("rate").load()
    with pytest.raises(SourceError, match="no end"):
        ct.run(stream, ct.Query("a", ct.count(), window=ct.tumbling("1s")), time="timestamp")
