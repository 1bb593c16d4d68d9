"""Functions that users define: three plain ones, or an operator over columns."""

from __future__ import annotations

import math
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import catchment as ct
from catchment.functions import Function
from catchment.model.query import Aggregate
from catchment.operators import Computed, Fields, Grouping, Input, Operator, OperatorRef
from small_tables import SECOND, everything, seconds, table, values

norm = ct.function("t_norm", lift=lambda v: v * v, combine=lambda a, b: a + b, lower=math.sqrt)
mean = ct.function(
    "t_mean",
    lift=lambda v: (v, 1),
    combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    lower=lambda s: s[0] / s[1],
)
path = ct.function(
    "t_path",
    lift=str,
    combine=lambda a, b: a + b,
    lower=lambda s: s,
    result=pa.string(),
    commutative=False,
)
TUMBLING = ct.tumbling("10s")


def one(aggregate: Aggregate, *tables: pa.Table, window: Any = TUMBLING, **options: Any) -> Any:
    query = ct.Query("q", aggregate.alias("x"), window=window, **options)
    return values(everything([query], *tables), "q")


def test_three_plain_functions() -> None:
    assert one(norm("v"), table([1, 2], v=[3, 4])) == [(5.0,)]
    assert one(mean("v"), table([1, 2], v=[3, 4]), table([3], v=[8])) == [(5.0,)]
    assert one(norm("a + b"), table([1, 2], a=[1, 2], b=[2, 2])) == [(5.0,)]


def test_nulls_are_not_lifted() -> None:
    strict = ct.function(
        "t_strict", lift=lambda v: [v + 0], combine=lambda a, b: a + b, lower=len, result=pa.int64()
    )
    assert one(strict("v"), table([1, 2, 3], v=[3, None, 4])) == [(2,)]
    assert one(strict("v"), table([1], v=pa.nulls(1, pa.int64()))) == [(None,)]


def test_lower_may_give_null() -> None:
    some = ct.function("t_null", lift=int, combine=max, lower=lambda s: s if s > 3 else None)
    assert sorted(one(some("v"), seconds([1, 11], v=[1, 5])), key=str) == [(5.0,), (None,)]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["å"]), "å"),
        (pa.array([b"x"]), b"x"),
        (pa.array([1.5]), 1.5),
        (pa.array([7], pa.uint8()), 7),
        (pa.array([True]), True),
        (pa.array([[1]]), [1]),
        (pa.array([{"a": 1}]), {"a": 1}),
        (pa.array(["d"]).dictionary_encode(), "d"),
        (pa.array([date(2026, 1, 31)]), date(2026, 1, 31)),
        (pa.array([timedelta(seconds=1)]), timedelta(seconds=1)),
    ],
)
def test_values_of_every_kind_are_lifted_as_python(column: pa.Array, expected: Any) -> None:
    seen: list[Any] = []
    spy = ct.function(
        "t_seen", lift=lambda v: seen.append(v) or 0, combine=lambda a, b: 0, lower=float
    )
    one(spy("v"), table([1], v=column))
    assert seen == [expected] and type(seen[0]) is type(expected)


@pytest.mark.parametrize(
    "state",
    [
        (1, (2.5, "a")),
        [1, [2]],
        {"a": (1, 2), "b": None},
        {(1, 2): 3},
        "text",
        None,
        True,
        math.inf,
        math.nan,
        2**80,
        {"()": 1},
        {"{}": [1]},
        (),
        [],
        {},
        {1: "int key"},
        np.float64(2.5),
    ],
)
def test_states_survive_merging_and_snapshots(state: Any) -> None:
    """A state comes out of every round trip as it went in, tuples as tuples."""
    got: list[Any] = []
    ct.function(
        "t_state",
        lift=lambda v: state,
        combine=lambda a, b: a,
        lower=lambda s: got.append(s) or 0.0,
    )
    query = ct.Query("q", ct.functions.make("t_state", "v"), window=TUMBLING)
    engine = ct.Engine([query])
    engine.push(table([1], v=[1]))
    engine = ct.Engine.restore(engine.snapshot())
    engine.push(table([2], v=[1]))
    assert values(engine.close(), "q") == [(0.0,)]
    assert repr(got) == repr([state.item() if isinstance(state, np.generic) else state])


@pytest.mark.parametrize("state", [{1, 2}, object(), b"bytes", 1j, [object()], {"a": {1}}])
def test_a_state_that_cannot_be_kept_is_refused(state: Any) -> None:
    ct.function("t_bad", lift=lambda v: state, combine=lambda a, b: a, lower=lambda s: 0.0)
    with pytest.raises(ct.QueryError) as caught:
        one(ct.functions.make("t_bad", "v"), table([1], v=[1]))
    assert "must be made of numbers, texts, lists, tuples and dicts" in caught.value.what
    assert caught.value.given == repr(state)[:80]
    assert caught.value.hint


def shuffled(aggregate: Aggregate, window: Any, **options: Any) -> Any:
    """Ten letters in order of time, out of order in two batches, with a frontier between."""
    order = [3, 0, 2, 1, 4, 9, 6, 5, 8, 7]
    query = ct.Query("q", aggregate.alias("x"), window=window, **options)
    engine = ct.Engine([query])
    found = []
    for part, frontier in ((order[:5], 4), (order[5:], 9)):
        engine.push(seconds(part, v=["abcdefghij"[i] for i in part], k=[i % 2 for i in part]))
        found += values(engine.advance(frontier * SECOND), "q")
        engine = ct.Engine.restore(engine.snapshot())
    return found + values(engine.close(), "q")


def test_order_of_time_where_it_matters() -> None:
    assert shuffled(path("v"), ct.tumbling("5s")) == [("abcde",), ("fghij",)]
    assert shuffled(path("v"), ct.sliding("6s", "3s")) == [
        ("abc",),
        ("abcdef",),
        ("defghi",),
        ("ghij",),
        ("j",),
    ]
    assert shuffled(path("v"), ct.session("2s")) == [("abcdefghij",)]
    assert shuffled(path("v"), ct.session("1s")) == [("abcdefghij",)]
    assert shuffled(path("v"), ct.count_tumbling(3)) == [("abc",), ("def",), ("ghi",)]
    assert shuffled(path("v"), ct.count_sliding(4, 3)) == [("abcd",), ("defg",), ("ghij",)]
    assert shuffled(path("v"), ct.cut("v IN ('c', 'f')")) == [("ab",), ("cde",)]
    assert shuffled(path("v"), ct.between("v = 'b'", "v = 'i'")) == [("bcdefghi",)]
    assert sorted(shuffled(path("v"), ct.tumbling("10s"), by="k")) == [(0, "acegi"), (1, "bdfhj")]


def test_order_of_time_beside_other_functions_and_windows() -> None:
    queries = [
        ct.Query("path", path("v"), ct.count(), window=ct.sliding("4s", "1s")),
        ct.Query("most", ct.max("v"), window=ct.tumbling("4s")),
        ct.Query("quiet", path("v"), window=ct.session("1s")),
    ]
    order = [2, 0, 1, 3]
    found = everything(queries, *(seconds([i], v=["abcd"[i]]) for i in order))
    assert ("abcd", 4) in values(found, "path")
    assert values(found, "most") == [("d",)]
    assert values(found, "quiet") == [("abcd",)]


def test_ties_in_time_are_in_order_of_arrival() -> None:
    assert one(path("v"), table([5, 5], v=["a", "b"]), table([5, 1], v=["c", "z"])) == [("zabc",)]


def test_order_over_nodes() -> None:
    query = ct.Query("q", path("v").alias("x"), window=TUMBLING)
    plan = ct.plan([query])
    events = ((3, "c"), (1, "a"), (2, "b"))
    parts = [ct.slice(table([at], v=[v]), plan, node=at) for at, v in events]
    assert values(ct.assemble(ct.merge(parts, plan), None, plan), "q") == [("abc",)]


def test_late_events_take_their_place() -> None:
    query = ct.Query("q", path("v").alias("x"), window=TUMBLING)
    engine = ct.Engine([query], late="update", keep="1h")
    engine.push(seconds([1, 3], v=["a", "c"]))
    assert values(engine.advance(10 * SECOND), "q") == [("ac", 0, False)]
    engine.push(seconds([2], v=["b"]))
    assert values(engine.close(), "q") == [("abc", 1, False)]


def test_the_type_of_the_result() -> None:
    text = ct.function(
        "t_text", lift=str, combine=max, lower=lambda s: [s], result=pa.list_(pa.string())
    )
    query = ct.Query("q", text("v").alias("x"), norm("v").alias("y"), window=TUMBLING)
    engine = ct.Engine([query])
    engine.push(table([1], v=[3]))
    for found in (engine.close()["q"], engine.close()["q"]):
        assert found.schema.field("x").type == pa.list_(pa.string())
        assert found.schema.field("y").type == pa.float64()


def test_defining_again_replaces() -> None:
    for factor in (1, 2):
        again = ct.function("t_again", lift=int, combine=max, lower=lambda s, f=factor: s * f)
        assert one(again("v"), table([1], v=[3])) == [(3.0 * factor,)]


@pytest.mark.parametrize("name", ["avg", "mean", "count", "percentile", "AVG"])
def test_the_names_of_built_in_functions_are_taken(name: str) -> None:
    with pytest.raises(ct.QueryError) as caught:
        ct.function(name, lift=float, combine=max, lower=float)
    assert str(caught.value) == f"a built-in function has this name (given: {name}); choose another"


@pytest.mark.parametrize("name", ["", "two words", "1st", "a.b"])
def test_a_name_must_be_a_word(name: str) -> None:
    with pytest.raises(ct.QueryError, match="must be a plain word"):
        ct.function(name, lift=float, combine=max, lower=float)


def test_parts_must_be_functions() -> None:
    with pytest.raises(ct.QueryError, match="lift, combine and lower must be functions"):
        ct.function("t_part", lift=float, combine=3, lower=float)  # type: ignore[arg-type]


def test_a_name_with_capitals_is_found_again() -> None:
    """SQL and plans look functions up by name."""
    big = ct.function("T_Big", lift=float, combine=max, lower=float)
    assert one(big("v"), table([1, 2], v=[1, 2])) == [(2.0,)]
    query = ct.sql("SELECT T_Big(v) AS x FROM events GROUP BY window(ts, '10 seconds')", "q")
    assert values(everything([query], table([1, 2], v=[1, 2])), "q") == [(2.0,)]


def test_from_sql_and_job_files() -> None:
    events = table([1, 2], v=[3, 4])
    query = ct.sql("SELECT t_norm(v) AS x FROM events GROUP BY window(ts, '10 seconds')", "q")
    job = ct.load_job(
        {"queries": [{"name": "q", "select": ["t_norm(v) AS x"], "window": "tumbling(10s)"}]}
    )
    assert query == job.build()[0]
    assert values(everything([query], events), "q") == [(5.0,)]


def test_an_error_in_a_function_comes_out_as_it_is() -> None:
    broken = ct.function("t_broken", lift=lambda v: 1 / v, combine=max, lower=float)
    with pytest.raises(ZeroDivisionError):
        one(broken("v"), table([1], v=[0]))


class Spread(Operator):
    """The least and greatest absolute value, over columns."""

    kind = "t_spread"

    @property
    def fields(self) -> dict[str, pa.DataType]:
        return {"low": pa.float64(), "high": pa.float64()}

    def lift(self, events: Input, lifted: Computed) -> Fields:
        size = np.abs(events.values.astype(np.float64))
        return {"low": events.groups.min(size), "high": events.groups.max(size)}

    def merge(self, rows: Computed, groups: Grouping, merged: Computed) -> Fields:
        mine = rows[self.ref]
        return {"low": groups.min(mine["low"]), "high": groups.max(mine["high"])}  # type: ignore[arg-type]


class SpreadOf(Function):
    name = "t_spread_of"

    def operators(self, aggregate: Aggregate) -> tuple[OperatorRef, ...]:
        return OperatorRef("t_spread", aggregate.column), OperatorRef("count", aggregate.column)

    def lower(self, aggregate: Aggregate, computed: Computed, type: pa.DataType | None) -> pa.Array:
        mine = computed[OperatorRef("t_spread", aggregate.column)]
        count = computed[OperatorRef("count", aggregate.column)]["count"]
        return pa.array(mine["high"] - mine["low"], mask=count == 0)  # type: ignore[operator, arg-type]


def test_an_operator_over_columns() -> None:
    ct.register_operator(Spread)
    ct.register_function(SpreadOf())
    aggregate = ct.functions.make("t_spread_of", "v")
    queries = [
        ct.Query(name, aggregate.alias("x"), ct.count("v"), by="k", window=window)
        for name, window in {
            "tumbling": TUMBLING,
            "sliding": ct.sliding("10s", "100ms"),
            "count": ct.count_tumbling(3),
        }.items()
    ]
    engine = ct.Engine(queries)
    engine.push(table([1, 2, 3], v=[-5, 2, None], k=["a", "a", "b"]))
    engine = ct.Engine.restore(engine.snapshot())
    engine.push(table([4], v=[9], k=["a"]))
    found = engine.close()
    assert sorted(values(found, "tumbling"), key=str) == [("a", 7.0, 3), ("b", None, 0)]
    assert len(values(found, "sliding")) == 200
    assert values(found, "count") == [("a", 7.0, 3)]
    with pytest.raises(ct.SchemaError, match="t_spread_of needs a number"):
        one(aggregate, table([1], v=["x"]))
