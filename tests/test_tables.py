"""Tables of every shape: empty, chunked, bad rows, far times, schemas that change."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

import catchment as ct
from small_tables import SECOND, everything, seconds, starts, table, values

COUNT = ct.Query("q", ct.count().alias("n"), window=ct.tumbling("10s"))
SUM = ct.Query("q", ct.sum("v").alias("s"), by="k", window=ct.tumbling("10s"))
ALL = [
    SUM,
    ct.Query("session", ct.sum("v").alias("s"), by="k", window=ct.session("1s")),
    ct.Query("count", ct.sum("v").alias("s"), by="k", window=ct.count_tumbling(1)),
    ct.Query("cut", ct.sum("v").alias("s"), by="k", window=ct.cut("v > 0")),
]


# Empty and chunked tables.


def test_empty_tables_first_last_and_between() -> None:
    events = table([1, 2], v=[1, 2], k=["a", "a"])
    nothing = events.slice(0, 0)
    no_chunks = pa.table(
        {name: pa.chunked_array([], events.schema.field(name).type) for name in events.schema.names}
    )
    found = everything(ALL, nothing, no_chunks, events, nothing, no_chunks)
    assert values(found, "q") == [("a", 3)]
    assert values(found, "session") == [("a", 3)]
    assert values(found, "count") == [("a", 1), ("a", 2)]
    assert values(found, "cut") == [("a", 1)]


def test_nothing_but_empty_tables() -> None:
    found = everything(ALL, table([], v=pa.array([], pa.int64()), k=pa.array([], pa.string())))
    for query in ALL:
        assert found[query.name].num_rows == 0
        assert found[query.name].schema.field("s").type == pa.int64()
        assert found[query.name].schema.field("k").type == pa.string()
    assert len(found) == 0


def test_nothing_at_all() -> None:
    engine = ct.Engine(ALL)
    assert engine.advance(5)["q"].num_rows == 0
    assert engine.close()["q"].column_names == ["k", "window_start", "window_end", "s"]


def test_record_batches_of_no_rows_and_some() -> None:
    (batch,) = table([1, 2], v=[1, 2], k=["a", "b"]).to_batches()
    engine = ct.Engine(ALL)
    engine.push(batch.slice(0, 0))
    engine.push(batch)
    assert sorted(values(engine.close(), "q")) == [("a", 1), ("b", 2)]


def test_chunks_cut_differently_in_each_column() -> None:
    times = pa.chunked_array([[1], [], [2, 3]], pa.timestamp("us"))
    events = pa.table({"ts": times, "v": pa.chunked_array([[1, 2], [3]]), "k": ["a", "b", "a"]})
    assert sorted(values(everything(ALL, events), "q")) == [("a", 4), ("b", 2)]


def test_a_table_is_not_changed_and_may_be_a_slice() -> None:
    events = table(range(10), v=list(range(10)), k=["a"] * 10)
    before = events.to_pylist()
    found = everything(ALL, events.slice(3, 4))
    assert values(found, "q") == [("a", 3 + 4 + 5 + 6)]
    assert events.to_pylist() == before


# Schemas.


def test_columns_in_another_order_and_more_of_them() -> None:
    first = table([1], v=[1], k=["a"])
    second = pa.table({"x": [None], "k": ["a"], "v": [2], "ts": first["ts"]})
    assert values(everything(ALL, first, second, first), "q") == [("a", 4)]


def test_a_column_that_is_gone() -> None:
    engine = ct.Engine(ALL)
    engine.push(table([1], v=[1], k=["a"]))
    with pytest.raises(ct.SchemaError) as caught:
        engine.push(table([1], vv=[1], k=["a"]))
    assert caught.value.what == "a column that was there before is missing"
    assert (caught.value.given, caught.value.hint) == ("v", "did you mean 'vv'?")
    assert engine.stats.events == 1
    assert values(engine.close(), "q") == [("a", 1)]


@pytest.mark.parametrize("column", [["x"], [1.5], [[1]], [{"a": 1}]])
def test_a_column_that_changed_its_type(column: list[Any]) -> None:
    engine = ct.Engine(ALL)
    engine.push(table([1], v=[1], k=["a"]))
    with pytest.raises(ct.SchemaError) as caught:
        engine.push(table([1], v=column, k=["a"]))
    assert caught.value.what == "column 'v' changed its type"
    assert str(caught.value.given) == f"{pa.array(column).type}, before int64"
    assert caught.value.hint
    assert engine.stats.events == 1
    assert values(engine.close(), "q") == [("a", 1)]


def test_a_narrower_type_is_widened() -> None:
    events = [table([1], v=pa.array([1], kind), k=["a"]) for kind in (pa.int64(), pa.int8())]
    assert values(everything(ALL, *events), "q") == [("a", 2)]


def test_a_column_of_nulls_without_a_type_comes_first() -> None:
    """As Arrow reads JSON or Python rows in which a column is null so far."""
    found = everything(ALL, table([1], v=pa.nulls(1), k=["a"]), table([2], v=[5], k=["a"]))
    assert values(found, "q") == [("a", 5)]


def test_a_column_of_nulls_without_a_type_comes_later() -> None:
    found = everything(ALL, table([2], v=[5], k=["a"]), table([1], v=pa.nulls(1), k=pa.nulls(1)))
    assert sorted(values(found, "q"), key=str) == [("a", 5), (None, None)]


@pytest.mark.parametrize("name", ["ts", "v", "k"])
def test_two_columns_of_one_name(name: str) -> None:
    events = table([1], v=[1], k=["a"])
    doubled = events.append_column(name, events[name])
    with pytest.raises(ct.SchemaError, match=name):
        ct.Engine(ALL).push(doubled)
    engine = ct.Engine(ALL)
    engine.push(events)
    with pytest.raises(ct.SchemaError, match=name):
        engine.push(doubled)


def test_two_columns_of_a_name_that_nobody_reads() -> None:
    events = table([1], v=[1], k=["a"], x=[1])
    doubled = events.append_column("x", events["x"])
    assert values(everything(ALL, doubled), "q") == [("a", 1)]


def test_a_schema_that_does_not_fit_leaves_the_engine_usable() -> None:
    engine = ct.Engine(ALL)
    with pytest.raises(ct.SchemaError):
        engine.push(table([1], v=["x"], k=["a"]))
    engine.push(table([1], v=[1], k=["a"]))
    assert values(engine.close(), "q") == [("a", 1)]


# Bad rows.


def test_rows_without_a_time_are_set_aside() -> None:
    engine = ct.Engine(ALL)
    engine.push(table([1, None, 2, None], v=[1, 2, 3, 4], k=["a"] * 4))
    stats = engine.stats
    assert (stats.events, stats.accepted, stats.bad) == (4, 2, 2)
    aside = engine.take_bad()
    assert aside is not None
    assert aside["v"].to_pylist() == [2, 4]
    assert engine.take_bad() is None
    assert values(engine.close(), "q") == [("a", 4)]


def test_rows_set_aside_survive_a_snapshot() -> None:
    engine = ct.Engine(ALL)
    engine.push(table([None], v=[1], k=["a"]))
    engine = ct.Engine.restore(engine.snapshot())
    aside = engine.take_bad()
    assert aside is not None and aside.num_rows == 1


def test_a_table_of_bad_rows_alone() -> None:
    engine = ct.Engine(ALL)
    engine.push(table([None, None], v=[1, 2], k=["a", "b"]))
    assert engine.stats.bad == engine.stats.events == 2
    assert engine.close()["q"].num_rows == 0


def test_bad_rows_may_be_fatal() -> None:
    engine = ct.Engine(ALL, bad="fail")
    engine.push(table([1], v=[1], k=["a"]))
    with pytest.raises(ct.DataError) as caught:
        engine.push(table([2, None], v=[3, 7], k=["a", "b"]))
    assert caught.value.what == "a row has no usable time"
    assert "7" in str(caught.value.given) and caught.value.hint
    stats = engine.stats
    assert stats.accepted + stats.late + stats.bad + stats.duplicates == stats.events


# Times far away.


def test_one_event_far_from_the_others() -> None:
    """A clock that was never set: 1970 among events of today. No grid of 56 years is laid out."""
    # Fine enough that such a grid, of terabytes, is refused at once rather than eat the machine.
    for window in (ct.tumbling("1ms"), ct.sliding("2ms", "1ms")):
        for times in ([0, 1_767_225_600 * SECOND], [1_767_225_600 * SECOND, 0]):
            query = ct.Query("q", ct.count().alias("n"), window=window)
            found = everything([query], table(times))
            assert set(values(found, "q")) == {(1,)}


@pytest.mark.parametrize("window", [ct.session("1ms"), ct.count_tumbling(1), ct.cut("true")])
def test_events_far_apart_in_other_windows(window: Any) -> None:
    queries = [
        ct.Query("q", ct.count().alias("n"), window=window),
        ct.Query("fine", ct.count().alias("n"), window=ct.tumbling("1ms")),
    ]
    found = everything(queries, table([0, 1_767_225_600 * SECOND, 1]))
    assert sum(n for (n,) in values(found, "fine")) == 3


@pytest.mark.parametrize("kind", ["s", "ms", "us"])
def test_times_out_of_range_are_bad_rows(kind: str) -> None:
    times = pa.array([-(2**63), -(2**63) + 1, 2**63 - 1, 0], pa.timestamp(kind))
    engine = ct.Engine([COUNT])
    engine.push(pa.table({"ts": times}))
    assert (engine.stats.bad, engine.stats.accepted) == (3, 1)
    assert values(engine.close(), "q") == [(1,)]


def test_the_ends_of_nanoseconds() -> None:
    times = pa.array([-(2**63), 2**63 - 1], pa.timestamp("ns"))
    query = ct.Query("q", ct.count().alias("n"), window=ct.tumbling("1ms"))
    assert values(everything([query], pa.table({"ts": times})), "q") == [(1,), (1,)]


def test_a_time_near_the_end_of_the_range_is_bad_or_counted() -> None:
    for time in (2**62 - 1, -(2**62) + 1):
        engine = ct.Engine([COUNT])
        engine.push(table([time]))
        bad = engine.stats.bad
        assert len(values(engine.close(), "q")) + bad == 1


def test_pre_1970_windows_of_every_kind() -> None:
    events = seconds([-25, -24, -11, -10, -1], v=[1, 1, 1, 1, 1], k=["a"] * 5)
    queries = [*ALL, ct.Query("slide", ct.sum("v"), window=ct.sliding("10s", "5s", offset="-3s"))]
    found = everything(queries, events)
    assert starts(found, "q") == [-30 * SECOND, -20 * SECOND, -10 * SECOND]
    assert starts(found, "session") == [-25 * SECOND, -11 * SECOND, -1 * SECOND]
    assert starts(found, "slide") == [s * SECOND for s in (-33, -28, -18, -13, -8, -3)]


def test_nan_and_infinity_in_every_function() -> None:
    numbers = [1.0, math.nan, math.inf, -math.inf, None]
    query = ct.Query(
        "q",
        ct.sum("v"),
        ct.min("v"),
        ct.max("v"),
        ct.avg("v"),
        ct.count("v"),
        ct.first("v"),
        ct.last("v"),
        ct.variance("v"),
        ct.count_distinct("v"),
        ct.mode("v"),
        window=ct.tumbling("10s"),
    )
    found = everything([query], table(range(5), v=numbers))
    assert repr(values(found, "q")) == ("[(nan, -inf, nan, nan, 4, 1.0, -inf, nan, 4, -inf)]")


def test_texts_as_views_come_back_plain() -> None:
    """Arrow has few kernels for views yet: they are read as plain texts."""
    query = ct.Query("q", ct.max("s").alias("most"), by="k", window=ct.tumbling("10s"))
    engine = ct.Engine([query])
    texts = pa.array(["a", "b", "a"], pa.string_view())
    engine.push(table([1, 2, 3], k=texts, s=texts))
    found = engine.close()["q"]
    assert found.column("k").type == pa.string() and found.column("most").to_pylist() == ["a", "b"]
