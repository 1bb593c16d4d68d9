"""An engine beside the oracle, step by step."""

from __future__ import annotations

from collections.abc import Callable

import catchment as ct
from catchment.testing.compare import assert_same
from catchment.testing.oracle import oracle_run
from catchment.testing.strategies import Scenario, to_table

Change = Callable[[ct.Engine], ct.Engine]


def check(scenario: Scenario, between_steps: Change = lambda engine: engine) -> ct.Engine:
    """Runs a scenario and compares every step with the oracle's."""
    engine = ct.Engine(scenario.queries, **scenario.settings)
    expected = iter(oracle_run(scenario.queries, scenario.steps, **scenario.settings))
    for number, step in enumerate(scenario.steps):
        if step[0] == "push":
            engine.push(to_table(step[1]))
        else:
            out = engine.close() if step[0] == "close" else engine.advance(step[1])
            for name, rows in next(expected).items():
                assert_same(rows, out[name], f"step {number} {step}, query {name}")
        engine = between_steps(engine)
    stats = engine.stats
    assert stats.accepted + stats.late + stats.bad + stats.duplicates == stats.events
    return engine
