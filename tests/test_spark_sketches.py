"""Sketches of partials in a real Spark: its functions read them, and merge them with its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import catchment as ct
from small_tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pyspark = pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

SIZES = (1, 5, 7, 8, 30, 200, 201, 384, 385, 1000, 30_000)
"""Of lists, sets and registers; of sketches that keep all values, and of several levels."""


def partials(name: str, values: pa.Array[Any]) -> tuple[list[bytes], bytes, int | float]:
    """The sketches of two nodes that read half of the values each, and of both; the result."""
    functions = {"hll": ct.approx_count_distinct("v"), "kll": ct.approx_median("v")}
    plan = ct.plan([ct.Query("q", functions[name].alias("found"), window=ct.tumbling("1m"))])
    halves = (values.slice(0, len(values) // 2), values.slice(len(values) // 2))
    parts = [
        ct.slice(table([0] * len(half), v=half), plan, node=node)
        for node, half in enumerate(halves)
        if len(half)
    ]
    merged = ct.merge(parts, plan)
    sketches = [
        data
        for part in (*parts, merged)
        for data in part.tables[0].column(f"{name}(v).sketch").to_pylist()
    ]
    (found,) = ct.assemble(merged, None, plan)["q"]["found"].to_pylist()
    return sketches[:-1], sketches[-1], found


def columns_of(size: int) -> dict[str, pa.Array[Any]]:
    numbers = np.random.default_rng(size).choice(10**7, size, replace=False)
    return {
        "number": pa.array(numbers),
        "text": pa.array([f"text {number} é" for number in numbers]),
        "data": pa.array([int(number).to_bytes(8, "big") + b"\xff" for number in numbers]),
    }


def test_spark_merges_distinct_counts_with_its_own(spark: SparkSession) -> None:
    """The values hash alike: Spark's own sketch of them adds nothing to ours."""
    ours, values, wanted = [], [], {}
    for size in SIZES:
        for kind, column in columns_of(size).items():
            halves, whole, found = partials("hll", column)
            id = f"{kind} {size}"
            ours += [(id, data) for data in (*halves, whole)]
            values += [(id, kind, *_placed(kind, value)) for value in column.to_pylist()]
            wanted[id] = found
    spark.createDataFrame(ours, "id string, sketch binary").createOrReplaceTempView("ours")
    schema = "id string, kind string, number long, text string, data binary"
    spark.createDataFrame(
        pa.Table.from_pylist(
            [
                dict(zip(("id", "kind", "number", "text", "data"), row, strict=True))
                for row in values
            ]
        ),
        schema,
    ).createOrReplaceTempView("events")
    merged = spark.sql(
        "SELECT id, hll_sketch_estimate(hll_union_agg(sketch)) n FROM ours GROUP BY id"
    )
    assert {row.id: row.n for row in merged.collect()} == wanted
    with_its_own = spark.sql(
        """SELECT id, hll_sketch_estimate(hll_union_agg(sketch)) n FROM (
             SELECT id, sketch FROM ours
             UNION ALL SELECT id, hll_sketch_agg(number, 12) FROM events
               WHERE kind = 'number' GROUP BY id
             UNION ALL SELECT id, hll_sketch_agg(text, 12) FROM events
               WHERE kind = 'text' GROUP BY id
             UNION ALL SELECT id, hll_sketch_agg(data, 12) FROM events
               WHERE kind = 'data' GROUP BY id
           ) GROUP BY id"""
    )
    assert {row.id: row.n for row in with_its_own.collect()} == wanted


def _placed(kind: str, value: Any) -> list[Any]:
    return [value if kind == name else None for name in ("number", "text", "data")]


def test_spark_reads_and_merges_quantiles(spark: SparkSession) -> None:
    rows, wanted, values = [], {}, {}
    for size in SIZES:
        values[size] = np.random.default_rng(size).normal(size=size)
        halves, _, wanted[size] = partials("kll", pa.array(values[size]))
        rows += [(size, data) for data in halves]
    spark.createDataFrame(rows, "size int, sketch binary").createOrReplaceTempView("ours")
    found = spark.sql(
        """SELECT size, kll_sketch_get_n_double(sketch) n,
             kll_sketch_get_quantile_double(sketch, 0.0D) least,
             kll_sketch_get_quantile_double(sketch, 0.5D) middle
           FROM (SELECT size, kll_merge_agg_double(sketch) sketch FROM ours GROUP BY size)"""
    ).collect()
    assert {row["size"]: row.n for row in found} == {size: size for size in SIZES}
    for row in found:
        known = values[row["size"]]
        for answer in (row.middle, wanted[row["size"]]):
            slack = 1.01 / len(known) + (0 if len(known) <= 200 else 0.02)
            assert abs(float((known <= answer).mean()) - 0.5) <= slack
