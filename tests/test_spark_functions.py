"""Functions beside those of the same name in a real Spark, over the same events."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import catchment as ct
from catchment.testing.compare import same
from small_tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

SIZES = (1, 2, 7, 200, 201, 3000)


def events(size: int) -> dict[str, list[Any]]:
    dice = random.Random(size)
    return {
        "i": [int(dice.paretovariate(0.8)) for _ in range(size)],
        "d": [dice.gauss(0, 10) for _ in range(size)],
        "f": [dice.randrange(-64, 64) / 8 for _ in range(size)],
        "s": [f"text {dice.randrange(size)} é" for _ in range(size)],
    }


def ours(columns: dict[str, list[Any]], select: str) -> dict[str, Any]:
    """What this engine makes of events that come in three batches."""
    query = ct.sql(f"SELECT {select} FROM events GROUP BY window(ts, '1 minute')", "q")
    engine = ct.Engine([query])
    size = len(columns["i"])
    types = {"f": pa.float32()}
    arrays = {name: pa.array(column, types.get(name)) for name, column in columns.items()}
    whole = table(range(size), **arrays)
    for low in range(0, size, size // 3 + 1):
        engine.push(whole.slice(low, size // 3 + 1))
    (row,) = engine.close()["q"].to_pylist()
    return dict(row)


SKETCHED = {
    "hll_i": "hll_sketch_agg(i)",
    "hll_s": "hll_sketch_agg(s)",
    "theta_i": "theta_sketch_agg(i)",
    "theta_s": "theta_sketch_agg(s)",
    "theta_d": "theta_sketch_agg(d)",
    "theta_f": "theta_sketch_agg(f)",
    "kll_i": "kll_sketch_agg_bigint(i)",
    "kll_d": "kll_sketch_agg_double(d)",
    "kll_f": "kll_sketch_agg_float(f)",
}
"""The same text for both."""


def test_spark_reads_and_merges_sketches(spark: SparkSession) -> None:
    """Its own sketch of the same values adds nothing to a distinct count, and as many values
    again to quantiles."""
    select = ", ".join(f"{call} AS {name}" for name, call in SKETCHED.items())
    sketches, raw = [], []
    for size in SIZES:
        columns = events(size)
        made = ours(columns, select)
        sketches.append((size, *(made[name] for name in SKETCHED)))
        raw += [(size, *row) for row in zip(*columns.values(), strict=True)]
    schema = "size int, " + ", ".join(f"{name} binary" for name in SKETCHED)
    spark.createDataFrame(sketches, schema).createOrReplaceTempView("ours")
    spark.createDataFrame(
        raw, "size int, i bigint, d double, f float, s string"
    ).createOrReplaceTempView("events")
    spark.sql(f"SELECT size, {select} FROM events GROUP BY size").createOrReplaceTempView("theirs")
    types = {"i": "bigint", "d": "double", "f": "float"}
    read = []
    for name in SKETCHED:
        family, column = name.split("_")
        if family == "kll":
            kind = types[column]
            merged = f"kll_sketch_merge_{kind}(ours.{name}, theirs.{name})"
            read += [
                f"kll_sketch_get_n_{kind}(ours.{name}) AS {name}_n",
                f"kll_sketch_get_quantile_{kind}(ours.{name}, 0.0D) AS {name}_least",
                f"kll_sketch_get_quantile_{kind}(ours.{name}, 0.5D) AS {name}_middle",
                f"kll_sketch_get_n_{kind}({merged}) AS {name}_both",
                f"kll_sketch_get_quantile_{kind}({merged}, 0.5D) AS {name}_merged",
            ]
        else:
            merged = f"{family}_union(ours.{name}, theirs.{name})"
            read += [
                f"{family}_sketch_estimate(ours.{name}) AS {name}_n",
                f"{family}_sketch_estimate({merged}) AS {name}_both",
            ]
    found = spark.sql(f"SELECT size, {', '.join(read)} FROM ours JOIN theirs USING (size)")
    for row in found.collect():
        columns = events(row["size"])
        for name in SKETCHED:
            known = columns[name[-1]]
            n, both = row[f"{name}_n"], row[f"{name}_both"]
            if not name.startswith("kll"):
                assert n == pytest.approx(len(set(known)), rel=0.06)
                assert both == pytest.approx(n, rel=0.03)
                continue
            assert (n, both) == (len(known), 2 * len(known))
            assert row[f"{name}_least"] == min(known)
            for middle in (row[f"{name}_middle"], row[f"{name}_merged"]):
                below = sum(value < middle for value in known) / len(known)
                up_to = sum(value <= middle for value in known) / len(known)
                slack = 1.01 / len(known) + (0 if len(known) <= 200 else 0.03)
                assert below - slack <= 0.5 <= up_to + slack


def test_sketches_are_intersected_in_spark(spark: SparkSession) -> None:
    one, two = (
        ours({"i": list(range(low, low + 1000))}, "theta_sketch_agg(i) AS x")["x"]
        for low in (0, 400)
    )
    frame = spark.createDataFrame([(one, two)], "one binary, two binary")
    (row,) = frame.selectExpr("theta_sketch_estimate(theta_intersection(one, two)) AS n").collect()
    assert row.n == 600


def test_counts_as_sparks_own(spark: SparkSession) -> None:
    """While values are few, the answers of both are exact; of the equally frequent, any.

    Spark leaves equal bins of several partitions apart, so it gets one partition.
    """
    calls = [f"histogram_numeric({column}, 3000)" for column in "ifd"]
    numbered = [f"{call} AS x{n}" for n, call in enumerate(calls)]
    for size in SIZES[:-1]:
        columns = events(size)
        others = ["approx_top_k(i, 3) AS top", "try_sum(i) AS total"]
        made = ours(columns, ", ".join([*numbered, *others]))
        rows = list(zip(*columns.values(), strict=True))
        frame = spark.createDataFrame(rows, "i bigint, d double, f float, s string").coalesce(1)
        (row,) = frame.selectExpr(*numbered, *others).collect()
        for n in range(len(calls)):
            theirs = [{"x": one.x, "y": one.y} for one in row[f"x{n}"]]
            assert same(theirs, made[f"x{n}"]), (size, calls[n])
        assert row.total == made["total"]
        assert [one["count"] for one in row.top] == [one["count"] for one in made["top"]]
        counts = {one["item"]: columns["i"].count(one["item"]) for one in made["top"]}
        assert all(counts[one["item"]] == one["count"] for one in made["top"])
