"""A running plan changes its way of slicing when events come at another rate; no result does."""

from __future__ import annotations

import random
import tempfile
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.errors import QueryError
from catchment.model.costs import ASSUMED, RECORDED, CostModel, EventRate
from catchment.planner import observed, replan
from catchment.planner.observed import EVENTS, FACTOR, REPLANS, SPAN, RateWatch, losing
from catchment.planner.planned import Planned
from catchment.simulate import Faults, World
from catchment.testing.compare import rows_of
from catchment.testing.oracle import oracle
from pipeline import Pipeline
from small_tables import SECOND, examples, table
from trees import charter, final

APART = [
    ct.Query("a", ct.sum("v"), ct.count(), by="k", window=ct.tumbling("101ms")),
    ct.Query("b", ct.max("v"), by="k", window=ct.tumbling("107ms")),
    ct.Query("c", ct.avg("v"), by="k", where="v > 3", window=ct.sliding("240ms", "80ms")),
]
"""Few events in a second lie between many edges: then accumulators win."""
OTHERS = [
    ct.Query("visits", ct.count(), window=ct.session("2s")),
    ct.Query("ten", ct.sum("v"), by="k", window=ct.count_tumbling(10)),
    ct.Query("laps", ct.sum("v"), by="k", window=ct.cut("v > 8")),
    ct.Query(
        "once",
        ct.sum("v"),
        by="k",
        distinct_on="n",
        distinct_within="1s",
        window=ct.sliding("300ms", "70ms"),
    ),
]
"""Windows, or events, that another group cannot take over at a time."""
QUERIES = [*APART, *OTHERS]
RATIO = """
    SELECT k, sum(v) / count(*) AS ratio FROM events
    GROUP BY k, window(ts, '240 milliseconds', '80 milliseconds') HAVING count(*) > 1
"""
PLAIN = [
    *APART,
    ct.Query("median", ct.median("v"), by="k", window=ct.sliding("240ms", "80ms")),
    ct.sql(RATIO, name="ratio").without_names(),
]


def swinging(seed: int, spans: list[tuple[int, float]]) -> list[dict[str, Any]]:
    """Events by several rates, one after the other, a little out of order."""
    dice, at, rows = random.Random(seed), 0.0, []
    for count, rate in spans:
        for _ in range(count):
            at += dice.expovariate(rate) * 1e6
            time = int(at - dice.choice([0, 0, 0, 0.5 / rate]) * 1e6)
            key, value = dice.choice("xy"), dice.randint(0, 10)
            rows.append({"ts": time, "k": key, "v": value, "n": dice.randint(0, 50)})
    return rows


def as_table(rows: list[dict[str, Any]]) -> Any:
    columns = {name: [row[name] for row in rows] for name in ("k", "v", "n")}
    return table([row["ts"] for row in rows], **columns)


class Fed:
    """An engine, all that it gave, and the ways that its plan had."""

    def __init__(self, queries: list[ct.Query], **settings: Any) -> None:
        self.engine = ct.Engine(queries, **settings)
        self.rows: dict[str, list[dict[str, Any]]] = {query.name: [] for query in queries}
        self.versions = [self.engine.plan]

    def feed(self, rows: list[dict[str, Any]], each: int = 250, slack: int = SECOND) -> Fed:
        for at in range(0, len(rows), each):
            self.engine.push(as_table(rows[at : at + each]))
            self.take(self.engine.advance(max(row["ts"] for row in rows[: at + each]) - slack))
        return self

    def end(self) -> Fed:
        self.take(self.engine.close())
        return self

    def take(self, results: Any) -> None:
        for name, found in results.items():
            self.rows[name] += rows_of(found)
        if self.engine.plan.version != self.versions[-1].version:
            self.versions.append(self.engine.plan)

    @property
    def said(self) -> dict[str, list[str]]:
        return {name: sorted(map(str, rows)) for name, rows in self.rows.items()}


def way_of(plan: ct.Plan, name: str) -> str:
    return plan.groups[plan.names[name][0]].way


def unchanged(
    queries: list[ct.Query], rows: list[dict[str, Any]], slack: int, **settings: Any
) -> Fed:
    """What an engine gives whose plan stays as it is."""
    with patch.object(observed, "REPLANS", 0):
        fed = Fed(queries, **settings).feed(rows, slack=slack).end()
    assert len(fed.versions) == 1
    return fed


SWING = [(1500, 3000.0), (4200, 0.02), (40_000, 20_000.0)]


@pytest.mark.parametrize("late", ["drop", "update"])
def test_an_engine_goes_over_and_back_and_no_result_changes(late: str) -> None:
    rows = swinging(1, SWING)
    queries, slack = (PLAIN, 0) if late == "update" else (QUERIES, SECOND)
    with patch.object(observed, "SPAN", 500_000):
        fed = Fed(queries, late=late).feed(rows, slack=slack).end()
    ways = [way_of(plan, "a") for plan in fed.versions]
    assert [*dict.fromkeys(ways)] == ["slices", "accumulators"] and ways[-1] == "slices"
    assert fed.engine.plan.rate.basis == "observed"
    assert not fed.engine.plan.former
    assert fed.said == unchanged(queries, rows, slack, late=late).said
    assert fed.engine.counts["updates"] > 0 or late == "drop"


MADE = [
    ct.Query(
        "ratio",
        ct.expr("sum(v) / count(*) AS mean"),
        by={"letter": "upper(k)"},
        window=ct.sliding("250ms", "90ms"),
        having=ct.expr("max(v) > 3"),
    ),
    ct.Query(
        "top",
        ct.count().alias("n"),
        by="k",
        window=ct.tumbling("107ms"),
        order_by=ct.order("n DESC"),
        limit=1,
    ),
]


def test_what_is_made_of_aggregates_goes_over_with_them() -> None:
    rows = swinging(1, SWING)
    with patch.object(observed, "SPAN", 500_000):
        fed = Fed(MADE).feed(rows).end()
    assert [*dict.fromkeys(way_of(plan, "ratio") for plan in fed.versions)][1:] == ["accumulators"]
    assert fed.said == unchanged(MADE, rows, SECOND).said


def test_windows_that_nobody_can_take_over_exactly_keep_their_group() -> None:
    fed = Fed(QUERIES).feed(swinging(1, SWING[:2]))
    assert way_of(fed.engine.plan, "a") == "accumulators"
    for plan in fed.versions[1:]:
        for name in ("visits", "ten", "laps", "once"):
            before, after = fed.versions[0], plan
            assert after.groups[after.names[name][0]].windows == (
                before.groups[before.names[name][0]].windows
            )
            assert name not in after.former.values()


def test_an_engine_goes_on_from_a_snapshot_in_the_middle_of_it() -> None:
    rows = swinging(2, [(1500, 3000.0), (4200, 0.02)])
    fed = Fed(PLAIN)
    for at in range(0, len(rows), 250):
        fed.feed(rows[at : at + 250])
        fed.engine = ct.Engine.restore(fed.engine.snapshot())
    fed.end()
    assert way_of(fed.engine.plan, "a") == "accumulators"
    whole = Fed(PLAIN)
    for at in range(0, len(rows), 250):
        whole.feed(rows[at : at + 250])
    assert fed.said == whole.end().said


def test_a_plan_changes_once_for_each_factor() -> None:
    plan = ct.plan(APART, rate=1000.0)
    watch = RateWatch(since=0, rate=1000.0 / FACTOR * 1.01)
    assert watch.next(plan, ()) == (watch, frozenset())
    watch = RateWatch(since=0, rate=0.1)
    seen, handed = watch.next(plan, ())
    assert handed == losing(plan, 0.1) and handed and seen.replans == 1
    assert seen.next(plan, ()) == (seen, frozenset())  # though the plan is still the same


def test_a_rate_is_measured_over_enough_events_and_time() -> None:
    watch = RateWatch().after(10, 0)
    assert watch.after(10 + EVENTS - 1, 100 * SPAN).rate is None
    assert watch.after(10 + 100 * EVENTS, SPAN - 1).rate is None
    assert watch.after(10 + EVENTS, SPAN).rate == EVENTS / (SPAN / 1e6)


def test_plans_change_so_often_at_most() -> None:
    spans = [(3300, 80_000.0), (3300, 0.1)] * (REPLANS // 2 + 2)
    with patch.object(observed, "SPAN", 10_000):
        fed = Fed(APART[:2]).feed(swinging(3, spans), each=1100, slack=0).end()
    changes = sum(bool(plan.former) for plan in fed.versions)
    assert fed.engine.observed.replans == REPLANS and changes >= REPLANS


def test_one_change_ends_before_the_next_begins() -> None:
    plan = ct.plan(APART)
    over, _ = replan(plan, APART, rate=EventRate(0.1), handed=losing(plan, 0.1))
    assert over.former and losing(over, 0.1) == frozenset()
    watch = RateWatch(since=0, rate=1e6)
    assert watch.next(over, ()) == (watch, frozenset())


def test_what_is_owed_cannot_be_named() -> None:
    fed = Fed(APART).feed(swinging(4, [(1000, 3000.0)]))
    fed.engine.plan_for(0.1)
    (owed, *_) = fed.engine.plan.former
    with pytest.raises(QueryError, match="cannot have this name now"):
        fed.engine.add(ct.Query(owed, ct.count(), window=ct.tumbling("1s")))


def test_explain_shows_what_was_compared() -> None:
    text = ct.plan(APART).explain()
    assert f"for {ASSUMED.per_second:,.0f} events a second (assumed)" in text
    assert "compared: 10,000 events and" in text and "by slices" in text
    assert "(given)" in ct.plan(APART, rate=5).explain()
    fed = Fed(APART).feed(swinging(1, SWING[:2]))
    fed.engine.add(ct.Query("d", ct.sum("v"), by="k", window=ct.sliding("1h", "1m")))
    assert "(observed)" in fed.engine.explain() and "by accumulators" in fed.engine.explain()


def test_open_windows_of_a_change_are_explained() -> None:
    fed = Fed(APART).feed(swinging(4, [(1000, 3000.0)]))
    fed.engine.plan_for(0.1)
    assert "open windows of a, b, which another group goes on with" in fed.engine.explain()
    assert "3 queries, 3 distinct" in fed.engine.explain()


def test_a_plan_keeps_what_it_was_decided_by() -> None:
    costs = CostModel(edge=7.0)
    plan = ct.plan(APART, rate=3.0, costs=costs)
    again = ct.Plan.from_bytes(plan.to_bytes())
    assert (again.rate, again.costs) == (EventRate(3.0), costs) and again == plan


@pytest.mark.parametrize("wrong", [0, -1.0, float("inf"), float("nan")])
def test_costs_are_positive(wrong: float) -> None:
    with pytest.raises(QueryError, match="cost 'edge' must be positive"):
        CostModel(edge=wrong)


@examples(0.5)
@given(seed=st.integers(0, 2**32))
def test_costs_that_are_off_give_no_other_results(seed: int) -> None:
    dice = random.Random(seed)
    off = {name: 10 ** dice.uniform(-2, 2) for name in CostModel.__struct_fields__}
    costs = CostModel(**{name: getattr(RECORDED, name) * times for name, times in off.items()})
    rows = swinging(seed, [(dice.randint(5, 60), 10 ** dice.uniform(-1, 3)) for _ in range(4)])
    with patch.multiple(observed, EVENTS=3, SPAN=1, FACTOR=1.5, REPLANS=dice.randint(1, 20)):
        fed = Fed(PLAIN, rate=10 ** dice.uniform(-2, 5), costs=costs)
        fed.feed(rows, each=dice.randint(1, 40), slack=10 * SECOND).end()
    truth = oracle(PLAIN, rows)
    for query in PLAIN:
        assert sorted(map(str, fed.rows[query.name])) == sorted(map(str, truth[query.name]))


# Spark's pipeline, and trees.

SMALL = {"EVENTS": 20, "SPAN": 1, "FACTOR": 2.0}


def in_time(seed: int) -> list[dict[str, Any]]:
    return sorted(swinging(seed, [(60, 2000.0), (60, 0.1), (60, 2000.0)]), key=lambda r: r["ts"])


@pytest.mark.spark
@examples(0.2)
@given(seed=st.integers(0, 2**32))
def test_a_streaming_job_goes_over_while_things_crash(seed: int) -> None:
    job_gone_over(seed, 0.05)


@pytest.mark.spark
def test_the_driver_of_a_job_plans_anew() -> None:
    plan = job_gone_over(0, 0)
    assert plan.version > 2 and plan.rate.basis == "observed"


def job_gone_over(seed: int, crashes: float) -> ct.Plan:
    """The last plan of a streaming job whose results are right."""
    rows = in_time(seed)
    batches = [[("0", as_table(rows[at : at + 12]))] for at in range(0, len(rows), 12)]
    with tempfile.TemporaryDirectory() as folder, patch.multiple(observed, **SMALL):
        pipeline = Pipeline(folder, batches, PLAIN, seed=seed, crashes=crashes, buckets=2)
        found = pipeline.run()
        plan = pipeline.spec.plan(pipeline.progress[-1].plan).plan
    truth = oracle(PLAIN, rows)
    for query in PLAIN:
        given = sorted(map(str, rows_of(found[query.name])))
        assert given == sorted(map(str, truth[query.name]))
    return plan


@pytest.mark.slow
@examples(0.4)
@given(seed=st.integers(0, 2**32), some=st.sampled_from([0, 0.05]))
def test_a_tree_goes_over_while_things_go_wrong(seed: int, some: float) -> None:
    tree_gone_over(seed, some)


def test_the_root_of_a_tree_plans_anew() -> None:
    plans = [planned.plan for planned in tree_gone_over(0, 0)]
    assert any(plan.former for plan in plans) and plans[-1].rate.basis == "observed"


def tree_gone_over(seed: int, some: float) -> list[Planned]:
    """The versions of the plan of a tree whose results are right; `some` are faults."""
    parents: dict[str, str | None] = {"root": None, "m": "root", "a": "m", "b": "m", "c": "root"}
    rows = {id: in_time(seed + n) for n, id in enumerate("abc")}
    tables = {
        id: [as_table(part[at : at + 9]) for at in range(0, len(part), 9)]
        for id, part in rows.items()
    }
    with patch.multiple(observed, **SMALL):
        ruled = charter(parents, PLAIN)
        faults = Faults(lost=some, twice=some, crash=some, cut=some)
        world = World(ruled, tables, seed, faults, until=4)
        world.run()
    assert world.done
    truth = oracle(PLAIN, [row for part in rows.values() for row in part])
    for query in PLAIN:
        found = final(world.deliveries, query.name)
        for row in found:
            assert row.pop("complete") is True and row.pop("missing") is None
        assert sorted(map(str, found)) == sorted(map(str, truth[query.name]))
    root = world.sites["root"].member
    assert root is not None and root.charter is not None
    return [planned for _, planned in sorted(root.charter.plans.items())]
