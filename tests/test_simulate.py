"""Whole trees under a virtual clock, with faults by seed, against brute force."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

import catchment as ct
from catchment.model.query import Query
from catchment.simulate import Faults, World
from catchment.testing import oracle
from catchment.tree.root import Root
from faulty_trees import HOUR, ended, events_of, faults, flushing, moving, says_lost, shape, wrongs
from schedules import SCHEDULES, seed_range, share
from trees import (
    BY_NODE,
    EVERY_READING,
    QUERIES,
    READ,
    batches,
    charter,
    check,
    check_marked,
    final,
)

DEEP: dict[str, str | None] = {
    "root": None,
    "m1": "root",
    "m2": "root",
    "a": "m1",
    "b": "m1",
    "c": "m2",
    "d": "root",
}
FEW = [QUERIES[0], QUERIES[3], QUERIES[5]]
WRONG = share(10)
"""Schedules in which folders and processes go wrong, of all of them."""
PLAIN = 8 * WRONG
"""Schedules with faults of links and crashes."""
MOVING = share(800, 2)
NODES = 1000 if SCHEDULES > 5000 else 200


def test_a_tree_without_faults() -> None:
    events = {id: batches(n) for n, id in enumerate("abcd")}
    world = World(charter(DEEP), events, until=0)
    ended(world, 0)
    check(world.deliveries, events)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seed_range(share(625, 4)))
def test_faults_of_every_kind(seed: int) -> None:
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(1, 5))
    late = dice.choice(["drop", "update"])
    settings = {"late": late, "keep": HOUR, "timeout": 2 * 10**6} if late == "update" else {}
    queries = QUERIES + (BY_NODE if late == "update" else EVERY_READING)
    events = events_of(parents, seed, 80)
    flush, trouble = flushing(seed, faults(dice))
    ruled = charter(parents, queries, **settings, **flush)
    world = World(ruled, events, seed, trouble, until=20)
    ended(world, seed)
    check(world.deliveries, events, queries)


def few(dice: random.Random, late: str) -> list[Query]:
    """A query or two; windows of streams only where late events are dropped."""
    by_stream = late == "drop" and dice.random() < 0.5
    read = [dice.choice(EVERY_READING), QUERIES[3]]
    return read if by_stream else [dice.choice([*FEW, *BY_NODE])]


def one_schedule(
    seed: int, choose: Callable[[random.Random, str], list[Query]] = few, count: int = 12
) -> World:
    """A small tree in which links, disks and processes fail; all windows are checked.

    `choose` draws its queries, given how late events are treated; each node has `count` events.
    """
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(1, 3))
    late = dice.choice(["drop", "update"])
    settings = {"late": late, "keep": HOUR, "timeout": 10**6} if late == "update" else {}
    events = events_of(parents, seed, count, 4)
    queries = choose(dice, late)
    flush, trouble = flushing(seed, faults(dice))
    world = World(charter(parents, queries, **settings, **flush), events, seed, trouble, until=3)
    ended(world, seed)
    check(world.deliveries, events, queries)
    return world


@pytest.mark.timeout(max(900, SCHEDULES))
@pytest.mark.parametrize("part", range(8))
def test_thousands_of_schedules(part: int) -> None:
    assert sum(one_schedule(seed).faulted for seed in seed_range(PLAIN, part, 8))


def given_up(seed: int) -> int:
    """A tree whose nodes are away for longer than others wait, and bring what is too late then.

    Windows that lack it say so; the rest is checked. Windows whose bounds follow from those before
    (counts, marks of all nodes, windows joined over streams) go on without late events, so brute
    force over all events cannot judge them. Gives the number of late events.
    """
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(2, 4))
    events = events_of(parents, seed, 60, 6)
    wide = ct.Query("wide", ct.sum("v"), by="k", window=ct.sliding("2s", "500ms"))
    inner = ct.Query("inner", ct.sum("v").alias("s"), by="k", window=ct.sliding("2s", "1s"))
    outer = ct.Query("outer", ct.max("s"), by="k", window=ct.tumbling("3s"), source=inner)
    query = [dice.choice([wide, outer, *QUERIES[:4], *READ[:2], *EVERY_READING[5:9]])]
    flush, trouble = flushing(seed, replace(faults(dice), crash=0.3, down=2.0))
    settings = {"late": "drop", "timeout": dice.choice([3, 6, 10]) * 10**5}
    world = World(charter(parents, query, **settings, **flush), events, seed, trouble, until=8)
    ended(world, seed)
    check_marked(world.deliveries, events, query)
    root = world.sites["root"].member
    assert root is not None and isinstance(root.machine, Root)
    return root.machine.counts["late"]


@pytest.mark.timeout(max(900, SCHEDULES))
@pytest.mark.parametrize("part", range(2))
def test_what_comes_too_late_makes_windows_incomplete(part: int) -> None:
    assert sum(given_up(seed) for seed in seed_range(share(100, 8), part, 2))


def gone_wrong(seed: int) -> World:
    """A tree whose folders and processes go wrong; what is exact is checked."""
    dice = random.Random(seed)
    parents = shape(dice, dice.randint(1, 3))
    late = dice.choice(["drop", "update"])
    settings = {"late": late, "keep": HOUR, "timeout": 10**6} if late == "update" else {}
    events = events_of(parents, seed, 40, 6)
    query = [dice.choice(EVERY_READING), QUERIES[3]] if late == "drop" else [dice.choice(FEW)]
    world = World(charter(parents, query, **settings), events, seed, wrongs(dice), until=8)
    world.run()
    # Said in the log and the status of the node, or in the results.
    if world.stuck is not None or world.aside or says_lost(world):
        check_marked(world.deliveries, events, query)
        return world
    assert world.done, f"seed {seed} is not done after {world.now / 1e6:.0f} s: {world.happened}"
    check(world.deliveries, events, query)
    return world


@pytest.mark.timeout(max(900, SCHEDULES))
@pytest.mark.parametrize("part", range(8))
def test_folders_and_processes_go_wrong(part: int) -> None:
    happened: list[str] = []
    seeds = seed_range(WRONG, part, 8)
    for seed in seeds:
        happened += gone_wrong(seed).happened
    if len(seeds) < 50:
        return  # a few schedules need not have met everything
    for word in ("twin", "old copy", "damage", "is turned away", "goes on"):
        assert any(word in text for text in happened), word


@pytest.mark.parametrize("seed", [1308])
def test_folders_that_once_made_results_wrong(seed: int) -> None:
    """1308: the root's inbox lost the end of what its steps had taken."""
    gone_wrong(seed)


@pytest.mark.slow
def test_many_nodes_in_three_levels() -> None:
    """A thousand nodes in a soak, some hundred otherwise."""
    parents: dict[str, str | None] = {"root": None}
    parents |= {f"m{n}": "root" for n in range(30)}
    parents |= {f"l{n}": f"m{n % 30}" for n in range(NODES - 31)}
    query = [ct.Query("avg", ct.avg("v"), ct.count(), by="k", window=ct.tumbling("2s"))]
    events = events_of(parents, 7, 5, 8)
    trouble = Faults(lost=0.02, twice=0.02, crash=0.01, cut=0.01)
    world = World(charter(parents, query), events, 7, trouble, until=5)
    ended(world, 7)
    assert world.faulted > NODES // 10
    check(world.deliveries, events, query)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seed_range(MOVING))
def test_nodes_move_while_it_all_goes_wrong(seed: int) -> None:
    dice = random.Random(seed)
    parents: dict[str, str | None] = {"root": None, "m0": "root", "m1": "root", "m2": "m1"}
    parents |= {f"l{n}": ["m0", "m1", "m2", "root", "m0", "m2"][n] for n in range(6)}
    late = dice.choice(["drop", "update"])
    settings = {"late": late, "keep": HOUR, "timeout": 4 * 10**6} if late == "update" else {}
    query = [FEW[seed % 3], QUERIES[2], *([EVERY_READING[seed % 12]] if late == "drop" else [])]
    leaves = [id for id in parents if id.startswith("l")]
    events = {id: batches(seed * 100 + n, 60, 30, 3) for n, id in enumerate(leaves)}
    trouble = faults(dice) if seed % 4 else Faults()
    world = World(charter(parents, query, **settings), events, seed, trouble, until=15)
    moved, added = moving(world, dice, ["l0", "l1", "l2", "m2"], ["root", "m0", "m1"])
    ended(world, seed)
    assert moved
    check(world.deliveries, events, query)
    rows = [row for tables in events.values() for table in tables for row in table.to_pylist()]
    for new in added if late == "drop" else ():
        wanted = {(row["k"], row["window_start"]): row for row in oracle([new], rows)[new.name]}
        for row in final(world.deliveries, new.name):
            right = wanted[row["k"], row["window_start"]]
            assert {name: row[name] for name in right} == right
