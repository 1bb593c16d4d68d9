"""Every result of a query has an identity: its key, its bounds and, where they repeat, an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.engine.parcels import pack_results, unpack_results
from catchment.model.query import Query
from catchment.simulate import World
from catchment.sinks.base import Delivery
from catchment.sinks.memory import Memory
from catchment.sinks.parquet import ParquetSink
from catchment.sinks.rows import latest
from catchment.testing.compare import assert_same, rows_of
from catchment.testing.oracle import oracle
from catchment.testing.strategies import KINDS, Scenario, scenarios, to_table
from small_tables import examples
from trees import SCHEMA, charter, check

IDENTITY = ("window_start", "window_end", "window_index", "revision")
WINDOWS: dict[str, ct.Window] = {
    "tumbling": ct.tumbling("1s"),
    "session": ct.session("1s"),
    "cut": ct.cut("m"),
    "between": ct.between("m", "v > 0"),
    "gaps": ct.between("m", "v > 0", reading="gaps"),
    "local": ct.cut("m", reading="local"),
    "aligned": ct.cut("m", reading="aligned"),
    "ordered": ct.cut("m", reading="ordered"),
    "count": ct.count_tumbling(2),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_carry_an_index_where_bounds_repeat(name: str) -> None:
    """Also a table without rows; and those whose bounds tell them apart carry none."""
    engine = ct.Engine([Query("q", ct.count(), window=WINDOWS[name])])
    engine.push(to_table([]))
    engine.push(to_table([row(5, m=True), row(5, m=True), row(5, m=True), row(6, m=True)]))
    indexed = name not in ("tumbling", "session", "gaps")
    assert WINDOWS[name].bounds_repeat == indexed
    table, nothing = engine.close()["q"], engine.bound.no_results()["q"]
    assert table.num_rows
    for found in (table, nothing):
        assert ("window_index" in found.column_names) == indexed


def row(second: int, **columns: Any) -> dict[str, Any]:
    plain = {"k": "a", "j": 0, "v": 1.0, "n": 1, "s": "x", "m": False, "id": 0}
    return {"ts": second * 1_000_000, **plain, **columns}


#    s     0     1
#    cut   |||| .|     four marks at 0: three windows [0, 0) and one [0, 1)
CROWD = [row(0, m=True, v=v) for v in (1.0, 2.0, 4.0, 8.0)] + [row(1, m=True, v=16.0)]
CUTS = Query("q", ct.sum("v").alias("total"), by="k", window=ct.cut("m"))


def results_of(query: Query, rows: list[dict[str, Any]]) -> pa.Table:
    engine = ct.Engine([query])
    engine.push(to_table(rows))
    return engine.close()[query.name]


def delivery(batch: int, results: Mapping[str, pa.Table], keys: tuple[str, ...]) -> Delivery:
    return Delivery("job", batch, 0, results, dict.fromkeys(results, keys))


def test_marks_at_one_instant_keep_their_rows_in_sinks(tmp_path: Path) -> None:
    table = results_of(CUTS, CROWD)
    memory, parquet = Memory(), ParquetSink(path=str(tmp_path))
    for sink in (memory, parquet):
        sink.write(delivery(0, {"q": table}, ("k",)))
    for kept in (memory.latest("q"), parquet.latest(parquet.read("q"), ["k"])):
        found = [(r["window_end"], r["window_index"], r["total"]) for r in rows_of(kept)]
        assert sorted(found) == [(0, 0, 1), (0, 1, 2), (0, 2, 4), (1_000_000, 0, 8)]


@pytest.mark.parametrize("keys", [("k",), ("k", "grouping_id"), ()])
def test_subtotals_keep_their_rows_in_sinks(keys: tuple[str, ...], tmp_path: Path) -> None:
    """A key that is null and the sum over all keys differ in `grouping_id` alone."""
    text = "SELECT k, sum(v) AS total FROM events GROUP BY ROLLUP(k), window(ts, '1 second')"
    query = ct.sql(text, "q")
    table = results_of(query, [row(0, k="a"), row(0, k=None), row(0, k=None)])
    memory, parquet = Memory(), ParquetSink(path=str(tmp_path))
    for sink in (memory, parquet):
        sink.write(delivery(0, {"q": table}, query.keys))
    for kept in (memory.latest("q"), parquet.latest(parquet.read("q"), keys)):
        found = [(r["k"], r["grouping_id"], r["total"]) for r in rows_of(kept)]
        assert sorted(found, key=repr) == [("a", 0, 1), (None, 0, 2), (None, 1, 3)]


def test_keys_of_every_width_are_told_apart() -> None:
    """Decimals of 256 bits among them, which Polars has not."""
    wide = [Decimal(10**60), Decimal(10**60 + 1), None, Decimal(10**60)]
    many = pa.array(wide, pa.decimal256(70, 2))
    columns = {"k": many, "window_start": [0] * 4, "window_end": [9] * 4, "revision": [0, 0, 0, 1]}
    assert latest(pa.table(columns), ["k"])["revision"].to_pylist() == [0, 0, 1]


Sink = Callable[[list[Delivery], Query], pa.Table]


def from_memory(deliveries: list[Delivery], query: Query) -> pa.Table:
    sink = Memory()
    for one in deliveries:
        sink.write(one)
    return sink.latest(query.name)


def from_parquet(deliveries: list[Delivery], query: Query) -> pa.Table:
    with TemporaryDirectory() as folder:
        sink = ParquetSink(path=folder)
        for one in deliveries:
            sink.write(one)
        table = sink.read(query.name)
        return sink.latest(table, query.keys) if table.num_columns else table


def from_upserts(deliveries: list[Delivery], query: Query) -> pa.Table:
    """As a table with a primary key holds it, or the log of a topic that is compacted."""
    held: dict[Any, pa.Table] = {}
    given = [one.results[query.name] for one in deliveries if query.name in one.results]
    for table in given:
        for place, found in enumerate(rows_of(table)):
            identity = tuple(repr(found.get(c)) for c in (*query.keys, *IDENTITY[:3]))
            held[identity] = table.slice(place, 1)
    rows = [row for row in held.values() if not row["retracted"][0].as_py()]
    return pa.concat_tables(rows or [t.slice(0, 0) for t in given] or [pa.table({})])


@pytest.mark.parametrize("sink", [from_memory, from_parquet, from_upserts])
@examples(0.2)
@given(scenario=scenarios(late="update", max_queries=3))
def test_what_sinks_hold_in_the_end_is_the_whole_truth(sink: Sink, scenario: Scenario) -> None:
    """Late events revise and retract, yet each window is there once, and no other is lost."""
    engine = ct.Engine(scenario.queries, **{**scenario.settings, "keep": f"{10**15}us"})
    deliveries = []
    for number, step in enumerate(scenario.steps):
        if step[0] == "push":
            engine.push(to_table(step[1]))
            continue
        results = engine.advance(step[1]) if step[0] == "advance" else engine.close()
        keys = {query.name: query.keys for query in scenario.queries}
        deliveries.append(Delivery("job", number, 0, dict(results.items()), keys))
    truth = oracle(scenario.queries, scenario.events)
    for query in scenario.queries:
        kept = sink(deliveries, query)
        added = [c for c in ("revision", "retracted") if c in kept.column_names]
        assert_same(truth[query.name], kept.drop_columns(added), query.name, keys=query.keys)


@pytest.mark.parametrize("kind", KINDS)
@examples(0.1)
@given(data=st.data())
def test_no_two_results_have_one_identity(kind: str, data: st.DataObject) -> None:
    """Whatever the window, also on the way between processes."""
    scenario = data.draw(scenarios(max_queries=2, kinds=[kind]))
    engine = ct.Engine(scenario.queries, **scenario.settings)
    seen = set()
    for step in scenario.steps:
        if step[0] == "push":
            engine.push(to_table(step[1]))
            continue
        results = engine.advance(step[1]) if step[0] == "advance" else engine.close()
        again, _ = unpack_results(pack_results(results), engine.bound)
        for query in scenario.queries:
            columns = [c for c in (*query.keys, *IDENTITY) if c in again[query.name].column_names]
            assert results[query.name].select(columns).equals(again[query.name].select(columns))
            for found in rows_of(results[query.name]):
                identity = (query.name, *map(repr, map(found.get, columns)))
                assert identity not in seen
                seen.add(identity)


@pytest.mark.parametrize("reading", ["global", "local", "aligned", "ordered", "gaps"])
def test_marks_at_one_instant_on_many_nodes(reading: str) -> None:
    """Pairs of marks at 0 and at 2 seconds, two and three times, on two nodes below another."""
    parents = {"root": None, "m": "root", "a": "m", "b": "m"}
    pairs = {"a": 2, "b": 3}
    given = {
        id: [pa.Table.from_pylist(crowd(count), SCHEMA), pa.Table.from_pylist(crowd(1, 9), SCHEMA)]
        for id, count in pairs.items()
    }
    window = ct.between("m = 'on'", "m = 'off'", reading=reading)
    query = Query("q", ct.sum("v").alias("total"), by="k", window=window)
    world = World(charter(parents, [query]), given, until=0)
    world.run()
    assert world.done
    check(world.deliveries, given, [query])
    windows = {"global": 12, "local": 12, "aligned": 7, "ordered": 7, "gaps": 3}
    held = [d.results["q"] for d in world.deliveries.values() if "q" in d.results]
    assert sum(table.num_rows for table in held) == windows[reading]


def crowd(pairs: int, *seconds: int) -> list[dict[str, Any]]:
    return [
        {"ts": at * 1_000_000, "k": "x", "v": number, "m": mark}
        for at in (seconds or (0, 2))
        for number in range(pairs)
        for mark in ("on", "off")
    ]


def test_a_comparison_refuses_windows_that_nothing_tells_apart() -> None:
    table = results_of(CUTS, CROWD)
    assert_same(rows_of(table), table)
    blurred = table.drop_columns("window_index")
    with pytest.raises(AssertionError, match="3 rows are one window: k='a', window_start=0"):
        assert_same(rows_of(blurred), blurred)
