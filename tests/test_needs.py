"""Queries share slices only where their needs are the same, so that sharing never costs."""

from __future__ import annotations

import math
from random import Random

import pyarrow as pa
import pytest

import catchment as ct
from catchment.engine import slicing
from catchment.engine.bound_group import BoundGroup
from catchment.model.plan import Group
from catchment.model.window import Window
from catchment.planner.group import replan
from catchment.planner.together import sliced_together
from catchment.testing.compare import assert_same
from catchment.testing.oracle import oracle
from catchment.testing.strategies import to_table

MEAN = ct.Query("mean", ct.avg("v"), by="k", window=ct.sliding("1m", "1s"))
MEDIAN = ct.Query("median", ct.median("v"), by="k", window=ct.tumbling("1m"))
HUNDRED = ct.Query("hundred", ct.max("v"), by="k", window=ct.count_tumbling(100))
LAPS = ct.Query("laps", ct.min("v"), by="k", window=ct.cut("v > 9"))
VISITS = ct.Query("visits", ct.count(), by="k", window=ct.session("5s"))


def group_of(plan: ct.Plan, name: str) -> Group:
    return plan.groups[plan.names[name][0]]


def test_values_are_sorted_on_the_edges_of_their_own_windows() -> None:
    plan = ct.plan([MEAN, MEDIAN])
    assert group_of(plan, "median").windows == (MEDIAN.window,)
    assert [kind for kind, *_ in group_of(plan, "median").operators] == ["sort"]
    assert "sort" not in [kind for kind, *_ in group_of(plan, "mean").operators]


@pytest.mark.parametrize("waits", [HUNDRED, LAPS], ids=lambda query: query.name)
def test_time_windows_and_sessions_do_not_wait_for_others(waits: ct.Query) -> None:
    plan = ct.plan([MEAN, waits, VISITS])
    assert group_of(plan, "mean") is group_of(plan, "visits")
    assert group_of(plan, "mean").slicing == "arrival"
    assert group_of(plan, waits.name).slicing == "settled"
    assert group_of(plan, waits.name).windows == (waits.window,)


def test_sketches_are_as_large_as_sorted_values() -> None:
    plan = ct.plan([MEAN, ct.Query("about", ct.approx_median("v"), by="k", window=MEAN.window)])
    assert len(plan.groups) == 2


def test_a_query_of_both_kinds_is_in_one_group() -> None:
    both = ct.Query("both", ct.avg("v"), ct.median("v"), by="k", window=ct.tumbling("1m"))
    plan = ct.plan([MEAN, MEDIAN, both])
    assert group_of(plan, "both") is group_of(plan, "median")


def test_a_query_added_later_joins_the_group_of_its_need() -> None:
    before = ct.plan([MEAN, MEDIAN, LAPS])
    added = [
        ct.Query("total", ct.sum("v"), by="k", window=ct.tumbling("1m")),
        ct.Query("p95", ct.quantile("v", 0.95), by="k", window=ct.tumbling("2m")),
        ct.Query("sum of laps", ct.sum("v"), by="k", window=LAPS.window),
    ]
    plan, lineage = replan(before, [MEAN, MEDIAN, LAPS, *added])
    assert len(plan.groups) == len(before.groups) == len(lineage)
    pairs = zip(("mean", "median", "laps"), added, strict=True)
    assert all(group_of(plan, old) is group_of(plan, new.name) for old, new in pairs)


def test_a_running_group_of_count_windows_stays_as_it_is() -> None:
    before = ct.plan([HUNDRED])
    more = ct.Query("thousand", ct.max("v"), by="k", window=ct.count_tumbling(1000))
    plan, _ = replan(before, [HUNDRED, more])
    assert group_of(plan, "hundred").windows == before.groups[0].windows
    assert group_of(plan, "thousand") is not group_of(plan, "hundred")


def test_a_function_defined_anew_has_another_need() -> None:
    def slicing(commutative: bool) -> str:
        plain = {"lift": list, "combine": lambda a, b: a + b, "lower": len}
        made = ct.function("letters", **plain, commutative=commutative)
        query = ct.Query("letters", made("k"), window=ct.tumbling("1s"))
        return ct.plan([query]).groups[0].slicing

    assert [slicing(True), slicing(False), slicing(True)] == ["arrival", "settled", "arrival"]


def medians(*windows: Window, where: str | None = None) -> list[ct.Query]:
    return [
        ct.Query(f"m{n}", ct.median("v"), by="k", where=where, window=window)
        for n, window in enumerate(windows)
    ]


@pytest.mark.parametrize(
    ("windows", "groups"),
    [
        ([ct.tumbling("10s"), ct.sliding("20s", "10s")], 1),  # the same edges
        ([ct.tumbling("10s"), ct.tumbling("40s")], 1),  # four runs to merge
        ([ct.tumbling("1s"), ct.tumbling("60s")], 2),  # sixty
        ([ct.session("1s"), ct.session("1s")], 1),
        ([ct.tumbling("1s"), ct.session("1s")], 2),  # an open session is merged again and again
        ([ct.count_tumbling(100), ct.count_tumbling(200)], 1),
        ([ct.count_tumbling(100), ct.count_tumbling(5000)], 2),
        ([ct.cut("v > 9"), ct.cut("v > 8")], 2),  # nobody knows how often
    ],
    ids=str,
)
def test_large_partials_are_shared_by_windows_that_are_cut_about_as_often(
    windows: list[Window], groups: int
) -> None:
    assert len(ct.plan(medians(*windows)).groups) == groups


def test_large_partials_of_one_condition_are_not_made_for_others() -> None:
    below, above = (medians(ct.tumbling("10s"), where=where)[0] for where in ("v < 5", "v >= 5"))
    other = ct.Query("other", ct.count_distinct("u"), by="k", where="v >= 5", window=above.window)
    plan = ct.plan([below, ct.Query("above", *above.aggregates, **shape(above)), other])
    assert group_of(plan, "above") is group_of(plan, "other")
    assert group_of(plan, "m0") is not group_of(plan, "other")


def shape(query: ct.Query) -> dict[str, object]:
    return {"by": query.by, "where": query.where, "window": query.window}


def test_groups_of_one_key_are_sliced_together() -> None:
    fast = ct.Query("fast", ct.count(), by="k", where="v > 5", window=ct.tumbling("10s"))
    plan = ct.plan([MEAN, MEDIAN, HUNDRED, fast, ct.Query("all", ct.count(), window=MEAN.window)])
    (together,) = sliced_together(plan.groups)
    mean, fast, everything = (plan.names[name][0] for name in ("mean", "fast", "all"))
    assert together == [mean, everything, fast]  # without keys, from the cells of a key
    assert f"sliced together with group(s) {fast}, {everything}" in plan.explain()


def test_sets_of_groups_have_few_conditions() -> None:
    queries = [
        ct.Query(f"q{n}", ct.count(), by="k", where=f"v % 50 = {n} OR u = {n}", window=MEAN.window)
        for n in range(40)
    ]
    sets = sliced_together(ct.plan(queries).groups)
    assert [len(ids) for ids in sets] == [16, 16, 8]


def test_conditions_on_ranges_of_one_column_are_many() -> None:
    """Between two bounds the same conditions are met: fifty alerts leave 51 sets of them."""
    queries = [
        ct.Query(f"{c}{n}", ct.count(), by="k", where=f"{c} > {n}", window=MEAN.window)
        for n in range(50)
        for c in "uv"
    ]
    plan = ct.plan(queries)
    sets = sliced_together(plan.groups)
    assert [len(ids) for ids in sets] == [50, 50]
    assert "50 condition(s), of which events meet 51 sets at most" in plan.explain()
    for column, ids in zip("uv", sets, strict=True):
        assert {plan.groups[id].selections[0][0] for id in ids} == {column}


MANY = [
    ct.Query("median", ct.median("v"), ct.min("v"), by="k", window=ct.sliding("8us", "2us")),
    ct.Query("mode", ct.mode("j"), ct.avg("v"), by="k", window=ct.tumbling("2us")),
    ct.Query("about", ct.approx_median("v"), by="k", window=ct.cumulate("8us", "2us")),
    ct.Query("sets", ct.count_distinct("j"), ct.sum("v"), by="k", window=ct.tumbling("4us")),
    ct.Query("three", ct.median("v"), ct.count(), by="k", window=ct.count_tumbling(3)),
    ct.Query("six", ct.mode("j"), ct.last("v"), by="k", window=ct.count_sliding(6, 3)),
]
"""The first four share slices in time, the others slices by rank."""


def test_windows_are_merged_with_what_their_queries_ask_for() -> None:
    plan = ct.plan(MANY)
    assert len(plan.groups) == 2
    types = {"v": pa.float64(), "j": pa.int64()}
    found = {
        plan.groups[0].windows[place].describe(): set(need.operators)
        for need in BoundGroup(plan.groups[0], types, {"k": pa.string()}).needs
        for place in need.places
    }
    assert found == {
        "sliding(8us, 2us)": {"sort(v)"},
        "tumbling(2us)": {"counts(j)", "sum(v)", "count(v)"},
        "cumulate(8us, 2us)": {"kll(v)"},
        "tumbling(4us)": {"counts(j)", "sum(v)", "count(v)"},
    }
    told = plan.explain()
    assert "merged only where asked for: sort(v) for sliding(8us, 2us); counts(j) for " in told
    assert "kll(v) for cumulate(8us, 2us)" in told


def test_merged_or_not_they_are_the_same_windows() -> None:
    for seed in range(20):
        random = Random(seed)
        rows = [
            {
                "ts": random.randrange(40),
                "k": random.choice("ab"),
                "j": random.choice([1, 2, None]),
                "v": random.choice([None, 1.0, 2.5, -3.0]),
            }
            for _ in range(60)
        ]
        rows.sort(key=lambda row: int(str(row["ts"])))
        engine = ct.Engine(MANY)
        parts: dict[str, list[pa.Table]] = {query.name: [] for query in MANY}
        for begin in range(0, len(rows), 15):
            engine.push(to_table(rows[begin : begin + 15]))
            results = engine.advance(int(str(rows[min(begin + 15, len(rows) - 1)]["ts"])))
            for name, tables in parts.items():
                tables.append(results[name])
        for name, table in engine.close().items():
            parts[name].append(table)
        expected = oracle(MANY, rows)
        for name, tables in parts.items():
            assert_same(expected[name], pa.concat_tables(tables), f"seed {seed}, {name}")


def test_alerts_on_ranges_give_what_each_gives_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slicing, "EVENTS_A_CELL", 1e-9)
    alerts = [
        ct.Query(
            f"{column}{sign}{n}",
            ct.count(),
            ct.sum("v"),
            by="k",
            where=f"{column} {sign} {n}",
            window=ct.sliding("6us", "2us"),
        )
        for column in "vw"
        for sign in ("<", ">=")
        for n in range(12)
    ]
    values = [None, math.nan, math.inf, *(number / 2 for number in range(-2, 26))]
    random = Random(1)
    rows = [
        {"ts": n // 4, "k": random.choice("ab"), "v": random.choice(values), "w": n % 14}
        for n in range(200)
    ]
    schema = {"ts": pa.timestamp("us", "UTC"), "k": pa.string(), "v": pa.float64(), "w": pa.int64()}
    engine = ct.Engine(alerts)
    engine.push(pa.Table.from_pylist(rows, pa.schema(list(schema.items()))))
    out = engine.close()
    for name, wanted in oracle(alerts, rows).items():
        assert_same(wanted, out[name], name)
