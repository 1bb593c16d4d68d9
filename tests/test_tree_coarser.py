"""Groups that follow from the partials of another one: only the finer ones travel in a tree."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import combinations
from typing import Any

import pytest

import catchment as ct
from catchment.engine.bound import BoundPlan
from catchment.engine.keys import KeyIndex
from catchment.engine.partials import KeyedSlices
from catchment.errors import StateError
from catchment.model.query import Query
from catchment.model.rules import EventRules
from catchment.planner import plan
from catchment.planner.coarser import coarser_groups
from catchment.simulate import Faults, World
from catchment.testing.oracle import oracle
from faulty_trees import ended, events_of, faults, says_lost, shape, wrongs
from schedules import SCHEDULES, seed_range, share
from test_simulate import one_schedule
from trees import SCHEMA, batches, charter, check, check_marked, final

SOME = share(80, 16)
"""Schedules of each kind of this file, of all of them."""
KEYS = ["k", "m"]
SETS = [list(keys) for count in range(3) for keys in combinations(KEYS, count)]
CUBE = [
    Query("by " + "".join(keys), ct.sum("v"), ct.count(), by=keys, window=ct.tumbling("1s"))
    for keys in SETS
]


def query(name: str, dice: random.Random, unit: int = 1) -> Query:
    half, one, two, three, eight = (f"{unit * ms}ms" for ms in (500, 1000, 2000, 3000, 8000))
    windows = [ct.tumbling(half), ct.tumbling(one), ct.tumbling(two)]
    windows += [ct.sliding(three, one), ct.sliding(eight, one)]
    some = dice.choice([[ct.sum("v"), ct.count()], [ct.sum("v")], [ct.max("v"), ct.avg("v")]])
    where = dice.choice([None, None, "v > 20"])
    return Query(name, *some, by=dice.choice(SETS), where=where, window=dice.choice(windows))


def made_of(*queries: Query) -> dict[int, int]:
    return coarser_groups(plan(queries), {}, {})


def one(name: str, by: list[str], window: Any, *aggregates: Any, **rest: Any) -> Query:
    return Query(name, *(aggregates or (ct.sum("v"),)), by=by, window=window, **rest)


# -- which groups follow -----------------------------------------------------------------------


def test_all_sets_of_keys_follow_from_the_finest() -> None:
    assert made_of(*CUBE) == {0: 3, 1: 3, 2: 3}


@pytest.mark.parametrize(
    ("coarse", "follows"),
    [
        (one("c", [], ct.tumbling("1s")), True),
        (one("c", ["k"], ct.tumbling("10s")), True),
        (one("c", [], ct.sliding("30d", "1min")), True),
        (one("c", [], ct.tumbling("1s"), ct.avg("v"), ct.count()), True),
        (one("c", ["j"], ct.tumbling("1s")), False),
        (one("c", [], ct.tumbling("1500ms")), False),
        (one("c", [], ct.tumbling("1s", offset="300ms")), False),
        (one("c", [], ct.tumbling("1s"), ct.min("v")), False),
        (one("c", [], ct.tumbling("1s"), where="v > 3"), False),
        (one("c", [], ct.tumbling("1s"), ct.median("v")), False),
        (one("c", [], ct.session("1s")), False),
        (one("c", [], ct.tumbling("1s"), distinct_on=["k"]), False),
        (one("c", [], ct.tumbling("1s"), measure="processing"), False),
    ],
)
def test_what_follows(coarse: Query, follows: bool) -> None:
    fine = one("f", ["k", "m"], ct.tumbling("1s"), ct.avg("v"), ct.count())
    assert made_of(fine, coarse) == ({1: 0} if follows else {})
    assert made_of(coarse, fine) == ({0: 1} if follows else {})


def test_what_travels_goes_on_to_travel() -> None:
    first, second = CUBE[1], CUBE[3]
    alone = charter({"root": None, "a": "root"}, [first])
    both = alone.with_queries([first, second])
    assert both.plans[both.plan].made_of == {}, "some of its partials may be on their way"
    again = both.with_queries([first, second, CUBE[2]])
    assert again.plans[again.plan].made_of == {2: 1}
    without = again.with_queries([first, CUBE[2]])
    assert without.plans[without.plan].made_of == {}


# -- in trees ---------------------------------------------------------------------------------


def several(dice: random.Random, _: str) -> list[Query]:
    """Queries that differ in keys, windows and conditions."""
    return [query(f"q{n}", dice) for n in range(dice.randint(2, 5))]


@pytest.mark.timeout(max(900, SCHEDULES))
@pytest.mark.parametrize("part", range(2))
def test_schedules(part: int) -> None:
    worlds = [one_schedule(seed, several, 20) for seed in seed_range(SOME, part, 2)]
    plans = [world.charter.plans[0] for world in worlds]
    assert any(planned.made_of for planned in plans)


def wrong(seed: int) -> None:
    """Folders and processes go wrong, or nodes are given up: what says to be complete is exact."""
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(1, 3))
    queries = several(dice, "drop")
    events = events_of(parents, seed, 40, 6)
    settings: dict[str, Any] = {"late": "drop"}
    if dice.random() < 0.5:
        settings["timeout"] = dice.choice([3, 6, 10]) * 10**5
    world = World(charter(parents, queries, **settings), events, seed, wrongs(dice), until=8)
    world.run()
    exact = world.stuck is None and not world.aside and not says_lost(world)
    if exact and "timeout" not in settings:
        check(world.deliveries, events, queries)
    check_marked(world.deliveries, events, queries)


@pytest.mark.timeout(max(900, SCHEDULES))
@pytest.mark.parametrize("part", range(2))
def test_what_goes_wrong(part: int) -> None:
    for seed in seed_range(SOME, part, 2):
        wrong(seed)


def changing(seed: int) -> int:
    """Queries come and go while things go wrong; gives how many groups were made of others."""
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(1, 3))
    unit = dice.choice([1, 4])  # where slices are long, the root knows little of the newest events
    queries = {name: query(name, dice, unit) for name in ("q0", "q1", "q2")}
    events = events_of(parents, seed, 100, 20)
    trouble = faults(dice) if dice.random() < 0.5 else Faults()
    world = World(charter(parents, queries.values()), events, seed, trouble, until=5)
    first, removed, seen = set(queries), set[str](), [0]

    def change() -> None:
        root = world.sites["root"].member
        if root is None or root.charter is None:
            return
        held = root.charter.plans[root.charter.plan]
        name = f"q{len(queries)}"
        new = query(name, dice)
        gone = dice.choice([None, *sorted(held.queries)])
        added = [] if dice.random() < 0.4 else [new]
        stay = [each for each in held.queries.values() if each.name != gone]
        if not stay and not added:
            return
        with suppress(StateError):  # its disk may be full
            changed = root.charter.with_queries([*stay, *added])
            root.adopt(changed, world.now)
            queries.update({each.name: each for each in added})
            removed.update([] if gone is None else [gone])
            seen[0] += len(changed.plans[changed.plan].made_of)

    apart = dice.choice([300_000, 30_000])  # a node may hear of several changes at once
    for at in range(dice.randint(1, 5)):
        world.after(at * apart + dice.randrange(300_000), change)
    ended(world, seed)
    rows = [row for tables in events.values() for table in tables for row in table.to_pylist()]
    for name, each in queries.items():
        wanted = oracle([each], rows)[name]
        found = [row for row in final(world.deliveries, name) if row.pop("complete")]
        for row in found:
            assert row.pop("missing") is None
            assert row in wanted, (seed, name, row)
        if name in first - removed:
            assert len(found) == len(wanted), (seed, name)
    return seen[0] + len(world.charter.plans[0].made_of)


@pytest.mark.timeout(max(900, SCHEDULES))
@pytest.mark.parametrize("part", range(2))
def test_queries_come_and_go(part: int) -> None:
    assert sum(changing(seed) for seed in seed_range(SOME, part, 2))


def test_a_cube_costs_what_its_finest_set_costs() -> None:
    def sent(queries: list[Query]) -> int:
        made = charter({"root": None, "m": "root", "a": "m", "b": "m"}, queries)
        events = {id: batches(n, 2_000, 20, 200) for n, id in enumerate("ab")}
        world = World(made, events, until=0)
        ended(world, 0)
        check(world.deliveries, events, queries)
        return sum(world.bytes.values())

    assert sent(CUBE) <= 1.05 * sent(CUBE[3:])


def test_slices_are_under_the_very_keys_that_are_given() -> None:
    """An index without keys is given too, by a group that goes on by itself."""
    group = BoundPlan(plan(CUBE[-1:]), EventRules(), SCHEMA).groups[0]
    keys = KeyIndex()
    assert KeyedSlices(group, keys).keys is keys
