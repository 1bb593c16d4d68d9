"""Damage to any byte of any file of any node of a tree: without effect, or loud; never wrong."""

from __future__ import annotations

import random
import re

import pytest

from catchment.errors import StateError
from catchment.simulate import Faults, World
from catchment.simulate.memory import EventsInMemory, VolatileDisk
from catchment.simulate.world import Site
from catchment.tree.member import Member
from damage import damaged
from faulty_trees import HOUR, events_of
from schedules import seed_range, share
from trees import QUERIES, charter, check, final

SECOND = 1_000_000
ROUNDS = share(50, 16)
PARENTS: dict[str, str | None] = {"root": None, "m": "root", "l0": "m", "l1": "m", "l2": "root"}
ASKED = [QUERIES[0], QUERIES[3]]
WAYS = ["truncate", "empty", "flip", "double", "zero", "copy"]


class Kind(random.Random):
    """A crash of the process alone: the operating system writes down what it was given."""

    def random(self) -> float:
        return 1.0

    def randrange(self, *_: object) -> int:  # type: ignore[override]
        return 1


def files_of(disk: VolatileDisk) -> list[str]:
    """Logs and notes of a node, by name."""
    folders = ["outbox", "steps", "counted", "notes", *(f"inbox-{id}" for id in PARENTS)]
    names = disk.volatile.names
    return [f"home/{folder}/{name}" for folder in folders for name in names(f"home/{folder}")]


def damage(disk: VolatileDisk, dice: random.Random, way: str) -> str | None:
    paths = files_of(disk)
    if not paths:
        return None
    path = dice.choice(paths)
    data = disk.volatile.read(path)
    data = damaged(data, dice, way)
    if way == "copy":
        folder = path.rpartition("/")[0]
        same = [other for other in paths if other.rpartition("/")[0] == folder]
        path = dice.choice([*same, f"{folder}/000000000099.log"])
    disk.volatile.edit(path, lambda _: data)
    return path


def started(site: Site, world: World) -> tuple[str | None, list[str]]:
    """Why a node cannot start, if it cannot, and the damage that it reports."""
    batches, root = site.batches, site.parent is None
    assert isinstance(site.disk, VolatileDisk)
    disk = VolatileDisk(site.disk.volatile)
    try:
        Member(
            site.id,
            disk,
            world.now,
            parent=site.parent,
            source=None if batches is None else lambda: EventsInMemory.of(batches),
            deliver=(lambda _: None) if root else None,
            charter=world.charter if root else None,
        )
    except StateError as error:
        return str(error), disk.damage()
    return None, disk.damage()


def complete_rows_are_right(world: World, events: object) -> None:
    """What was delivered as complete is what it must be, even if not all of it came."""
    try:
        check(world.deliveries, events, ASKED)  # type: ignore[arg-type]
    except AssertionError:
        whole = World(charter(PARENTS, ASKED), events, until=0)  # type: ignore[arg-type]
        whole.run()
        for query in ASKED:
            right = {_key(row): row for row in final(whole.deliveries, query.name)}
            for row in final(world.deliveries, query.name):
                if row["complete"]:
                    assert row == right[_key(row)], query.name


def _key(row: dict[str, object]) -> tuple[object, ...]:
    return row["k"], row["window_start"]


@pytest.mark.parametrize("part", range(8))
def test_a_damaged_file_is_without_effect_or_loud(part: int) -> None:
    outcomes = {"as if nothing happened": 0, "refused": 0, "reported": 0}
    for seed in seed_range(ROUNDS, part, 8):
        dice = random.Random(seed)
        late = dice.choice(["drop", "update"])
        settings = {"late": late, "keep": HOUR} if late == "update" else {}
        events = events_of(PARENTS, seed, 40, 6)
        made = charter(PARENTS, ASKED, **settings)
        # A little power failing, so that the disks are those that could.
        world = World(made, events, seed, Faults(power=1e-9), until=1)
        world.pass_time(int(dice.uniform(0.2, 2) * SECOND), lambda: False)
        site = world.sites[dice.choice([*PARENTS])]
        assert isinstance(site.disk, VolatileDisk)
        site.disk = site.disk.crashed(Kind(0))
        world.crash(site.id, 0.1)
        assert isinstance(site.disk, VolatileDisk)
        path = damage(site.disk, dice, dice.choice(WAYS))
        site.tampered = True
        why, reported = started(site, world)
        world.run(40)
        if world.done and not world.aside and not reported:
            check(world.deliveries, events, ASKED)
            outcomes["as if nothing happened"] += 1
            continue
        complete_rows_are_right(world, events)
        told = why is not None or reported
        assert told, f"seed {seed}: stands still in silence after damage to {path} of {site.id}"
        if why is not None:
            assert re.search("restore the (whole folder|newest copy of the folder)", why), why
        outcomes["refused" if why is not None else "reported"] += 1
    assert part >= ROUNDS or sum(outcomes.values())


def test_a_root_that_lost_the_whole_inbox_of_a_child_says_what_its_results_lack() -> None:
    """Its last step is carried out and delivered again, without the messages that are gone."""
    lacking = 0
    for seed in range(12):
        dice = random.Random(seed)
        events = events_of(PARENTS, seed, 40, 6)
        world = World(charter(PARENTS, ASKED), events, seed, Faults(power=1e-9), until=1)
        world.pass_time(int(dice.uniform(0.5, 2) * SECOND), lambda: False)
        site = world.sites["root"]
        assert isinstance(site.disk, VolatileDisk)
        site.disk = site.disk.crashed(Kind(0))
        world.crash("root", 0.1)
        assert isinstance(site.disk, VolatileDisk)
        site.tampered = True
        for path in files_of(site.disk):
            if path.startswith("home/inbox-l2/") and path.endswith(".log"):
                site.disk.volatile.edit(path, lambda _: b"")
        world.run(40)
        complete_rows_are_right(world, events)
        rows = [row for query in ASKED for row in final(world.deliveries, query.name)]
        lacking += sum(row["missing"] == "l2" and not row["complete"] for row in rows)
    assert lacking
