"""Groups of one key whose events wait together: kept once, sent once, and right for each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from against_oracle import check
from catchment.engine import key_space, settled
from catchment.engine.bound import BoundPlan
from catchment.engine.parcels import pack_partials, share_out, unpack_partials
from catchment.engine.partials import Partials
from catchment.engine.slicer import rank
from catchment.model.rules import EventRules
from catchment.model.window import Counted
from catchment.planner import replan
from catchment.planner.together import waiting_together
from catchment.testing.compare import assert_same, rows_of, same
from catchment.testing.oracle import oracle, oracle_run
from catchment.testing.strategies import CONDITIONS, Scenario, queries, scenarios, to_table
from small_tables import examples, seconds, values

KEYS = [(), ("k",), ("k", "j")]
WAITING = ["cut", "between", "count_tumbling", "count_sliding"]


@st.composite
def waiting(draw: st.DrawFn, late: list[str], max_events: int = 40) -> Scenario:
    """Queries of one key that all wait, with conditions that overlap, are disjoint, or are none."""
    mode = draw(st.sampled_from(late))
    made = draw(
        scenarios(
            late=mode, kinds=WAITING, readings=["global"], max_queries=6, max_events=max_events
        )
    )
    by, wheres = draw(st.sampled_from(KEYS)), st.none() | st.sampled_from(CONDITIONS[:8])
    return replace(made, queries=[of_key(q, by, draw(wheres)) for q in made.queries])


def of_key(query: ct.Query, by: tuple[str, ...], where: str | None) -> ct.Query:
    return ct.Query(query.name, *query.aggregates, by=by, where=where, window=query.window)


@given(waiting(["none", "drop", "update"]), st.booleans())
def test_each_group_has_its_own_events(scenario: Scenario, snapshots: bool) -> None:
    def between_steps(engine: ct.Engine) -> ct.Engine:
        assert len(engine.assembler.waiting) <= 1
        return ct.Engine.restore(engine.snapshot()) if snapshots else engine

    check(scenario, between_steps)


@given(waiting(["none"]), st.integers(1, 3), st.booleans())
def test_as_parcels_of_several_nodes(scenario: Scenario, buckets: int, twice: bool) -> None:
    """Sliced by nodes, shared out by key, packed, and put together by bucket."""
    plan = ct.plan(scenario.queries)
    bound = BoundPlan(plan, EventRules("ts"), to_table([]).schema)
    nodes: dict[int, list[dict[str, Any]]] = {}
    for row, node in zip(scenario.events, scenario.nodes, strict=True):
        nodes.setdefault(node, []).append(row)
    assemblers = [bound.assembler() for _ in range(buckets)]
    for node, rows in sorted(nodes.items()):
        merger = bound.merger(node)
        slicer = bound.slicer(encoder=merger.encoder)
        for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            for sliced in slicer.slice(to_table(half), arrival=rank(node, slicer.counts["events"])):
                merger.add(sliced)
            merger = bound.merger(node, state=merger.save()) if twice else merger
            found = merger.take_events()
            assert found.rows <= len(half), "an event is sent more than once"
            for bucket, share in share_out(found, plan, buckets).items():
                assemblers[bucket].absorb(unpack_partials(pack_partials(share))[0])
    arrivals = [row for _, rows in sorted(nodes.items()) for row in rows]
    results = [assembler.close() for assembler in assemblers]
    for name, rows in oracle(scenario.queries, arrivals).items():
        assert_same(rows, pa.concat_tables([result[name] for result in results]), name)


class Changing:
    """An engine to which queries come, and from which they go; `given` is what those gave that
    came, and `newest` the newest event before each."""

    def __init__(self, scenario: Scenario, comes: list[tuple[int, ct.Query]]) -> None:
        self.engine = ct.Engine(scenario.queries, **scenario.settings)
        self.comes = comes
        self.newest: dict[str, int] = {}
        self.given: dict[str, list[dict[str, Any]]] = {query.name: [] for _, query in comes}

    def before(self, place: int, goes: dict[str, int], snapshot: bool) -> None:
        for at, query in self.comes:
            if at == place:
                self.newest[query.name] = self.engine.newest
                self.engine.add(query)
        for name, at in goes.items():
            if at == place:
                self.engine.remove(name, drain=False)
        if snapshot:
            self.engine = ct.Engine.restore(self.engine.snapshot())

    def step(self, step: tuple[Any, ...]) -> ct.Results | None:
        if step[0] == "push":
            self.engine.push(to_table(step[1]))
            return None
        out = self.engine.close() if step[0] == "close" else self.engine.advance(step[1])
        for name in self.newest:
            self.given[name] += rows_of(out[name])
        return out


@st.composite
def coming(draw: st.DrawFn, scenario: Scenario) -> list[tuple[int, ct.Query]]:
    """Queries of the same key, and the step before which each comes."""
    made = draw(queries(max_size=3, kinds=WAITING, readings=["global"]))
    by, wheres = scenario.queries[0].by, st.none() | st.sampled_from(CONDITIONS[:8])
    return [
        (
            draw(st.integers(0, len(scenario.steps) - 1)),
            replace_name(of_key(query, by, draw(wheres)), f"new{number}"),
        )
        for number, query in enumerate(made)
    ]


def replace_name(query: ct.Query, name: str) -> ct.Query:
    return ct.Query(name, *query.aggregates, by=query.by, where=query.where, window=query.window)


@examples(0.6)
@given(data=st.data())
def test_groups_come_and_go(data: st.DataObject) -> None:
    """Queries that stay are right all along, and one that goes, until it goes."""
    scenario = data.draw(waiting(["none", "drop"], max_events=30))
    some = data.draw(st.lists(st.sampled_from(scenario.queries), max_size=2, unique=True))
    goes = {q.name: data.draw(st.integers(0, len(scenario.steps) - 1)) for q in some}
    run = Changing(scenario, data.draw(coming(scenario)))
    expected = iter(oracle_run(scenario.queries, scenario.steps, **scenario.settings))
    for place, step in enumerate(scenario.steps):
        run.before(place, goes, data.draw(st.integers(0, 4)) == 0)
        out = run.step(step)
        for name, rows in () if out is None else next(expected).items():
            if name not in goes or place < goes[name]:
                assert_same(rows, out[name], f"step {place}, query {name}")
    check_new(run, scenario)


def check_new(run: Changing, scenario: Scenario) -> None:
    """What came later has nothing of the events that waited before it; of count windows, which
    begin with the next event, none is missed either."""
    there = [query.identity for query in (*scenario.queries, *(query for _, query in run.comes))]
    for _, query in run.comes:
        counted = isinstance(query.window, Counted)
        alone = there.count(query.identity) == 1  # a copy goes on with the count of the other
        if counted and not alone:
            continue
        steps = later(scenario, run.newest[query.name]) if counted else scenario.steps
        results = oracle_run([query], steps, **scenario.settings)
        truth = [row for result in results for row in result[query.name]]
        for row in run.given[query.name]:
            assert any(alike(row, other) for other in truth), f"{query.name}: wrong {row}"
        assert not counted or len(run.given[query.name]) == len(truth), f"{query.name}: missed"


def alike(row: dict[str, Any], other: dict[str, Any]) -> bool:
    return row.keys() == other.keys() and all(same(other[c], row[c]) for c in row)


def later(scenario: Scenario, newest: int) -> list[tuple[Any, ...]]:
    return [
        ("push", [row for row in step[1] if row["ts"] > newest]) if step[0] == "push" else step
        for step in scenario.steps
    ]


@examples(0.6)
@given(data=st.data())
def test_a_node_goes_over_to_another_plan(data: st.DataObject) -> None:
    """Events that wait on a node when the plan changes serve the queries that stay."""
    scenario = data.draw(waiting(["none"], max_events=30))
    rows = scenario.events
    cut = data.draw(st.integers(0, len(rows)))
    gone = data.draw(st.sampled_from([None, *scenario.queries]))
    stay = [query for query in scenario.queries if query is not gone]
    new = [query for _, query in data.draw(coming(scenario))]
    plan = ct.plan(scenario.queries)
    after, lineage = replan(plan, [*stay, *new])
    bounds = [BoundPlan(made, EventRules("ts"), to_table([]).schema) for made in (plan, after)]
    merger, slicer, root = bounds[0].merger(), bounds[0].slicer(), bounds[0].assembler()
    for sliced in slicer.slice(to_table(rows[:cut])):
        merger.add(sliced)
    if data.draw(st.booleans()):
        merger = bounds[0].merger(state=merger.save())
    root.absorb(Partials(), slicer.newest)
    newest = slicer.newest
    merger.follow(bounds[1], lineage)
    slicer.follow(bounds[1])
    root.follow(bounds[1], lineage)
    for sliced in slicer.slice(to_table(rows[cut:])):
        merger.add(sliced)
    sent = merger.take()
    assert sent.rows <= len(rows)
    root.absorb(sent)
    out = root.close()
    for name, expected in oracle(stay, rows).items() if stay else ():
        assert_same(expected, out[name], name)
    there = [query.identity for query in (*stay, *new)]
    for query in new:
        if isinstance(query.window, Counted) and there.count(query.identity) == 1:
            later_rows = [row for row in rows if row["ts"] > newest]
            assert_same(oracle([query], later_rows)[query.name], out[query.name], query.name)


# By hand.

CUT = ct.Query("cut", ct.sum("v"), by="k", window=ct.cut("v = 1"))
HALF = ct.Query("half", ct.sum("v"), by="k", where="v > 2", window=ct.count_tumbling(2))
LOW = ct.Query("low", ct.max("w"), by="k", where="v <= 2", window=ct.count_tumbling(2))
ALL = ct.Query("all", ct.sum("v"), window=ct.count_tumbling(3))
EVENTS = seconds(range(6), v=[1, 2, 3, 4, 5, 1], w=[9, 8, 7, 6, 5, 4], k=list("ababaa"))


def test_one_set_for_each_key() -> None:
    again = ct.Query(
        "again", ct.sum("v"), by="k", window=CUT.window, distinct_on="v", distinct_within="1s"
    )
    read = ct.Query("read", ct.sum("v"), by="k", window=ct.cut("v = 1", reading="local"))
    plan = ct.plan([CUT, HALF, LOW, ALL, again, read])
    ids = {name: group for name, (group, _) in plan.names.items()}
    assert ids["half"] == ids["low"], "their conditions are disjoint"
    shared = [ids["cut"], ids["half"]]
    assert waiting_together(plan.groups) == [shared, [ids["all"]], [ids["again"]], [ids["read"]]]
    apart = waiting_together(plan.groups, apart=[ids["half"]])
    assert [ids["cut"]] in apart and [ids["half"]] in apart
    assert f"events wait together with group(s) {ids['half']}, each kept once" in plan.explain()


def test_an_event_is_kept_once_with_each_column_once() -> None:
    plan = ct.plan([CUT, HALF, LOW])
    partials = ct.slice(EVENTS, plan)
    ((id, table),) = partials.groups.items()
    assert id == plan.names["cut"][0] and table.num_rows == 6
    names = table.schema.names
    assert [name for name in names if name in ("v", "w")] == ["v", "w"]
    assert [name for name in names if name.startswith("?")] == ["?v = 1"]
    assert sum(name.startswith("#selection ") for name in names) == 1
    out = ct.assemble(partials, None, plan)
    assert values(out, "half") == [("a", 8)]
    assert sorted(values(out, "low")) == [("a", 9)]


def test_an_event_that_nobody_wants_is_not_kept() -> None:
    over = ct.Query("over", ct.sum("v"), by="k", where="v > 3", window=ct.cut("v = 5"))
    (table,) = ct.slice(EVENTS, ct.plan([HALF, over])).groups.values()
    assert table.column("v").to_pylist() == [3, 4, 5]
    assert table.column("?v > 3").to_pylist() == [False, True, True]


def test_keys_are_forgotten_when_no_group_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_space, "_CROWD", 8)
    short = ct.between("v = 1", "v = 2")
    first = ct.Query("first", ct.sum("v"), by="k", window=short)
    other = ct.Query("other", ct.median("v"), by="k", where="v <= 2", window=short)
    engine = ct.Engine([first, other])
    for step in range(50):
        keys = [f"{step} {n}" for n in range(4)] * 2
        engine.push(seconds([step] * 8, v=[1] * 4 + [2] * 4, k=keys))
        out = engine.advance((step + 1) * 1_000_000)
        assert sorted(values(out, "first")) == sorted((key, 3) for key in keys[:4])
        assert sorted(values(out, "other")) == sorted((key, 1.5) for key in keys[:4])
        assert len(engine.assembler.states[0].keys) <= 16
    assert engine.assembler.states[0].keys is engine.assembler.states[1].keys


def test_events_are_ordered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_: list[int] = []
    honest = settled.sort_rows

    def counting(*columns: Any, keep: Any) -> Any:
        sorted_.append(len(columns[0]))
        return honest(*columns, keep=keep)

    monkeypatch.setattr(settled, "sort_rows", counting)
    engine = ct.Engine([CUT, HALF, LOW, ct.Query("med", ct.median("v"), by="k", window=CUT.window)])
    engine.push(EVENTS)
    engine.close()
    assert sorted_ == [6]


def test_events_that_come_few_at_a_time_wait_in_few_tables() -> None:
    """A parent takes a message at a time, and may wait for hours for a node that is away."""
    engine = ct.Engine([ct.Query("n", ct.sum("v"), window=ct.count_tumbling(1000))])
    for at in range(0, 3000, 3):
        engine.push(seconds(range(at, at + 3), v=[1, 2, 3]))
    (held,) = engine.assembler.waiting.values()
    assert sum(table.num_rows for table in held.tables) == 3000
    assert len(held.tables) < 12
    # Those of large batches are not copied.
    for _ in range(3):
        engine.push(seconds([5000.0] * 20_000, v=[0] * 20_000))
    assert [table.num_rows for table in held.tables][-2:] == [20_000, 20_000]
    assert values(engine.close(), "n")[:3] == [(1999,), (2000,), (2001,)]
