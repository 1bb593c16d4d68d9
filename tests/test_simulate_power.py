"""Trees whose nodes lose what was not synced, whenever power fails: against brute force."""

from __future__ import annotations

import random

import pytest

from catchment.simulate import Faults, World
from catchment.simulate.memory import VolatileDisk
from faulty_trees import HOUR, events_of, shape
from schedules import seed_range, share
from test_simulate import FEW
from trees import EVERY_READING, QUERIES, charter, check

SCHEDULES = share(20, 16)


@pytest.mark.parametrize("part", range(8))
def test_power_fails_in_the_middle_of_anything(part: int) -> None:
    cuts = 0
    for seed in seed_range(SCHEDULES, part, 8):
        dice = random.Random(seed)
        parents = shape(dice, dice.randint(1, 3))
        late = dice.choice(["drop", "update"])
        settings = {"late": late, "keep": HOUR, "timeout": 10**6} if late == "update" else {}
        events = events_of(parents, seed, 12, 4)
        asked = dice.random() < 0.3
        settings |= {"count": dice.choice(["async", "sync"])} if asked else {}
        query = [QUERIES[5], dice.choice(FEW)] if asked else [dice.choice(FEW)]
        query += [dice.choice(EVERY_READING)] if late == "drop" and not asked else []
        faults = Faults(
            delay=dice.choice([0.001, 0.05]),
            lost=dice.choice([0, 0.1]),
            crash=dice.choice([0, 0.2]),
            full=dice.choice([0, 0.1]),
            power=dice.choice([0.3, 1.0]),
            down=dice.choice([0.2, 2.0]),
        )
        world = World(charter(parents, query, **settings), events, seed, faults, until=3)
        world.run()
        assert world.done, f"seed {seed} is not done after {world.now / 1e6:.0f} s"
        check(world.deliveries, events, query)
        for site in world.sites.values():
            assert isinstance(site.disk, VolatileDisk) and site.disk.damage() == [], seed
        cuts += world.faulted
    assert cuts or part >= SCHEDULES
