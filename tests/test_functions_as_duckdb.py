"""Functions against DuckDB's of the same meaning, over random events with nulls, in SQL."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import catchment as ct
from catchment.errors import CatchmentError
from catchment.functions import make
from catchment.testing.compare import assert_same, same
from catchment.testing.oracle_functions import aggregate as oracle_aggregate
from catchment.testing.strategies import OF_PAIRS

duckdb = pytest.importorskip("duckdb")

from sql_questions import answers, connect, events  # noqa: E402

ALIKE: dict[str, str] = {
    "bool_and(b)": "bool_and(b)",
    "every(v > 2)": "bool_and(v > 2)",
    "bool_or(b) FILTER (WHERE i > 2)": "bool_or(b) FILTER (WHERE i > 2)",
    "some(v > 9)": "bool_or(v > 9)",
    "any(i = 3)": "bool_or(i = 3)",
    "bit_and(i)": "bit_and(i)",
    "bit_or(i)": "bit_or(i)",
    "bit_xor(i + 1)": "bit_xor(i + 1)",
    **{
        f"{name}(v, i)": f"nullif({name}(v, i), 'nan'::DOUBLE)"
        for name in OF_PAIRS
        if name != "corr"
    },
    "corr(i, v) FILTER (WHERE b)": "nullif(corr(i, v) FILTER (WHERE b), 'nan'::DOUBLE)",
    "kurtosis(v)": "nullif(kurtosis_pop(v), 'nan'::DOUBLE)",
    "collect_list(v)": "coalesce(list(v ORDER BY ts) FILTER (WHERE v IS NOT NULL), [])",
    "array_agg(j)": "coalesce(list(j ORDER BY ts) FILTER (WHERE j IS NOT NULL), [])",
    "collect_set(i)": "coalesce(list(DISTINCT i ORDER BY i) FILTER (WHERE i IS NOT NULL), [])",
    "listagg(j, '-')": "string_agg(j, '-' ORDER BY ts)",
    "string_agg(k || j)": "string_agg(k || j, '' ORDER BY ts)",
    "max_by(j, ts)": "arg_max_null(j, ts)",
    "min_by(v, ts)": "arg_min_null(v, ts)",
    "max_by(i, v + tiny)": "arg_max_null(i, v + tiny)",
    "min_by(j, v + tiny) FILTER (WHERE i > 2)": "arg_min_null(j, v + tiny) FILTER (WHERE i > 2)",
}
"""Aggregates as Spark writes them, and as DuckDB does, which has NaN where Spark has null."""


@pytest.mark.parametrize("seed", range(8))
def test_the_same_as_duckdb(seed: int) -> None:
    table = events(Random(seed + 90))
    # A number that no two events share, so that there are no ties.
    unique = pa.array([n / 1024 for n in range(len(table))], pa.float64())
    table = table.append_column("tiny", unique)
    ours = ", ".join(f"{text} AS a{n}" for n, text in enumerate(ALIKE))
    theirs = ", ".join(f"{text} AS a{n}" for n, text in enumerate(ALIKE.values()))
    query = ct.sql(f"SELECT k, {ours} FROM events GROUP BY k, window(ts, '60 seconds')", "q")
    start = "date_trunc('minute', ts)"
    asked = (
        f"SELECT k, {start} AS window_start, {start} + INTERVAL 1 MINUTE AS window_end, {theirs} "
        f"FROM events GROUP BY k, {start}"
    )
    found = ct.run(table, [query], spark=False)["q"]
    with connect() as connection:
        assert_same(answers(connection, table, asked), found, f"seed {seed}", keys=["k"])


NARROW = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()]


@pytest.mark.parametrize("type", NARROW, ids=str)
def test_bits_keep_the_type_of_whole_numbers(type: pa.DataType) -> None:
    values = pa.array([1, 7, None, 3], type)
    window = ct.tumbling("1s")
    query = ct.Query("q", ct.bit_and("v"), ct.bit_or("v"), ct.bit_xor("v"), window=window)
    found = ct.run(
        {"ts": pa.array([1, 2, 3, 4], pa.timestamp("us")), "v": values}, query, spark=False
    )["q"]
    kept = [name for name in found.schema.names if name.startswith("bit")]
    assert [found[name].to_pylist() for name in kept] == [[1], [7], [5]]
    assert {found.schema.field(name).type for name in kept} == {type}


@pytest.mark.parametrize(
    ("made", "type", "told"),
    [
        (ct.bool_and("v"), pa.int64(), "bool_and needs a condition"),
        (ct.bit_or("v"), pa.float64(), "bit_or needs a whole number"),
        (ct.bit_or("v"), pa.uint64(), "bit_or needs a whole number"),
    ],
)
def test_other_types_are_refused(made: ct.Aggregate, type: pa.DataType, told: str) -> None:
    engine = ct.Engine([ct.Query("q", made, window=ct.tumbling("1s"))])
    events = {"ts": pa.array([1], pa.timestamp("us")), "v": pa.array([1], type)}
    with pytest.raises(CatchmentError, match=told):
        engine.push(pa.table(events))


def pushed(*batches: dict[str, pa.Array], query: ct.Query) -> list[dict[str, object]]:
    engine = ct.Engine([query])
    for batch in batches:
        engine.push(pa.table(batch))
    rows: list[dict[str, object]] = engine.close()["q"].to_pylist()
    return [{n: v for n, v in row.items() if not n.startswith("window")} for row in rows]


def at(times: list[int], **columns: pa.Array) -> dict[str, pa.Array]:
    return {"ts": pa.array(times, pa.timestamp("us")), **columns}


def test_of_equals_the_first_by_time_counts_whenever_it_comes() -> None:
    made = ct.max_by("s", "n").alias("most"), ct.min_by("s", "n").alias("least")
    later = at([5, 6], s=pa.array(["b", "c"]), n=pa.array([7, 7]))
    earlier = at([4, 7], s=pa.array(["a", "d"]), n=pa.array([7, None]))
    query = ct.Query("q", *made, window=ct.tumbling("1s"))
    assert pushed(later, earlier, query=query) == [{"most": "a", "least": "a"}]


def test_the_value_of_the_greatest_may_be_null_and_nan_is_the_greatest() -> None:
    query = ct.Query("q", ct.max_by("s", "v").alias("a"), window=ct.tumbling("1s"))
    values = pa.array([1.0, math.nan, math.inf, None])
    assert pushed(at([1, 2, 3, 4], s=pa.array(["a", None, "b", "c"]), v=values), query=query) == [
        {"a": None}
    ]
    nothing = at([1], s=pa.array(["a"]), v=pa.array([None], pa.float64()))
    assert pushed(nothing, query=query) == [{"a": None}]


def test_columns_of_a_function_of_several() -> None:
    with pytest.raises(CatchmentError, match="max_by needs 2 columns"):
        ct.max_by("v")
    with pytest.raises(CatchmentError, match="max_by takes 2 columns and nothing else"):
        ct.max_by("v", "n", 3)
    query = ct.sql("SELECT max_by(v, ts + 1) FROM e GROUP BY window(ts, '1 minute')", "q")
    assert [a.label for a in query.aggregates] == ["max_by(v, ts + 1)"]


OF_PAIRS = [
    "covar_pop",
    "covar_samp",
    "corr",
    "regr_count",
    "regr_avgx",
    "regr_avgy",
    "regr_slope",
    "regr_intercept",
    "regr_r2",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
]
Pairs = list[tuple[float | None, float | None]]
SPARK: list[tuple[Pairs, list[float | None]]] = [
    ([(None, 1.0)], [None, None, None, 0, *[None] * 8]),
    ([(1.0, 2.0)], [0.0, None, None, 1, 2.0, 1.0, None, None, None, 0.0, 0.0, 0.0]),
    ([(1.0, 2.0), (3.0, 2.0)], [0.0, 0.0, None, 2, 2.0, 2.0, None, None, None, 0.0, 2.0, 0.0]),
    ([(2.0, 1.0), (2.0, 5.0)], [0.0, 0.0, None, 2, 3.0, 2.0, 0.0, 2.0, 1.0, 8.0, 0.0, 0.0]),
    ([(2.0, 1.0), (2.0, 1.0)], [0.0, 0.0, None, 2, 1.0, 2.0, None, None, None, 0.0, 0.0, 0.0]),
    (
        [(1.0, 2.0), (2.0, 5.0), (7.0, 3.0), (None, 1.0)],
        [
            -0.11111111111111138,
            -0.16666666666666707,
            -0.033942211665106616,
            3,
            3.3333333333333335,
            3.3333333333333335,
            -0.07142857142857145,
            3.571428571428571,
            0.0011520737327188996,
            4.666666666666667,
            20.666666666666668,
            -0.33333333333333415,
        ],
    ),
]
"""Pairs (y, x), and what Spark's own functions of them give."""


@pytest.mark.parametrize(("pairs", "given"), SPARK)
def test_functions_of_pairs_are_those_of_spark(pairs: Pairs, given: list[float | None]) -> None:
    columns = {n: pa.array([p[i] for p in pairs], pa.float64()) for i, n in enumerate("yx")}
    made = [make(name, "y", ("x",)).alias(name) for name in OF_PAIRS]
    query = ct.Query("q", *made, window=ct.tumbling("1s"))
    (row,) = pushed(at(list(range(len(pairs))), **columns), query=query)
    for name, expected in zip(OF_PAIRS, given, strict=True):
        assert same(expected, row[name], 1e-12, 1e-12), name


@pytest.mark.parametrize(
    ("values", "skewness", "kurtosis"),
    [
        ([None], None, None),
        ([1.0], None, None),
        ([1.0, 4.0], 0.0, -2.0),
        ([2.0, 2.0, 2.0], None, None),
        ([0.1, 0.1, 0.1], None, None),
        ([1.0, 2.0, 7.0, None, 9.0], 0.09770939201338176, -1.7878967572797353),
        ([1.0, math.inf], math.nan, math.nan),
    ],
)
def test_the_shape_of_values_is_that_of_spark(
    values: list[float | None], skewness: float | None, kurtosis: float | None
) -> None:
    query = ct.Query("q", ct.skewness("v"), ct.kurtosis("v"), window=ct.tumbling("1s"))
    table = at(list(range(len(values))), v=pa.array(values, pa.float64()))
    (row,) = pushed(table, query=query)
    assert same(skewness, row["skewness(v)"], 1e-12, 1e-12)
    assert same(kurtosis, row["kurtosis(v)"], 1e-12, 1e-12)


@pytest.mark.parametrize(
    "type",
    [pa.int32(), pa.float32(), pa.uint64(), pa.decimal128(9, 2), pa.decimal128(38, 2)],
    ids=str,
)
def test_values_far_from_zero_keep_their_digits(type: pa.DataType) -> None:
    """In batches, so that partials are merged."""
    far = 10**6
    made = ct.corr("n", "v"), ct.regr_slope("n", "v"), ct.skewness("n"), ct.kurtosis("n")
    query = ct.Query("q", *made, window=ct.tumbling("1s"))
    numbers = [far + n * n % 7 for n in range(30)]
    others = [1e9 + 0.5 * (n % 11) for n in range(30)]
    parts = [range(low, low + 6) for low in range(0, 30, 6)]
    batches = [
        at(
            list(part),
            n=pa.array([numbers[i] for i in part], type),
            v=pa.array([others[i] for i in part]),
        )
        for part in parts
    ]
    (row,) = pushed(*batches, query=query)
    pairs: list[Any] = list(zip(numbers, others, strict=True))
    for aggregate in made:
        of = numbers if aggregate.function in ("skewness", "kurtosis") else pairs
        expected = oracle_aggregate(aggregate.function, of)
        assert same(expected, row[aggregate.text], 1e-9, 0.0), aggregate.text


def test_lists_are_in_order_of_time_however_events_come() -> None:
    made = ct.collect_list("n").alias("all"), ct.collect_set("n").alias("set")
    query = ct.Query("q", *made, ct.listagg("s", "+").alias("text"), window=ct.tumbling("1s"))
    later = at([5, 6, 6], n=pa.array([3, 1, None], pa.int8()), s=pa.array(["c", "d", "e"]))
    earlier = at([4, 5], n=pa.array([3, 2], pa.int8()), s=pa.array(["a", None]))
    assert pushed(later, earlier, query=query) == [
        {"all": [3, 3, 2, 1], "set": [1, 2, 3], "text": "a+c+d+e"}
    ]
    nothing = at([1], n=pa.array([None], pa.int8()), s=pa.array([None], pa.string()))
    assert pushed(nothing, query=query) == [{"all": [], "set": [], "text": None}]
    engine = ct.Engine([query])
    engine.push(pa.table(later))
    assert engine.close()["q"].schema.field("all").type == pa.list_(pa.int8())


@pytest.mark.parametrize("params", [(3,), ("a", "b")])
def test_a_separator_is_a_text(params: tuple[Any, ...]) -> None:
    with pytest.raises(CatchmentError, match="listagg takes a column and a separator"):
        ct.listagg("s", *params)
