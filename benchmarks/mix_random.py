"""Mixes of queries drawn at random: does sharing ever lose, and what does it win.

A mix is 10 to 300 queries of every window type and every family of functions, with some keys and
conditions, as many people who do not know each other would ask them of one stream. Each query also
runs alone, over the same events. So that this ends, the events are a sample: less than a minute of
a stream at a usual rate, after which time goes on until the longest windows have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from statistics import median
from time import process_time
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import catchment as ct
from benchmarks.events import Step, Workload
from benchmarks.figure import Figure, at_least
from benchmarks.mix_engine import apart, batches, together
from benchmarks.progress import tell
from benchmarks.timing import in_turns, ratio
from catchment.generator import Generator
from catchment.model.window import Window

SEED = 2026
MIXES, LEAST, MOST = 30, 10, 300
SMALL = 60
"""Up to so many queries, a mix may be measured several times: it takes no time."""
LENGTHS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300)
"""Of windows in time, in seconds."""

Draw = Callable[[Random], ct.Aggregate]
Windows = Callable[[Random], Window]


class Outcome(NamedTuple):
    """One mix, and how many times faster it is together than apart."""

    queries: int
    times: float


def figures(quick: bool = False) -> Iterator[Figure]:
    """The worst mix, and the one in the middle."""
    load = sample(200_000, 10_000) if quick else sample(500_000, 20_000)
    most, mixes, runs = (60, 6, 1) if quick else (MOST, MIXES, 3)
    sizes = np.geomspace(LEAST, most, mixes).round().astype(int)
    found = []
    for number, size in enumerate(sizes.tolist()):
        tell(f"random mixes, {size} queries", number + 1, len(sizes))
        found.append(measured(mix(Random(SEED + number), size), load, runs))
    worst = min(found, key=lambda one: one.times)
    detail = (
        f"{len(found)} mixes of {sizes[0]} to {sizes[-1]} queries, drawn from seed {SEED} on; "
        f"every window type and family of functions, 0 to 2 keys; {load.detail}; against an "
        "engine for each query alone; CPU time"
    )
    unit = "times as fast together as apart"
    lost = f"that of {worst.queries} queries; {detail}"
    yield at_least("random mixes, the worst", worst.times, unit, 1, lost)
    middle = median(one.times for one in found)
    yield at_least("random mixes, the median", middle, unit, 5, detail)


def measured(queries: list[ct.Query], load: Workload, runs: int) -> Outcome:
    """A mix together and apart, over the same events; a large one once."""
    runs = runs if len(queries) <= SMALL else 1
    first = Workload(load.steps[:1], load.steps[0].table.num_rows, load.detail)
    together(queries, first)()()  # warms up what both use
    actions = [together(queries, load), apart(queries, load)]
    times = in_turns(runs, actions, warm_up=False, clock=process_time)
    return Outcome(len(queries), ratio(times, 1, 0))


def sample(events: int, rate: int) -> Workload:
    """Events of the demo's kind at another rate, with a team, a zone of the pitch, and a number."""
    made = Generator(
        seed=SEED, keys=20, rate=rate, gaps=("20s", "3s"), markers=0.005, late_share=0.1
    )
    load = batches(made, events, size=5 * rate)
    return Workload(
        tuple(Step(_more_columns(step.table), step.frontier) for step in load.steps),
        load.events,
        load.detail,
    )


def _more_columns(table: pa.Table) -> pa.Table:
    x, y, number = (table[name].to_numpy() for name in ("x", "y", "seq"))
    zones = (x // 10).astype(np.int64) * 7 + (y // 10).astype(np.int64)
    team = table["player"].to_numpy() < "player-2"
    more = {"team": team.astype(np.int64), "zone": zones, "n": number * 7919 % 1000}
    for name, values in more.items():
        table = table.append_column(name, pa.array(values))
    return table


def mix(random: Random, size: int) -> list[ct.Query]:
    """So many queries, each drawn for itself."""
    return [_query(random, f"q{number}") for number in range(size)]


def _query(random: Random, name: str) -> ct.Query:
    families = random.choices(
        list(FAMILIES), list(FAMILIES.values()), k=random.choice((1, 1, 2, 3))
    )
    aggregates = [
        random.choice(family)(random).alias(f"a{number}") for number, family in enumerate(families)
    ]
    window = random.choices(list(WINDOWS), list(WINDOWS.values()))[0](random)
    by = random.choices(list(KEYS), list(KEYS.values()))[0]
    where = random.choice(CONDITIONS) if random.random() < 0.3 else None
    return ct.Query(name, *aggregates, by=by, where=where, window=window)


def _column(random: Random) -> str:
    return random.choices(("v", "x", "y", "n", "v * v"), (5, 2, 1, 2, 1))[0]


def _of(make: Callable[[str], ct.Aggregate]) -> Draw:
    """A function of a number."""
    return lambda random: make(_column(random))


def _share(random: Random) -> float:
    return random.choice((0.05, 0.25, 0.75, 0.9, 0.95, 0.99))


def _count(random: Random) -> ct.Aggregate:
    del random
    return ct.count()


def _quantile(random: Random) -> ct.Aggregate:
    return ct.quantile(_column(random), _share(random))


def _approx_quantile(random: Random) -> ct.Aggregate:
    return ct.approx_quantile(_column(random), _share(random))


def _mode(random: Random) -> ct.Aggregate:
    return ct.mode(random.choice(("zone", "n")))


def _distinct(random: Random) -> ct.Aggregate:
    return ct.count_distinct(random.choice(("player", "zone", "n")))


def _approx_distinct(random: Random) -> ct.Aggregate:
    return ct.approx_count_distinct(random.choice(("player", "zone", "x")))


FAMILIES: dict[tuple[Draw, ...], int] = {
    (_of(ct.sum), _of(ct.avg), _count): 6,
    (_of(ct.min), _of(ct.max), _of(ct.range), _of(ct.first), _of(ct.last)): 4,
    (_of(ct.variance), _of(ct.variance_pop), _of(ct.stddev), _of(ct.stddev_pop)): 2,
    (_of(ct.product), _of(ct.geometric_mean)): 1,
    (_of(ct.median), _quantile, _mode): 2,
    (_distinct, _approx_distinct, _approx_quantile, _of(ct.approx_median)): 2,
}
"""Functions of a family, to how often it is asked for."""


def _tumbling(random: Random) -> Window:
    return ct.tumbling(f"{random.choice(LENGTHS)}s")


def _sliding(random: Random) -> Window:
    slide = random.choice((1, 2, 5, 10, 30))
    return ct.sliding(f"{slide * random.choice((2, 3, 4, 6, 10))}s", f"{slide}s")


def _cumulate(random: Random) -> Window:
    step = random.choice((1, 5, 10, 30))
    return ct.cumulate(f"{step * random.choice((2, 4, 6))}s", f"{step}s")


def _session(random: Random) -> Window:
    return ct.session(random.choice(("500ms", "1s", "2s", "5s", "30s")))


def _count_tumbling(random: Random) -> Window:
    return ct.count_tumbling(random.choice((100, 500, 1_000, 5_000, 10_000)))


def _count_sliding(random: Random) -> Window:
    step = random.choice((100, 500, 1_000, 5_000))
    return ct.count_sliding(step * random.choice((2, 4, 5)), step)


def _cut(random: Random) -> Window:
    return ct.cut(random.choice(("event = 'start'", "event IS NOT NULL", "n = 500")))


def _between(random: Random) -> Window:
    opens, closes = random.choice((("event = 'start'", "event = 'end'"), ("n < 5", "n > 990")))
    return ct.between(start=opens, end=closes)


def _fixed(random: Random) -> Window:
    start = random.randrange(30)
    end = start + random.choice((5, 10, 20))
    return ct.fixed(f"2026-01-01 00:00:{start:02d}", f"2026-01-01 00:00:{end:02d}")


WINDOWS: dict[Windows, int] = {
    _tumbling: 6,
    _sliding: 4,
    _cumulate: 1,
    _session: 2,
    _count_tumbling: 1,
    _count_sliding: 1,
    _cut: 1,
    _between: 1,
    _fixed: 1,
}
"""Window types, to how often they are asked for."""

KEYS: dict[tuple[str, ...], int] = {
    (): 5,
    ("player",): 5,
    ("team",): 2,
    ("zone",): 2,
    ("player", "zone"): 1,
    ("team", "zone"): 1,
}
"""Keys, to how often they are asked for."""

CONDITIONS = (
    "v > 5",
    "v <= 5",
    "x < 52.5",
    "x >= 52.5",
    "team = 1",
    "zone < 20",
    "n % 10 = 0",
    "v > 2 AND x > 30",
)
