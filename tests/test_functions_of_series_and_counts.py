"""Values by how often they occur, samples of a series, and sketches as bytes."""

from __future__ import annotations

import math
import random
from typing import Any

import datasketches as ds
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.errors import CatchmentError, QueryError
from catchment.functions import make
from catchment.model.query import Aggregate
from catchment.testing.compare import assert_same
from catchment.testing.oracle import oracle_run
from catchment.testing.oracle_functions import Approximately, aggregate
from catchment.testing.strategies import PARAMS, SERIES
from small_tables import SECOND, everything, examples, table, values

MINUTE = ct.tumbling("1m")


def one(made: Aggregate, *tables: pa.Table) -> Any:
    """The result of one window."""
    query = ct.Query("q", made.alias("x"), window=MINUTE)
    ((found,),) = values(everything([query], *tables), "q")
    return found


# Samples of a series: the order of time decides, in whatever order and batches events come.

EVENTS = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.sampled_from(["a", "b"]),
        st.none() | st.integers(-8, 8).map(lambda i: i / 4),
    ),
    max_size=25,
)


@examples(1)
@given(EVENTS, st.lists(st.integers(0, 25), max_size=3), st.sampled_from([(10, 10), (12, 4)]))
def test_series_against_the_oracle(
    rows: list[tuple[int, str, float | None]], cuts: list[int], window: tuple[int, int]
) -> None:
    made = [make(name, "v", params) for name in SERIES for params in PARAMS.get(name, ((),))]
    made.append(ct.ewma("v", "4us"))
    labelled = [a.alias(f"x{n}") for n, a in enumerate(made)]
    query = ct.Query("q", *labelled, by="k", window=ct.sliding(*(f"{t}us" for t in window)))
    engine = ct.Engine([query], lateness="50us")
    plain = [{"ts": t, "k": k, "v": v} for t, k, v in rows]
    for low, high in zip([0, *sorted(cuts)], [*sorted(cuts), len(rows)], strict=True):
        part = plain[low:high]
        engine.push(
            table(
                [row["ts"] for row in part],
                k=pa.array([row["k"] for row in part], pa.string()),
                v=pa.array([row["v"] for row in part], pa.float64()),
            )
        )
    steps: Any = [("push", plain), ("close",)]
    (expected,) = oracle_run([query], steps, lateness="50us")
    assert_same(expected["q"], engine.close()["q"], keys=["k"])


def test_infinities_of_both_signs_have_no_mean() -> None:
    """Neither here nor in the oracle, whose exact sum refuses them."""
    both = [-math.inf, math.inf, 1.0]
    assert math.isnan(one(ct.ewma("v", "10s"), table([n * SECOND for n in range(3)], v=both)))
    rows: Any = [{"ts": n * SECOND, "v": value} for n, value in enumerate(both)]
    query = ct.Query("q", ct.ewma("v", "10s").alias("x"), window=MINUTE)
    (found,) = oracle_run([query], [("push", rows), ("close",)])
    assert math.isnan(found["q"][0]["x"])


def test_counters_begin_again() -> None:
    counter = table([n * SECOND for n in (0, 10, 20, 30)], v=[5, 8, 2, 4])
    assert one(ct.increase("v"), counter) == 3 + 2 + 2
    assert one(ct.rate("v"), counter) == 7 / 30
    assert one(ct.increase("v"), counter.slice(0, 1)) is None
    assert one(ct.rate("v"), table([0, 0], v=[5, 8])) is None
    assert math.isnan(one(ct.increase("v"), table([0, 1, 2], v=[1.0, math.nan, 5.0])))


def test_means_over_time() -> None:
    samples = table([0, 10 * SECOND, 40 * SECOND], v=[1.0, 4.0, 10.0])
    assert one(ct.time_weighted_avg("v"), samples) == (10 * 1 + 30 * 4) / 40
    assert one(ct.time_weighted_avg("v", "linear"), samples) == (10 * 2.5 + 30 * 7) / 40
    assert one(ct.time_weighted_avg("v"), table([3, 3], v=[1, 2])) == 2.0
    assert one(ct.time_weighted_avg("v"), table([3], v=pa.nulls(1, pa.float64()))) is None


def test_what_is_too_old_counts_for_nothing() -> None:
    samples = table([0, 50 * SECOND], v=[math.inf, 2.0])
    assert one(ct.ewma("v", "1ms"), samples) == 2.0
    assert one(ct.ewma("v", "1h"), samples) == math.inf


def test_the_value_of_the_window_before() -> None:
    """As docs/sql.md writes it: a window of windows."""
    query = ct.sql(
        "WITH minutes AS (SELECT k, sum(v) AS a FROM events GROUP BY k, window(ts, '1 second')) "
        "SELECT k, last(a) AS now, first(a) AS before FROM minutes "
        "GROUP BY k, window(window_time, '2 seconds', '1 second') HAVING count(*) = 2",
        "q",
    )
    seconds = [0, 1, 1, 2, 4, 5]
    events = table([n * SECOND for n in seconds], k=list("aaabaa"), v=[1, 2, 3, 4, 5, 6])
    rows = ct.run(events, query, spark=False)["q"].to_pylist()
    assert [(row["k"], row["before"], row["now"]) for row in rows] == [("a", 1, 5), ("a", 5, 6)]


# Counts.


def test_top_k_is_exact_and_has_an_order() -> None:
    texts = table(range(7), v=["b", "a", None, "c", "a", "b", "d"])
    assert one(ct.top_k("v", 3), texts) == [
        {"item": "a", "count": 2},
        {"item": "b", "count": 2},
        {"item": "c", "count": 1},
    ]
    assert one(ct.top_k("v"), table([1], v=pa.nulls(1, pa.string()))) == []
    query = ct.Query("q", ct.top_k("v").alias("x"), window=MINUTE)
    found = everything([query], table([1], v=pa.array([1], pa.int8())))["q"]
    assert found.schema.field("x").type == pa.list_(
        pa.struct([("item", pa.int8()), ("count", pa.int64())])
    )


def test_what_is_frequent_is_found_among_more_values_than_there_are_places() -> None:
    dice = random.Random(7)
    stream = [dice.choice([1, 2, 3]) if dice.random() < 0.6 else n for n in range(4, 5004)]
    parts = [stream[n : n + 700] for n in range(0, 5000, 700)]
    tables = [table(range(len(part)), v=part) for part in parts]
    wanted = aggregate("approx_top_k", stream, (3, 50))
    assert isinstance(wanted, Approximately)
    assert wanted.accepts(one(ct.approx_top_k("v", 3, 50), *tables))
    assert one(ct.approx_top_k("v", 3), *tables) == one(ct.top_k("v", 3), *tables)


@pytest.mark.parametrize("shape", ["normal", "lognormal", "equal", "exponents"])
def test_histograms_keep_the_number_and_the_mean(shape: str) -> None:
    source = np.random.default_rng(3)
    drawn = {
        "normal": source.normal(size=5000),
        "lognormal": source.lognormal(2, 2, 5000),
        "equal": np.full(5000, 0.1),
        "exponents": 1.5 ** np.arange(1000),
    }[shape]
    parts = [table(range(len(part)), v=part) for part in np.array_split(drawn, 4)]
    wanted = aggregate("histogram_numeric", drawn.tolist(), (30,))
    found = one(ct.histogram_numeric("v", 30), *parts)
    assert wanted.accepts(found) if isinstance(wanted, Approximately) else wanted == found
    if shape == "normal":  # half of the values are below the middle
        below = sum(bin["y"] for bin in found if bin["x"] < 0)
        assert 0.4 < below / 5000 < 0.6


@examples(1)
@given(
    st.lists(st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, math.inf]), min_size=1),
    st.sampled_from([0.0, 0.3, 0.5, 0.99, 1.0]),
    st.sampled_from([0.0001, 0.01, 0.5]),
)
def test_quantiles_are_within_the_relative_error(
    numbers: list[float], q: float, error: float
) -> None:
    numbers = [0.0 if abs(v) < 1e-300 else v for v in numbers]
    wanted = aggregate("quantile_dd", numbers, (q, error))
    found = one(ct.quantile_dd("v", q, error), table(range(len(numbers)), v=numbers))
    accepted = wanted.accepts(found) if isinstance(wanted, Approximately) else wanted == found
    assert accepted, (wanted, found)


# Sketches as bytes.


@pytest.mark.parametrize("size", [0, 1, 2, 200, 5000, 40_000])
def test_theta_sketches_are_the_same_however_they_are_cut(size: int) -> None:
    numbers = np.random.default_rng(size).integers(0, 10**12, size)
    known = pa.array(numbers if size else [None], pa.int64())
    whole = table(range(len(known)), v=known)
    data = one(ct.theta_sketch_agg("v"), whole)
    cut = [whole.slice(n, 3000) for n in range(0, whole.num_rows, 2000)]  # some values twice
    assert one(ct.theta_sketch_agg("v"), *cut) == data
    sketch = ds.compact_theta_sketch.deserialize(data)
    assert sketch.is_empty() == (size == 0) and sketch.is_ordered()
    assert sketch.get_estimate() == pytest.approx(len(set(numbers.tolist())), rel=0.05)
    theirs = ds.update_theta_sketch(12)
    for number in numbers.tolist():
        theirs.update(number)
    both = ds.theta_union(12)
    both.update(sketch)
    both.update(theirs)
    assert both.get_result().get_estimate() == pytest.approx(sketch.get_estimate(), rel=0.03)


def test_sketches_of_texts_hash_as_datasketches_does() -> None:
    texts = ["a", "å", "x" * 40]
    data = one(ct.theta_sketch_agg("v"), table(range(3), v=texts))
    theirs = ds.update_theta_sketch(12)
    for text in texts:
        theirs.update(text)
    assert list(ds.compact_theta_sketch.deserialize(data)) == sorted(theirs)


@pytest.mark.parametrize(
    ("made", "empty"),
    [
        (ct.hll_sketch_agg("v"), ds.hll_sketch(12, ds.HLL_8).serialize_compact()),
        (ct.kll_sketch_agg_double("v"), ds.kll_doubles_sketch(200).serialize()),
        (ct.kll_sketch_agg_float("v"), ds.kll_floats_sketch(200).serialize()),
        (ct.kll_sketch_agg_bigint("v"), ds.kll_floats_sketch(200).serialize()),
    ],
)
def test_sketches_of_nothing_are_sketches(made: Aggregate, empty: bytes) -> None:
    assert one(made, table([1], v=pa.nulls(1, pa.int64()))) == empty


@pytest.mark.parametrize("size", [1, 2, 200, 5000])
def test_quantile_sketches_of_floats(size: int) -> None:
    numbers = np.random.default_rng(size).normal(size=size).astype(np.float32)
    parts = [table(range(len(part)), v=part) for part in np.array_split(numbers, min(size, 3))]
    sketch = ds.kll_floats_sketch.deserialize(one(ct.kll_sketch_agg_float("v"), *parts))
    assert sketch.n == size
    assert (sketch.get_min_value(), sketch.get_max_value()) == (numbers.min(), numbers.max())
    middle = sketch.get_quantile(0.5)
    assert abs(float((numbers <= middle).mean()) - 0.5) <= 1.01 / size + 0.02


# What is refused.


@pytest.mark.parametrize(
    ("name", "params", "told"),
    [
        ("top_k", (0,), "top_k takes a column and how many values"),
        ("top_k", (True,), "top_k takes a column and how many values"),
        ("top_k", (1, 2), "top_k takes a column and how many values"),
        ("approx_top_k", (5, 4), "approx_top_k takes a column, how many values"),
        ("approx_top_k", ("a",), "approx_top_k takes a column, how many values"),
        ("histogram_numeric", (), "histogram_numeric takes a column and a number of bins"),
        ("histogram_numeric", (1,), "histogram_numeric takes a column and a number of bins"),
        ("quantile_dd", (2,), "quantile_dd takes one number from 0 to 1"),
        ("quantile_dd", (0.5, 0.9), "the relative error of quantile_dd"),
        ("time_weighted_avg", ("cubic",), "time_weighted_avg takes a column"),
        ("increase", (1,), "increase takes a column and nothing else"),
        ("rate", ("1s",), "rate takes a column and nothing else"),
        ("ewma", (), "ewma takes a column and a half-life"),
        ("ewma", ("soon",), "half-life of ewma"),
        ("ewma", ("0s",), "a half-life, which is a positive duration"),
        ("ewma", ("-1s",), "half-life"),
        ("hll_sketch_agg", (14,), "hll_sketch_agg makes sketches of one size, which is 12"),
        ("kll_sketch_agg_bigint", (100,), "makes sketches of one size, which is 200"),
        ("theta_sketch_agg", (3,), "theta_sketch_agg takes a column and a size from 4 to 26"),
    ],
)
def test_other_parameters_are_refused(name: str, params: tuple[Any, ...], told: str) -> None:
    with pytest.raises(QueryError, match=told):
        make(name, "v", params)


@pytest.mark.parametrize(
    ("name", "type"),
    [
        ("top_k", pa.list_(pa.int64())),
        ("ewma", pa.string()),
        ("rate", pa.bool_()),
        ("histogram_numeric", pa.string()),
        ("hll_sketch_agg", pa.float64()),
        ("theta_sketch_agg", pa.decimal128(4, 2)),
        ("kll_sketch_agg_bigint", pa.uint64()),
        ("kll_sketch_agg_double", pa.string()),
    ],
)
def test_other_types_are_refused(name: str, type: pa.DataType) -> None:
    made = make(name, "v", PARAMS.get(name, ((),))[0])
    engine = ct.Engine([ct.Query("q", made, window=MINUTE)])
    with pytest.raises(CatchmentError, match=f"{name} needs"):
        engine.push(table([1], v=pa.nulls(1, type)))
