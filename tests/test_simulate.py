"""Whole trees under a virtual clock, with faults by seed, against brute force."""

from __future__ import annotations

import random

import pytest

from catchment.simulate import Faults, World
from trees import batches, charter, check

DEEP = {"root": None, "m1": "root", "m2": "root", "a": "m1", "b": "m1", "c": "m2", "d": "root"}


def test_a_tree_without_faults() -> None:
    made = charter(DEEP)
    events = {id: batches(n) for n, id in enumerate("abcd")}
    world = World(made, events, until=0)
    world.run()
    assert world.done
    check(world.deliveries, events)


@pytest.mark.parametrize("seed", range(int(__import__("os").environ.get("N0","0")),int(__import__("os").environ.get("N1","40"))))
def test_faults_of_every_kind(seed: int) -> None:
    dice = random.Random(seed)
    parents: dict[str, str | None] = {"root": None}
    inner = ["root"]
    for n in range(dice.randint(0, 3)):
        parents[f"m{n}"] = dice.choice(inner)
        inner.append(f"m{n}")
    leaves = [f"l{n}" for n in range(dice.randint(1, 5))]
    for id in leaves:
        parents[id] = dice.choice(inner)
    used = {*leaves, "root"}
    for leaf in leaves:
        id = leaf
        while (above := parents[id]) is not None:
            used.add(above)
            id = above
    parents = {id: p for id, p in parents.items() if id in used}
    late = dice.choice(["drop", "update"])
    settings = (
        {"late": late, "keep": 3600 * 10**6, "timeout": 2 * 10**6} if late == "update" else {}
    )
    made = charter(parents, **settings)
    events = {id: batches(seed * 100 + n, 80) for n, id in enumerate(parents) if id in leaves}
    faults = Faults(
        delay=dice.choice([0.001, 0.05, 0.4]), lost=dice.choice([0, 0.1]),
        twice=dice.choice([0, 0.1]), crash=dice.choice([0, 0.1, 0.3]), cut=dice.choice([0, 0.2]),
        full=dice.choice([0, 0.1]), skew=dice.choice([0, 5000]),
    )  # fmt: skip
    world = World(made, events, seed, faults, until=20)
    world.run()
    assert world.done, f"seed {seed} is not done after {world.now / 1e6:.0f} s"
    check(world.deliveries, events)
