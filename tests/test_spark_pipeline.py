"""The streaming pipeline against brute force: any queries, any batches, crashes anywhere."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

import catchment as ct
from catchment.engine.parcels import pack_partials, share_out, unpack_partials
from catchment.engine.partials import Partials
from catchment.model.frontier import EARLIEST, Frontier
from catchment.model.window import Window
from catchment.planner import replan
from catchment.spark import state
from catchment.spark.datasource import PartialsReader
from catchment.spark.queries import QueryFolder
from catchment.testing.compare import assert_same, rows_of
from catchment.testing.oracle import oracle_run
from catchment.testing.strategies import Scenario, scenarios, to_table
from pipeline import Batch, Pipeline

pytestmark = pytest.mark.spark
FEWER = settings(max_examples=max(settings.default.max_examples // 2, 1))
SEEDS = st.integers(0, 2**32)


def batches_of(scenario: Scenario, partitions: int) -> list[list[tuple[str, list[Any]]]]:
    """The scenario's pushes as batches, their events spread over partitions."""
    nodes = iter(scenario.nodes)
    made = []
    for step in scenario.steps:
        if step[0] != "push":
            continue
        parts: dict[str, list[Any]] = {}
        for row in step[1]:
            parts.setdefault(str(next(nodes) % partitions), []).append(row)
        made.append(sorted(parts.items()) or [("0", [])])
    return made or [[("0", [])]]


def expected(scenario: Scenario, batches: list[Any]) -> dict[str, list[Any]]:
    """What brute force says, with the frontier that follows from the batches."""
    frontier = Frontier()
    steps: list[Any] = []
    for batch in batches:
        frontier = frontier.knowing([name for name, _ in batch], 0)
        # Which of two duplicates counts is decided by the order in which partitions were met.
        met = sorted(batch, key=lambda part, known=frontier: known.number(part[0]))
        rows = [row for _, part in met for row in part]
        heard = {
            name: max(_micros(row["ts"]) for row in part if row["ts"] is not None)
            for name, part in batch
            if any(_fits(row, frontier.value, scenario) for row in part)
        }
        steps.append(("push", rows))
        frontier = frontier.after(heard, 0, scenario.lateness)
        if frontier.value > EARLIEST:
            steps.append(("advance", frontier.value))
    steps.append(("close",))
    settings = scenario.settings | {"lateness": "0us"}
    found: dict[str, list[Any]] = {query.name: [] for query in scenario.queries}
    for results in oracle_run(scenario.queries, steps, **settings):
        for name, rows in results.items():
            found[name] += rows
    return found


def _micros(value: Any) -> int:
    array = pa.array([value], pa.timestamp("us", "UTC"))
    return int(array.cast(pa.int64())[0].as_py())


def _fits(row: Any, frontier: int, scenario: Scenario) -> bool:
    if row["ts"] is None:
        return False
    keep = ct.Engine(scenario.queries, **scenario.settings).bound.keep
    return _micros(row["ts"]) >= frontier - keep


def check(
    scenario: Scenario,
    partitions: int,
    buckets: int,
    seed: int,
    crashes: float,
) -> None:
    batches = batches_of(scenario, partitions)
    tables: list[Batch] = [[(name, to_table(rows)) for name, rows in b] for b in batches]
    with tempfile.TemporaryDirectory() as folder:
        pipeline = Pipeline(
            folder,
            tables,
            scenario.queries,
            seed,
            crashes,
            buckets,
            late=scenario.late,
            keep=scenario.keep,
            lateness=scenario.lateness,
        )
        out = pipeline.run()
    for name, rows in expected(scenario, batches).items():
        if rows or name in out:
            assert_same(rows, out[name], f"query {name}")
    counts = pipeline.progress[-1].counts
    assert counts.events == sum(len(rows) for batch in batches for _, rows in batch)
    assert counts.accepted + counts.late + counts.bad + counts.duplicates == (counts.events)


@FEWER
@given(scenarios(), st.integers(1, 3), SEEDS)
def test_one_partition(scenario: Scenario, buckets: int, seed: int) -> None:
    check(scenario, 1, buckets, seed, crashes=0.0)


@FEWER
@given(scenarios(), st.integers(1, 3), SEEDS)
def test_crashes(scenario: Scenario, buckets: int, seed: int) -> None:
    check(scenario, 1, buckets, seed, crashes=0.1)


@FEWER
@given(scenarios(), st.integers(2, 3), st.integers(1, 3), SEEDS)
def test_many_partitions(scenario: Scenario, partitions: int, buckets: int, seed: int) -> None:
    # Events of one time rank by partition, which brute force over one stream cannot know.
    check(apart(scenario), partitions, buckets, seed, crashes=0.03)


SECOND = ct.tumbling("1s")


def test_all_count_queries_go_and_another_comes() -> None:
    rows = [{"ts": n * 1000, "v": float(n)} for n in range(400)]
    batches: list[Batch] = [
        [(str(p), to_table(rows[20 * b + 10 * p : 20 * b + 10 * p + 10])) for p in range(2)]
        for b in range(20)
    ]
    first = ct.Query("first", ct.count(), window=ct.count_tumbling(15))
    new = ct.Query("new", ct.count(), ct.min("v"), window=ct.count_tumbling(10))
    with tempfile.TemporaryDirectory() as folder:
        pipeline = Pipeline(folder, batches, [first], 3, 0.05)
        pipeline.at(6, lambda p: _change(p, "add", ct.Query("t", ct.count(), window=SECOND)))
        pipeline.at(6, lambda p: _change(p, "drop", "first"))
        pipeline.at(9, lambda p: _change(p, "add", new))
        found = rows_of(pipeline.run()["new"])
    assert len(found) > 20 and {row["count(*)"] for row in found} == {10}
    least = [row["min(v)"] for row in found]
    assert least == [least[0] + 10 * n for n in range(len(least))]


def apart(scenario: Scenario) -> Scenario:
    """Without events at a time that another has."""
    seen: set[Any] = set()
    steps: list[Any] = []
    for step in scenario.steps:
        if step[0] == "push":
            kept = []
            for row in step[1]:
                if row["ts"] is None or row["ts"] not in seen:
                    kept.append(row)
                seen.add(row["ts"])
            step = ("push", kept)
        steps.append(step)
    return replace(scenario, steps=steps)


@FEWER
@given(scenarios(), SEEDS)
def test_snapshots_of_every_batch(scenario: Scenario, seed: int) -> None:
    with patch.object(state, "_SHORTEST", 0), patch.object(state, "_CHUNK", 100):
        check(scenario, 1, 2, seed, crashes=0.1)


@FEWER
@given(scenarios(late="none"), scenarios(late="none", max_queries=2), SEEDS, st.data())
def test_queries_come_and_go(
    scenario: Scenario, other: Scenario, seed: int, data: st.DataObject
) -> None:
    """As an engine does whose queries change at the same batches."""
    batches = batches_of(scenario, 1)
    news = [
        ct.Query.from_dict(query.to_dict() | {"name": f"new {n}"})
        for n, query in enumerate(other.queries)
    ]
    changes: dict[int, list[tuple[str, Any]]] = {}
    for query in news:
        changes.setdefault(data.draw(st.integers(0, len(batches))), []).append(("add", query))
    for query in scenario.queries[1:]:
        changes.setdefault(data.draw(st.integers(0, len(batches))), []).append(("drop", query.name))
    tables: list[Batch] = [[(name, to_table(rows)) for name, rows in b] for b in batches]
    with tempfile.TemporaryDirectory() as folder:
        buckets = data.draw(st.integers(1, 3))
        pipeline = Pipeline(folder, tables, scenario.queries, seed, 0.05, buckets)
        for batch, made in changes.items():
            for kind, what in made:
                pipeline.at(batch, lambda p, kind=kind, what=what: _change(p, kind, what))
        out = pipeline.run()
    wanted = _engine_with_changes(scenario, batches, changes)
    for name in wanted.keys() | out.keys():
        rows = [row for table in wanted.get(name, []) for row in rows_of(table)]
        if rows or name in out:
            assert_same(rows, out[name], f"query {name}")


def _change(pipeline: Pipeline, kind: str, what: Any) -> None:
    folder = QueryFolder(pipeline.spec.home)
    folder.add(what) if kind == "add" else folder.remove(what)


def _without(queries: dict[str, ct.Query], name: str) -> dict[str, ct.Query]:
    return {other: query for other, query in queries.items() if other != name}


def _engine_with_changes(
    scenario: Scenario, batches: list[Any], changes: dict[int, Any]
) -> dict[str, list[pa.Table]]:
    engine = ct.Engine(scenario.queries, schema=to_table([]).schema, rate=1000.0)
    frontier = Frontier()
    found: dict[str, list[pa.Table]] = {}
    for number in range(len(batches) + 1):
        made = changes.get(number, [])
        queries = dict(engine.queries)
        for kind, what in made:
            queries = queries | {what.name: what} if kind == "add" else _without(queries, what)
        if made:  # all at once, as the planner does
            plan, lineage = replan(engine.plan, queries.values())
            engine.queries, engine.bound = queries, engine.bound.follow(plan)
            engine.slicer.follow(engine.bound)
            engine.assembler.follow(engine.bound, lineage)
        if number == len(batches):
            results = engine.close()
        else:
            rows = [row for _, part in batches[number] for row in part]
            engine.push(to_table(rows))
            times = [_micros(row["ts"]) for row in rows if _fits(row, frontier.value, scenario)]
            frontier = frontier.after({"0": max(times)} if times else {}, 0)
            if frontier.value == EARLIEST:
                continue
            results = engine.advance(frontier.value)
        for name, table in results.items():
            found.setdefault(name, []).append(table)
    return found


def test_what_has_no_key_stays_in_the_first_bucket() -> None:
    """A group's number changes when others leave; its state must still be found (was a bug)."""
    queries = [
        ct.Query(f"q{n}", ct.count(), where=f"n > {n}", window=ct.tumbling("1s")) for n in range(4)
    ]
    plan = ct.plan(queries)
    assert len(plan.groups) == 4
    row = {"ts": 1, "n": 9}
    shares = share_out(ct.slice(to_table([row]), plan), plan, 3)
    assert list(shares) == [0] and len(shares[0].groups) == 4


@pytest.mark.parametrize("buckets", [1, 4])
@pytest.mark.parametrize("window", [ct.tumbling("1s"), ct.count_tumbling(2)], ids=str)
def test_keys_may_be_structs_and_lists(window: Window, buckets: int) -> None:
    """Arrow has no dictionaries of such values."""
    keys = [{"a": [1, None]}, {"a": None}, None, {"a": [1, None]}]
    events = pa.table({"ts": pa.array(range(4), pa.timestamp("us")), "k": keys, "v": range(4)})
    query = ct.Query("q", ct.sum("v").alias("v"), by="k", window=window)
    plan = ct.plan([query])
    shares = share_out(ct.slice(events, plan), plan, buckets)
    found = []
    for share in shares.values():
        whole, _ = unpack_partials(pack_partials(share))
        engine = ct.Engine([query], schema=events.schema)
        engine.assembler.absorb(whole)
        found += rows_of(engine.close()["q"])
    alone = ct.Engine([query])
    alone.push(events)
    wanted = rows_of(alone.close()["q"])
    assert sorted(map(repr, found)) == sorted(map(repr, wanted)) and wanted


def test_a_new_query_knows_of_events_that_left_no_partials() -> None:
    """Events outside the only window there was still happened (was a bug)."""
    old = ct.Query("old", ct.count(), window=ct.fixed(100, 200))
    new = ct.Query("new", ct.count(), by="j", window=ct.tumbling("10us"))
    engine = ct.Engine([old], schema=to_table([]).schema)
    engine.assembler.absorb(Partials(), newest=15)
    engine.add(new)
    plan = engine.plan
    late, fresh = ({"ts": t, "j": 1} for t in (17, 21))
    engine.assembler.absorb(ct.slice(to_table([late, fresh]), plan), newest=21)
    starts = [row["window_start"] for row in rows_of(engine.close()["new"])]
    assert starts == [20], "the window of 15 and 17 was not seen from its start"


def test_nothing_is_read_before_there_is_anything_to_do() -> None:
    """Spark runs a batch as it starts, before the first that the job has planned: nobody hears of
    it. A node would write down that it has come as far as batch -1."""
    table = pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC")), "v": [1.0]})
    query = ct.Query("mean", ct.avg("v"), window=ct.tumbling("1s"))
    with tempfile.TemporaryDirectory() as folder:
        job = Pipeline(folder, [[("0", table)]], [query])
        reader = PartialsReader(job.spec.to_text())
        first = reader.initialOffset()
        assert reader.partitions(first, first) == []
        assert reader.partitions(first, reader.initialOffset()) == []  # some time later
        assert reader.partitions(first, reader.latestOffset(first, ReadAllAvailable()))
