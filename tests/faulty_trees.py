"""Random trees with faults, for the simulator: what goes wrong in them, and how they move."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

import catchment as ct
from catchment.errors import StateError
from catchment.flush import read
from catchment.nodes.status import status
from catchment.simulate import Faults, World
from catchment.tree.charter import Charter
from catchment.tree.member import Member
from catchment.tree.root import Root
from trees import batches, charter, check, check_marked

Parents = dict[str, str | None]
Events = dict[str, list[pa.Table]]

HOUR = 3600 * 10**6


def shape(dice: random.Random, leaves: int) -> Parents:
    """A random tree."""
    parents: Parents = {"root": None}
    inner = ["root"]
    for n in range(dice.randint(0, 3)):
        parents[f"m{n}"] = dice.choice(inner)
        inner.append(f"m{n}")
    used = {"root"}
    for n in range(leaves):
        id = f"l{n}"
        parents[id] = dice.choice(inner)
        while (above := parents[id]) is not None:
            used |= {id, above}
            id = above
    return {id: parent for id, parent in parents.items() if id in used}


def events_of(parents: Parents, seed: int, count: int, spread: int = 20) -> Events:
    leaves = [id for id in parents if id.startswith("l")]
    return {id: batches(seed * 100 + n, count, spread) for n, id in enumerate(leaves)}


def faults(dice: random.Random) -> Faults:
    return Faults(
        delay=dice.choice([0.001, 0.05, 0.4]),
        lost=dice.choice([0, 0.1]),
        twice=dice.choice([0, 0.1]),
        crash=dice.choice([0, 0.1, 0.3]),
        cut=dice.choice([0, 0.2]),
        full=dice.choice([0, 0.1]),
        skew=dice.choice([0, 5000]),
    )


POLICIES: list[Any] = [
    "auto",
    "batching",
    "streaming",
    "eager(uniform)",
    "eager(nonuniform)",
    "eager(empirical)",
    {"policy": "hybrid(0.25)", "bandwidth": "200 B/s"},
    {"policy": "lazy(pessimistic)", "bandwidth": "50 B/s", "eviction": "lru"},
    {"policy": "hybrid(0.5, uniform, bounded)", "bandwidth": "1 kB/s", "eviction": "lfu"},
    {"policy": "lazy(empirical)", "bandwidth": "100 B/s", "compress": "off"},
    {"staleness": "100ms", "bandwidth": "1 MB/s"},
    {"budget": "100 B/s", "bandwidth": "100 B/s"},
    {"meter": "1 kB/s", "bandwidth": "20 B/s", "weight": 100},
]


def flushing(seed: int, links: Faults) -> tuple[dict[str, Any], Faults]:
    """A random flush policy, on links that may be narrow."""
    dice = random.Random(-1 - seed)
    narrow = dice.choice([0, 0, 500, 5000])
    return {"flush": read(dice.choice(POLICIES))}, replace(links, narrow=narrow)


def ended(world: World, seed: int) -> None:
    world.run()
    assert world.done, f"seed {seed} is not done after {world.now / 1e6:.0f} s"


def wrongs(dice: random.Random) -> Faults:
    """What goes wrong with folders and processes, beside what goes wrong anyway."""
    kind = dice.choice(["restore", "twin", "damage", "freeze", "garbled", "all"])
    often = {"restore": 0.4, "twin": 0.3, "damage": 0.3, "freeze": 0.3, "garbled": 0.2}
    chosen = often if kind == "all" else {kind: often[kind]}
    return Faults(
        delay=dice.choice([0.001, 0.05, 0.4]),
        lost=dice.choice([0, 0.1]),
        twice=dice.choice([0, 0.1]),
        crash=dice.choice([0, 0.1]),
        full=dice.choice([0, 0.05]),
        skew=dice.choice([0, 5000]),
        down=2.0,
        **chosen,
    )


def says_lost(world: World) -> bool:
    """Whether the status of the root names nodes of which messages were lost."""
    root = world.sites["root"].member
    return root is not None and bool(status(root, set()).lost)


def moving(
    world: World, dice: random.Random, who: list[str], where: list[str]
) -> tuple[set[str], list[ct.Query]]:
    """Lets nodes move again and again, and queries come; those that did."""
    moved: set[str] = set()
    added: list[ct.Query] = []

    def add(root: Member, charter: Charter) -> None:
        few = ct.tumbling("1s")
        new = ct.Query(
            f"new{len(added)}", ct.sum("v"), by="k", window=few, where=f"v > {len(added)}"
        )
        root.adopt(charter.with_queries([*charter.plans[charter.plan].queries.values(), new]), 0)
        added.append(new)

    def go(root: Member, charter: Charter) -> None:
        id = dice.choice(who)
        place, machine = charter.places[id], root.machine
        # As the root's office has it: one at a time, and not while the plan changes.
        if place.was is None and isinstance(machine, Root) and machine.plan == charter.plan:
            to = dice.choice([p for p in where if p != place.parent])
            root.adopt(charter.moved(id, to), world.now)
            moved.add(id)

    def move() -> None:
        world.after(3 * 10**5, move)
        root = world.sites["root"].member
        if root is None or root.charter is None or world.done:
            return
        if moved and world.now > world.calm:
            return
        # A move comes first: a new query may take until all faults are over to be everywhere.
        new = dice.random() < 0.1 and len(added) < 3 and bool(moved)
        with suppress(StateError):  # its disk may be full
            (add if new else go)(root, root.charter)

    world.after(4 * 10**5, move)
    return moved, added


FLAT: Parents = {"root": None, "a": "root", "m": "root", "b": "m", "c": "m"}


@dataclass(frozen=True)
class AskingTrees:
    """Trees whose root asks nodes for what they keep, by seed; windows are compared with oracles.

    `events` are those of the leaves of a tree in a schedule, which is named by its method; `exact`
    checks what is said to be complete where events may lack.
    """

    drawn: Callable[[random.Random], list[ct.Query]]
    events: Callable[[str, random.Random, Parents, int], Events]
    settings: Mapping[str, Any] = field(default_factory=dict)
    exact: Callable[[World, Events, list[ct.Query]], None] = lambda world, events, queries: (
        check_marked(world.deliveries, events, queries)
    )

    def one_schedule(self, seed: int) -> World:
        """A small tree in which links, disks and processes fail; all windows are checked."""
        dice = random.Random(seed)
        parents = shape(dice, dice.randint(1, 4))
        events = self.events("one_schedule", dice, parents, seed)
        queries = self.drawn(dice)
        flush, trouble = flushing(seed, faults(dice))
        ruled = charter(parents, queries, **self.settings, **flush)
        world = World(ruled, events, seed, trouble, until=4)
        ended(world, seed)
        check(world.deliveries, events, queries)
        return world

    def gone_wrong(self, seed: int) -> World:
        """A tree whose folders and processes go wrong; what is exact is checked."""
        dice = random.Random(seed)
        parents = shape(dice, dice.randint(1, 3))
        events = self.events("gone_wrong", dice, parents, seed)
        queries = self.drawn(dice)
        timeout = {"timeout": 10**6} if dice.random() < 0.5 else {}
        ruled = charter(parents, queries, **self.settings, **timeout)
        world = World(ruled, events, seed, wrongs(dice), until=8)
        world.run()
        if world.stuck is not None or world.aside or timeout:
            self.exact(world, events, queries)
            return world
        late = f"seed {seed} is not done after {world.now / 1e6:.0f} s: {world.happened}"
        assert world.done, late
        check(world.deliveries, events, queries)
        return world

    def missing(self, seed: int) -> World:
        """Nodes that are given up for silent: what is said to be complete is exact."""
        dice = random.Random(seed)
        parents = shape(dice, dice.randint(2, 4))
        events = self.events("missing", dice, parents, seed)
        queries = self.drawn(dice)
        trouble = Faults(delay=0.05, crash=0.3, cut=0.3, down=3.0)
        ruled = charter(parents, queries, **self.settings, timeout=10**6)
        world = World(ruled, events, seed, trouble, until=8)
        ended(world, seed)
        self.exact(world, events, queries)
        return world

    def moved(self, seed: int) -> World:
        """Nodes move and queries come while links and processes fail."""
        dice = random.Random(seed)
        parents: Parents = {"root": None, "m0": "root", "m1": "root", "m2": "m1"}
        parents |= {f"l{n}": ["m0", "m1", "m2", "root"][n] for n in range(4)}
        events = self.events("moved", dice, parents, seed)
        queries = self.drawn(dice)
        trouble = faults(dice) if seed % 4 else Faults()
        world = World(charter(parents, queries, **self.settings), events, seed, trouble, until=12)
        gone, _ = moving(world, dice, ["l0", "l1", "m2"], ["root", "m0", "m1"])
        ended(world, seed)
        assert gone
        check(world.deliveries, events, queries)
        return world

    def flat(self, events: Events, queries: list[ct.Query], **settings: Any) -> World:
        """A tree without faults, run to its end."""
        world = World(charter(FLAT, queries, **{**self.settings, **settings}), events, until=0)
        ended(world, 0)
        return world
