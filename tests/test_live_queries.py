"""Queries that come and go again and again, on every runtime, with late events in between."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import catchment as ct
from catchment.model.window import Gap, Periodic
from catchment.testing.compare import rows_of
from catchment.testing.strategies import Scenario, scenarios, to_table
from live import Life, drawn, judge
from small_tables import examples, starts, table, values


class Changing:
    """An engine whose queries change between the steps of a scenario."""

    def __init__(self, scenario: Scenario, **settings: Any) -> None:
        self.engine = ct.Engine(scenario.queries, **scenario.settings, **settings)
        self.lives = [Life(query) for query in scenario.queries]

    def change(self, data: st.DataObject, scenario: Scenario, number: int) -> None:
        """Adds a query, removes one, or goes on from a snapshot."""
        engine = self.engine
        names = [n for n, limit in engine.limits.items() if limit.until is not None]
        there = [q for n, q in engine.queries.items() if n not in names]
        what = data.draw(st.sampled_from(["add", "add", "remove", "restore"]))
        if what == "restore":
            self.engine = ct.Engine.restore(engine.snapshot())
        elif what == "add":
            query = drawn(data, scenario, there, f"new{len(self.lives)}")
            self.lives.append(Life(query, number, engine.newest))
            engine.add(query)
        elif there:
            gone = data.draw(st.sampled_from(there)).name
            life = next(life for life in self.lives if life.query.name == gone)
            life.removed, life.until = number, engine.newest
            life.drain = data.draw(st.booleans())
            engine.remove(gone, drain=life.drain)

    def step(self, number: int, step: tuple[Any, ...]) -> None:
        if step[0] == "push":
            self.engine.push(to_table(step[1]))
            return
        results = self.engine.close() if step[0] == "close" else self.engine.advance(step[1])
        for life in self.lives:
            if life.query.name in results:
                life.rows += [(number, row) for row in rows_of(results[life.query.name])]


@examples(2.0)
@given(data=st.data())
def test_an_engine(data: st.DataObject) -> None:
    mode = data.draw(st.sampled_from(["none", "drop"]))
    scenario = data.draw(scenarios(late=mode, max_queries=3, max_events=20))
    changing = Changing(scenario)
    for number, step in enumerate(scenario.steps):
        for _ in range(data.draw(st.integers(0, 2))):
            changing.change(data, scenario, number)
        changing.step(number, step)
    for life in changing.lives:
        judge(life, changing.lives, scenario.steps, scenario.settings)
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
