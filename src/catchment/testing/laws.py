"""The laws of merging, to be held against a function or an operator of one's own."""

from __future__ import annotations

import random

import pyarrow as pa

from catchment.engine import assemble, merge, slice
from catchment.engine.partials import Partials
from catchment.model.plan import Plan
from catchment.model.query import Query
from catchment.planner import plan
from catchment.testing.compare import assert_same, rows_of


def check_laws(
    query: Query, events: pa.Table, *, time: str = "ts", rounds: int = 20, seed: int = 0
) -> None:
    """Fails unless a query gives the same results however its events are cut and merged.

    In each round the events are cut into batches at random, each batch is sliced, and the partials
    are merged in random order and grouping, some of them twice, before they are assembled. Give it
    events with ties, nulls and windows that hold nothing but nulls; floats agree to 1e-9 relative.

    >>> from catchment.functions import avg
    >>> from catchment.windows import tumbling
    >>> times = pa.array([1, 2, 2, 9], pa.timestamp("us"))
    >>> events = pa.table({"ts": times, "v": [1, None, 3, None]})
    >>> check_laws(Query("q", avg("v"), window=tumbling("4us")), events)
    """
    made = plan([query])
    whole = rows_of(assemble(slice(events, made, time=time), None, made)[query.name])
    dice = random.Random(seed)
    for number in range(rounds):
        parts = _cut(events, made, time, dice)
        found = assemble(_merged(parts, made, dice), None, made)[query.name]
        assert_same(whole, found, f"round {number}, {len(parts)} partials")


def _cut(events: pa.Table, made: Plan, time: str, dice: random.Random) -> list[Partials]:
    rows = events.num_rows
    cuts = sorted(dice.choices(range(rows + 1), k=dice.randint(0, 5)))
    return [
        slice(events.slice(low, high - low), made, time=time, seq=seq, arrival=low)
        for seq, (low, high) in enumerate(zip([0, *cuts], [*cuts, rows], strict=True))
    ]


def _merged(parts: list[Partials], made: Plan, dice: random.Random) -> Partials:
    """All partials as one, merged a few at a time; what is merged may come twice."""
    left = dice.sample(parts, len(parts))
    while len(left) > 1:
        some = [left.pop() for _ in range(min(len(left), dice.randint(1, 3)))]
        left.insert(dice.randint(0, len(left)), merge([*some, dice.choice(some)], made))
    return left[0]
