"""Queries share slices only where their needs are the same, so that sharing never costs."""

from __future__ import annotations

import pytest

import catchment as ct
from catchment.model.plan import Group
from catchment.model.window import Window
from catchment.planner.group import replan
from catchment.planner.together import sliced_together

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
        ([ct.tumbling("1s"), ct.session("500ms"), ct.tumbling("60s")], 2),
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
    assert together == [plan.names["mean"][0], plan.names["fast"][0]]
    assert f"sliced together with group(s) {plan.names['fast'][0]}" in plan.explain()


def test_sets_of_groups_have_few_conditions() -> None:
    queries = [
        ct.Query(f"q{n}", ct.count(), by="k", where=f"v % 50 = {n} OR u = {n}", window=MEAN.window)
        for n in range(40)
    ]
    sets = sliced_together(ct.plan(queries).groups)
    assert [len(ids) for ids in sets] == [16, 16, 8]
