"""Conditions are put into groups by an index, as if each had been compared with each."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import catchment as ct
from benchmarks.random_queries import random_queries
from catchment.expression import alternatives, disjoint
from catchment.planner.cells import Cells
from catchment.planner.drafts import OPEN
from catchment.planner.group import replan
from catchment.planner.selections import FEW
from expression_rows import facts

Groups = list[list[str | None]]


def planned(conditions: Iterable[str | None]) -> Groups:
    """The selections of each group, of queries that differ in nothing but their conditions."""
    window = ct.tumbling("1s")
    queries = [
        ct.Query(f"q{number}", ct.sum("x"), window=window, where=condition)
        for number, condition in enumerate(conditions)
    ]
    return [list(group.selections) for group in ct.plan(queries).groups]


def compared(conditions: Iterable[str | None]) -> Groups:
    """The same by definition: a condition joins the first group of which it is, or can be proved
    disjoint from, every selection."""
    groups: Groups = []
    for condition in conditions:
        where = (
            None
            if condition is None
            else ct.Query("q", ct.count(), window=ct.tumbling("1s"), where=condition).where
        )
        for group in groups:
            if where in group:
                break
            if where and all(other and disjoint(where, other) for other in group):
                group.append(where)
                break
        else:
            groups.append([where])
    return groups


@given(st.lists(st.none() | facts.map(lambda made: made.text), max_size=FEW))
@example(["i = 1 AND b", "i = 1 AND NOT b", "i = 2", "i IS NULL"])
@example(["i = 1 OR s = 'a'", "i = 2 AND s = 'b'"])
@example(["i > 3 AND i < 2", "i = 1", "i = 2", "s = 'a'"])
def test_few_conditions_are_each_compared_with_each(conditions: list[str | None]) -> None:
    assert planned(conditions) == compared(conditions)


def drawn(draw: random.Random, kind: str) -> str:
    column, number = draw.choice("vw"), draw.randint(0, 400)
    if kind == "points":
        return f"{column} = {number}"
    if kind == "lists":
        return f"{column} IN ({number}, {number + draw.randint(1, 3)})"
    if kind == "ranges":
        return f"{column} >= {number} AND {column} < {number + draw.randint(1, 40)}"
    if kind == "conjunctions":
        return f"{column} = {number} AND {draw.choice('xyz')} > {draw.randint(0, 9)}"
    return drawn(draw, draw.choice(["points", "lists", "ranges"]))


@pytest.mark.parametrize("kind", ["points", "lists", "ranges", "conjunctions", "all"])
@given(seed=st.integers(0, 2**32))
def test_many_conditions_are_grouped_as_if_compared(kind: str, seed: int) -> None:
    draw = random.Random(seed)
    conditions = [drawn(draw, kind) for _ in range(150)]
    groups = compared(conditions)
    assert max(len(group) for group in groups) > FEW
    assert planned(conditions) == groups


def test_a_tree_of_conditions_is_one_group_of_any_size() -> None:
    conditions = [
        condition
        for site in range(50)
        for condition in (f"site = {site} AND v < 3", f"site = {site} AND v >= 3")
    ]
    assert planned(conditions) == compared(conditions) == [conditions]


@given(st.lists(facts.map(lambda made: made.text), min_size=20, max_size=80))
def test_the_selections_of_a_group_are_always_disjoint(conditions: list[str]) -> None:
    groups = planned(conditions)
    for group in groups:
        pairs = [(a, b) for a in group for b in group if a != b]
        assert all(disjoint(str(a), str(b)) for a, b in pairs)
    canonical = {condition for group in compared(conditions) for condition in group}
    assert sorted(str(c) for group in groups for c in group) == sorted(map(str, canonical))


def test_only_the_newest_groups_of_a_term_are_tried() -> None:
    """Ranges that all meet open a group each; one that meets none finds the newest ones."""
    meeting = [f"v >= {n} AND v < 1000" for n in range(2 * OPEN)]
    groups = planned([*meeting, "v >= 1000", "v < 0"])
    assert len(groups) == 2 * OPEN
    assert groups[OPEN][1:] == ["v >= 1000", "v < 0"]


@pytest.mark.slow
def test_a_hundred_thousand_selections_are_one_group() -> None:
    conditions = [f"site = 'x{n}'" for n in range(100_000)]
    random.Random(1).shuffle(conditions)
    (group,) = planned(conditions)
    assert group == conditions


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 9)), max_size=400))
def test_cells_find_what_a_search_of_all_finds(spans: list[tuple[int, int]]) -> None:
    cells: Cells[str] = Cells(block=4)
    held: dict[str, tuple[int, int]] = {}
    for low, length in spans:
        text = f"v >= {low} AND v < {low + length}"
        (asked,) = alternatives(text)
        ranges = asked["v"]
        meets = {t: s for t, s in held.items() if s[0] < low + length and low < s[1]}
        equal = [t for t in meets if t == text]
        wanted = None if len(meets) > len(equal) else equal
        assert cells.lookup(ranges) == wanted
        if wanted == []:
            cells.add(ranges, text)
            held[text] = (low, low + length)


def test_a_plan_goes_on_as_it_is_when_a_query_is_added() -> None:
    queries = list(random_queries(500))
    before = ct.plan(queries)
    more = ct.Query("more", ct.sum("v0"), by="k0", where="v0 = -1", window=ct.tumbling("7s"))
    after, lineage = replan(before, [*queries, more])
    assert after.groups[: len(before.groups)] == before.groups
    assert lineage == {group.id: group.id for group in before.groups}
    assert {name: after.names[name] for name in before.names} == before.names
    assert len(after.groups) == len(before.groups) + 1


def test_random_queries_are_distinct_and_the_same_for_every_seed() -> None:
    queries = list(random_queries(2_000))
    assert len({query.identity for query in queries}) == 2_000
    assert queries == list(random_queries(2_000))
    assert queries != list(random_queries(2_000, seed=2))
