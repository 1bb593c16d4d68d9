"""Queries that come and go again and again, on every runtime, with late events in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.model.window import Gap, Periodic
from catchment.testing.compare import rows_of
from catchment.testing.oracle import Step
from catchment.testing.strategies import KINDS, to_table
from live import Draw, Life, judge
from small_tables import examples, starts, table, values

PERIODIC = ("tumbling", "sliding", "fixed")
MIXES = {
    "all": (KINDS, KINDS),
    "periodic": (PERIODIC, (*PERIODIC, "session")),
    "first periodic": (("session", "between", "count_sliding"), (*PERIODIC, "session")),
}
"""The window types of the first queries and of those added: few meet in a group more often."""


class Changing:
    """An engine whose queries change between the steps."""

    def __init__(self, draw: Draw, queries: list[ct.Query], late: str) -> None:
        self.draw, self.dice = draw, draw.dice
        self.engine = ct.Engine(queries, late=late)
        self.lives = [Life(query) for query in queries]

    def change(self, number: int) -> None:
        """Adds a query, removes one, or goes on from a snapshot."""
        engine = self.engine
        leaving = [n for n, limit in engine.limits.items() if limit.until is not None]
        there = [name for name in engine.queries if name not in leaving]
        what = self.dice.choice(["add", "add", "add", "remove", "restore"])
        if what == "restore":
            self.engine = ct.Engine.restore(engine.snapshot())
        elif what == "add":
            query = self.draw.query(f"new{len(self.lives)}")
            self.lives.append(Life(query, number, engine.newest))
            engine.add(query)
        elif there:
            gone = self.dice.choice(there)
            life = next(life for life in self.lives if life.query.name == gone)
            life.removed, life.until = number, engine.newest
            life.drain = self.dice.random() < 0.5
            engine.remove(gone, drain=life.drain)

    def step(self, number: int, step: Step) -> None:
        if step[0] == "push":
            self.engine.push(to_table(step[1]))
            return
        results = self.engine.close() if step[0] == "close" else self.engine.advance(step[1])
        for life in self.lives:
            if life.query.name in results:
                life.rows += [(number, row) for row in rows_of(results[life.query.name])]


@pytest.mark.parametrize("mix", MIXES)
@examples(3.0)
@given(seed=st.integers(0, 2**32))
def test_an_engine(mix: str, seed: int) -> None:
    first, added = MIXES[mix]
    draw = Draw(seed, added)
    queries = [draw.query(f"q{n}", first) for n in range(draw.dice.randint(1, 2))]
    changing = Changing(draw, queries, "drop")
    steps = draw.steps(draw.events(14), late=draw.dice.random() < 0.5)
    for number, step in enumerate(steps):
        for _ in range(draw.dice.choice([0, 0, 1, 2, 3])):
            changing.change(number)
        changing.step(number, step)
    for life in changing.lives:
        judge(life, changing.lives, steps, {})
        if life.drain and isinstance(life.query.window, Periodic | Gap):
            assert life.query.name not in changing.engine.queries


# By hand.


def test_windows_of_a_type_added_twice_over_begin_with_the_newest_event() -> None:
    """Slices are kept from when a group first has periodic windows, not from when it began.

                     30   33   37   40   42  44
        session       .    .    x    .    .       is all there is
        add tumbling                |             37 is in no slice that is kept
        add sliding                 |             [30, 44) would lack it
        events             8             17
    """
    engine = ct.Engine([ct.Query("old", ct.sum("v"), window=ct.session("16us"))])
    engine.push(table([37], v=[1]))
    engine.add(ct.Query("five", ct.sum("v"), window=ct.tumbling("5us")))
    engine.add(ct.Query("new", ct.sum("v"), window=ct.sliding("14us", "10us")))
    engine.push(table([33, 42], v=[8, 17]))
    found = engine.close()
    assert starts(found, "new") == [40] and values(found, "new") == [(17,)]
    assert values(found, "old") == [(26,)]
