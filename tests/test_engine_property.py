"""Random queries of all types together, on random streams, against brute force."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from against_oracle import check
from catchment.engine import engine as engines
from catchment.engine import slicing
from catchment.engine import store as stores
from catchment.model.plan import Plan
from catchment.testing.compare import assert_same
from catchment.testing.oracle import STREAM, oracle, oracle_run
from catchment.testing.strategies import PERIODIC, Scenario, scenarios, to_table


@given(scenarios())
def test_any(scenario: Scenario) -> None:
    check(scenario)


@given(scenarios(late="update"))
def test_updates(scenario: Scenario) -> None:
    check(scenario)


@pytest.mark.parametrize(
    "kind", ["session", "cut", "between", "count_sliding", "sliding", "cumulate"]
)
@given(data=st.data())
def test_updates_of_one_kind(kind: str, data: st.DataObject) -> None:
    check(data.draw(scenarios(late="update", max_queries=2, kinds=[kind])))


READ = ["local", "aligned", "ordered", "gaps", "any"]


@pytest.mark.parametrize("kind", ["cut", "between", "session", "count_sliding", "count_within"])
@given(data=st.data())
def test_readings(kind: str, data: st.DataObject) -> None:
    """One engine reads one stream; windows of all types share the slices it is cut into."""
    late = data.draw(st.sampled_from(["none", "drop"]))
    kinds = [kind, kind, "tumbling", "session"]
    check(data.draw(scenarios(late=late, max_queries=4, kinds=kinds, readings=READ)))


@given(scenarios(special=True))
def test_nan_and_infinity(scenario: Scenario) -> None:
    check(scenario)


@given(scenarios(huge=True))
def test_overflow(scenario: Scenario) -> None:
    check(scenario)


@given(scenarios(approximate=True))
def test_approximate(scenario: Scenario) -> None:
    check(scenario)


@given(scenarios())
def test_a_snapshot_between_any_two_steps_changes_nothing(scenario: Scenario) -> None:
    check(scenario, lambda engine: ct.Engine.restore(engine.snapshot()))


@pytest.mark.parametrize("store", ["lazy", "eager"])
@given(scenario=scenarios())
def test_both_stores(store: str, scenario: Scenario) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "replan", forced(store=store))
        check(scenario)


@given(scenarios(kinds=[*PERIODIC, "session"]))
def test_slices_added_as_wholes(scenario: Scenario) -> None:
    """What is done only for very many keys, done for any."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "MANY_KEYS", 0)
        patch.setattr(stores, "FULL", 0.0)
        check(scenario)


@pytest.mark.parametrize("late", ["none", "drop", "update"])
@given(data=st.data())
def test_groups_sliced_together(late: str, data: st.DataObject) -> None:
    """What is done only where there are many events for each slice and key, done for any."""
    scenario = data.draw(
        scenarios(late=late, max_queries=6, kinds=[*PERIODIC, "session"], special=late == "none")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slicing, "EVENTS_A_CELL", 1e-9)
        check(scenario)


def test_sessions_sliced_together_with_windows_that_are_cut_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sessions alone are cut at a grid; edges of another group that are as close do not replace it.

    ts   0   5   10  15  20  25  30  35
         e                       e           sessions of 5: [0, 5) and [32, 37)
          |    |    |    |    |    |         tumbling(5, offset=1)
    """
    monkeypatch.setattr(slicing, "EVENTS_A_CELL", 1e-9)
    rows = [{"ts": ts, "k": "b", "j": None, "v": 1.0} for ts in (0, 32)]
    visits = ct.Query("visits", ct.count(), by="k", window=ct.session("5us"))
    sums = ct.Query(
        "sums", ct.count(), by="k", where="k = 'b'", window=ct.tumbling("5us", offset="1us")
    )
    engine = ct.Engine([visits, sums])
    engine.push(to_table(rows))
    out = engine.close()
    for query in (visits, sums):
        assert_same(oracle([query], rows)[query.name], out[query.name], query.name)


@given(scenarios(kinds=PERIODIC))
def test_accumulators(scenario: Scenario) -> None:
    """At next to no events a second, every window gets an accumulator of its own."""
    engine = ct.Engine(scenario.queries, **scenario.settings, rate=1e-6)
    expected = iter(oracle_run(scenario.queries, scenario.steps, **scenario.settings))
    for step in scenario.steps:
        if step[0] == "push":
            engine.push(to_table(step[1]))
        else:
            out = engine.close() if step[0] == "close" else engine.advance(step[1])
            for name, rows in next(expected).items():
                assert_same(rows, out[name], name)


def forced(**changes: Any) -> Callable[..., tuple[Plan, dict[int, int]]]:
    """A planner that overrules the store of every group that may have either."""
    honest = engines.replan

    def plan(before: Plan, queries: Iterable[ct.Query]) -> tuple[Plan, dict[int, int]]:
        made, lineage = honest(before, queries)
        groups = [
            group if "order of time" in group.why else replace(group, **changes)
            for group in made.groups
        ]
        return replace(made, groups=tuple(groups)), lineage

    return plan


@given(scenario=scenarios(late="none"), data=st.data())
def test_nodes_and_merge_orders(scenario: Scenario, data: st.DataObject) -> None:
    """Events split over nodes, sliced there, merged in any tree, give what one engine gives."""
    check_nodes(scenario, data)


def check_nodes(scenario: Scenario, data: st.DataObject) -> None:
    queries = [query for query in scenario.queries if not query.distinct_on]
    if not queries or not scenario.events:
        return
    plan = ct.Plan.from_bytes(ct.plan(queries).to_bytes())
    events = scenario.events
    nodes = max(scenario.nodes) + 1
    parts, ordered = [], []
    for node in range(nodes):
        mine = [row for row, place in zip(events, scenario.nodes, strict=True) if place == node]
        ordered += [row | {STREAM: str(node)} for row in mine]
        cut = data.draw(st.integers(0, len(mine)))
        for seq, rows in enumerate((mine[:cut], mine[cut:])):
            arrival = 0 if seq == 0 else cut
            parts.append(ct.slice(to_table(rows), plan, node=node, seq=seq, arrival=arrival))
    parts = data.draw(st.permutations(parts + parts[: data.draw(st.integers(0, len(parts)))]))
    middle = data.draw(st.integers(0, len(parts)))
    whole = [parts] if middle in (0, len(parts)) else [parts[:middle], parts[middle:]]
    if len(whole) == 2 and _overlap(*whole):
        whole = [parts]  # what was merged has a new identity: a copy must come before that
    merged = [ct.merge(some, plan, node=9, seq=n) for n, some in enumerate(whole)]
    results = ct.assemble(ct.merge(merged, plan), None, plan)
    for name, rows in oracle(queries, ordered).items():
        assert_same(rows, results[name], name)


@pytest.mark.parametrize(
    "kinds",
    [["cut", "between"], [*PERIODIC, "session"], ["session", "count_tumbling", "count_sliding"]],
    ids=["marks", "times", "counts"],
)
@given(data=st.data())
def test_readings_of_nodes_and_merge_orders(kinds: list[str], data: st.DataObject) -> None:
    check_nodes(data.draw(scenarios(late="none", kinds=kinds, readings=READ)), data)


def _overlap(one: list[Any], two: list[Any]) -> bool:
    return any(a is b for a in one for b in two)
