"""Decimals as a real Spark has them: types and values of sums, means and expressions."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import catchment as ct
from catchment.functions import make
from catchment.testing.compare import assert_same, rows_of
from small_tables import SECOND
from test_decimals import EXPRESSIONS, LARGE, ROW, TYPED, number

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

KINDS = {
    "a": pa.decimal128(12, 2),
    "b": pa.decimal128(18, 18),
    "c": pa.decimal128(19, 2),
    "d": pa.decimal128(28, 3),
    "e": pa.decimal128(38, 2),
    "f": pa.decimal128(38, 30),
}


def events() -> pa.Table:
    """Rows of every kind of decimal, at the ends of its digits too, in windows of ten seconds."""
    dice = random.Random(5)

    def column(kind: Any) -> list[Decimal | None]:
        # Spark gives up a sum as soon as a part of it does not fit: here all parts do.
        most = min(10**kind.precision - 1, 10**36)
        units = [None, 0, 1, -1, most, -most, *(dice.randint(-most, most) for _ in range(4))]
        drawn = [dice.choice(units) for _ in range(80)]
        return [None if u is None else number(u, kind.scale) for u in drawn]

    columns = {name: pa.array(column(kind), kind) for name, kind in KINDS.items()}
    columns["c"] = pa.array([Decimal(LARGE)] * 80, KINDS["c"])
    times = pa.array([i * SECOND for i in range(80)], pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, "k": pa.array(list("ab") * 40), **columns})


def test_sums_and_means_are_those_of_spark(spark: Any) -> None:
    """By the engine, by Spark columns and by Spark itself: the same types, the same digits."""
    table = events()
    frame = spark.createDataFrame(table)
    every = ("sum", "avg", "min", "max", "range", "count", "median", "stddev")
    spoken = {
        "sum": "try_sum({0})",
        "avg": "try_avg({0})",
        "range": "max({0}) - min({0})",
        "median": "median({0})",
        "stddev": "stddev({0})",
    }
    for name, kind in KINDS.items():
        window = ct.tumbling("10s")
        # Doubles cannot say that large decimals are equal: their spread is a few units, not zero.
        functions = every[:-1] if name == "c" else every
        query = ct.Query("q", *(make(f, name).alias(f) for f in functions), by="k", window=window)
        fast = tuple(f for f in functions if f != "median")
        native = ct.Query("n", *(make(f, name).alias(f) for f in fast), by="k", window=window)
        texts = [spoken.get(f, f + "({0})").format(name) + f" AS {f}" for f in functions]
        # A difference of 38 digits that does not fit is an error in Spark, and null here.
        texts[4] = f"CAST(NULL AS INT) AS {functions[4]}" if kind.precision == 38 else texts[4]
        truth = spark.sql(
            f"SELECT k, window.start AS window_start, window.end AS window_end, {', '.join(texts)} "
            "FROM {frame} GROUP BY k, window(ts, '10 seconds')",
            frame=frame,
        ).toArrow()
        engine = ct.Engine([query])
        engine.push(table)
        found = engine.close()["q"]
        by_columns = ct.run(frame, [native])["n"]
        left_out = ["range"] if kind.precision == 38 else []
        for given in (found, by_columns):
            wanted = truth.select(given.column_names).drop_columns(left_out)
            compared = given.drop_columns(left_out)
            assert compared.schema.types[3:] == wanted.schema.types[3:], name
            assert_same(rows_of(wanted), compared, name, keys=["k"])


def test_spark_slices_decimals_itself_where_their_sums_fit(spark: Any) -> None:
    from catchment.planner import plan
    from catchment.spark.frames import how

    frame = spark.createDataFrame(events())
    for name, kind in KINDS.items():
        made = plan([ct.Query("q", ct.sum(name), ct.avg(name), window=ct.tumbling("10s"))])
        way, why = how(made, frame.schema, "ts")[0]
        assert way == ("columns" if kind.precision <= 28 else "python"), why
        if kind.precision > 28:
            assert why == f"a sum of decimals of {kind.precision} digits may not fit Spark's 38"


def test_expressions_are_those_of_spark(spark: Any) -> None:
    """The table of `test_decimals.py`, asked of Spark; what overflows is null without ANSI."""
    frame = spark.createDataFrame(
        pa.table({name: pa.array([ROW[name]], kind) for name, kind in TYPED.items()})
    )
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        found = frame.selectExpr(*(f"{text} AS x{n}" for n, text in enumerate(EXPRESSIONS)))
        table = found.toArrow()
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)
    wrong = {}
    for n, (text, (kind, value)) in enumerate(EXPRESSIONS.items()):
        column = table.column(f"x{n}")
        if (column.type, column[0].as_py()) != (kind, value):
            wrong[text] = (str(column.type), column[0].as_py())
    assert not wrong
