"""Functions that users define over arrays: lift, combine and lower of whole columns."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import catchment as ct
from catchment.model.query import Aggregate
from catchment.simulate import World
from catchment.testing.compare import assert_same, rows_of
from catchment.testing.laws import check_laws
from small_tables import everything, table, values
from trees import batches, charter, final

TUMBLING = ct.tumbling("10us")


def _adding() -> Callable[[Any, Any], Any]:
    """A function that reaches Spark's workers, which do not have this file."""

    def added(one: Any, two: Any) -> Any:
        return {k: one[k] + two[k] for k in one} if isinstance(one, dict) else one + two

    return added


added = _adding()
"""Sums of states, of one column or of several."""
norm = ct.function("a_norm", lift=lambda v: v * v, combine=added, lower=np.sqrt, state=pa.float64())
mean = ct.function(
    "a_mean",
    lift=lambda v: {"n": np.ones(len(v), np.int64), "total": v},
    combine=added,
    lower=lambda s: s["total"] / s["n"],
    state={"n": pa.int32(), "total": pa.float64()},
)
path = ct.function(
    "a_path",
    lift=lambda v: v,
    combine=added,
    lower=lambda s: pa.array(s),
    state=pa.string(),
    result=pa.string(),
    commutative=False,
)
longest = ct.function(
    "a_longest",
    lift=lambda v: pc.utf8_length(pa.array(v)),
    combine=np.maximum,
    lower=lambda s: s,
    state=pa.int64(),
    result=pa.int32(),
)
PLAIN: dict[str, Callable[..., Aggregate]] = {
    "a_norm": ct.function("p_norm", lift=lambda v: v * v, combine=added, lower=math.sqrt),
    "a_mean": ct.avg,
    "a_path": ct.function(
        "p_path",
        lift=str,
        combine=added,
        lower=lambda s: s,
        result=pa.string(),
        commutative=False,
    ),
    "a_longest": lambda column: ct.max(f"length({column})"),
}
"""What gives the same, value by value."""
MADE = [norm("v"), mean("v"), path("s"), longest("s")]


def events(seed: int, size: int) -> pa.Table:
    dice = random.Random(seed)
    return table(
        [dice.randrange(60) for _ in range(size)],
        k=[dice.choice("abc") for _ in range(size)],
        v=pa.array([dice.choice([None, 0.25, 3.0, -2.5]) for _ in range(size)], pa.float64()),
        s=pa.array([dice.choice([None, "", "x", "yz"]) for _ in range(size)], pa.string()),
    )


@pytest.mark.parametrize("made", MADE, ids=str)
@pytest.mark.parametrize("window", [TUMBLING, ct.sliding("20us", "7us"), ct.session("3us")])
def test_the_same_as_value_by_value(made: Aggregate, window: Any) -> None:
    same = PLAIN[made.function](made.column)
    queries = [
        ct.Query("arrays", made.alias("x"), by="k", window=window),
        ct.Query("plain", same.alias("x"), by="k", window=window),
    ]
    for seed in range(10):
        whole = events(seed, 80)
        found = everything(queries, *(whole.slice(n, 9) for n in range(0, 80, 9)), lateness="1s")
        assert_same(rows_of(found["plain"]), found["arrays"].cast(found["plain"].schema))


@pytest.mark.parametrize("made", MADE, ids=str)
def test_the_laws_hold(made: Aggregate) -> None:
    query = ct.Query("q", made.alias("x"), by="k", window=ct.sliding("20us", "10us"))
    check_laws(query, events(5, 120))


def test_in_sql_and_out_of_snapshots() -> None:
    query = ct.sql("SELECT a_mean(v) AS x FROM events GROUP BY window(ts, '1 second')", "q")
    engine = ct.Engine([query])
    engine.push(table([1, 2], v=[1.0, 2.0]))
    engine = ct.Engine.restore(engine.snapshot())
    engine.push(table([3], v=[6.0]))
    assert values(engine.close(), "q") == [(3.0,)]


def test_calls_are_few() -> None:
    calls: list[int] = []

    def combine(one: Any, two: Any) -> Any:
        calls.append(len(one))
        return one + two

    counted = ct.function(
        "a_counted", lift=np.ones_like, combine=combine, lower=lambda s: s, state=pa.float64()
    )
    query = ct.Query("q", counted("v").alias("x"), by="k", window=ct.tumbling("1s"))
    keys = [n % 100 for n in range(6400)]
    found = everything([query], table(range(6400), k=keys, v=np.ones(6400)))
    assert {x for _, x in values(found, "q")} == {64.0}
    assert len(calls) <= 7 and sum(calls) == 6300


def test_in_a_tree() -> None:
    queries = [
        ct.Query("q", norm("v").alias("x"), mean("v").alias("y"), by="k", window=ct.tumbling("3s")),
        ct.Query("in_order", path("m").alias("x"), window=ct.tumbling("5s")),
    ]
    parents = {"root": None, "m": "root", "l0": "m", "l1": "m", "l2": "root"}
    given = {id: batches(n, 60) for n, id in enumerate(("l0", "l1", "l2"))}
    world = World(charter(parents, queries), given, until=0)
    world.run()
    assert world.done
    engine = ct.Engine(queries, lateness="1h")
    for tables in given.values():
        for one in tables:
            engine.push(one)
    expected = engine.close()
    for query in queries:
        kept = expected[query.name].column_names
        found = [{k: row[k] for k in kept} for row in final(world.deliveries, query.name)]
        assert_same(found, expected[query.name], query.name, keys=list(query.keys))


@pytest.mark.spark
def test_on_spark(spark: Any) -> None:
    pytest.importorskip("pyspark")
    query = ct.Query("q", *MADE, by="k", window=TUMBLING)
    whole = events(1, 200)
    expected = ct.run(whole, query, spark=False)["q"]
    assert_same(rows_of(expected), ct.run(whole, query, spark=spark)["q"])


# What is refused.


@pytest.mark.parametrize(
    "state",
    [pa.list_(pa.int64()), pa.uint64(), {}, {"a": pa.bool_()}, {"a": "int"}, {1: pa.int64()}],
)
def test_states_of_other_types_are_refused(state: Any) -> None:
    with pytest.raises(ct.QueryError, match=r"type of a state|no columns") as caught:
        ct.function("a_bad", lift=abs, combine=max, lower=abs, state=state)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"lift": lambda v: v[:-1]}, "lift of a_wrong must give one row for each that it takes"),
        ({"lift": lambda v: 1.0}, "lift of a_wrong must give one row .*no flat array"),
        ({"lift": lambda v: {"x": v}}, "lift of a_wrong must give one array"),
        ({"combine": lambda a, b: a[:0]}, "combine of a_wrong must give one row .*0 rows for 1"),
        ({"lower": lambda s: [1.0, 2.0]}, "lower of a_wrong must give one row .*2 rows for 1"),
    ],
)
def test_functions_must_give_as_many_rows(parts: dict[str, Any], told: str) -> None:
    usual: dict[str, Any] = {"lift": lambda v: v, "combine": added, "lower": lambda s: s}
    wrong = ct.function("a_wrong", **{**usual, **parts}, state=pa.float64())
    query = ct.Query("q", wrong("v"), window=TUMBLING)
    with pytest.raises(ct.QueryError, match=told):
        values(everything([query], table([1, 2], v=[1.0, 2.0])), "q")


def test_a_dict_names_the_columns_of_the_state() -> None:
    wrong = ct.function(
        "a_dict", lift=lambda v: v, combine=added, lower=lambda s: s["a"], state={"a": pa.int64()}
    )
    with pytest.raises(ct.QueryError, match="lift of a_dict must give a dict of a"):
        everything([ct.Query("q", wrong("v"), window=TUMBLING)], table([1], v=[1]))
