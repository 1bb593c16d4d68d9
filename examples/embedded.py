"""An engine inside a program: events are pushed in any order, complete windows are taken.

    python examples/embedded.py

It needs neither Spark nor Java. Halfway the engine's state is saved as bytes and loaded again, as a
program does that must survive a restart: the results are the same.
"""

from __future__ import annotations

import catchment as ct
from catchment.generator import Generator

EVENTS = Generator(keys=3, rate=100, late_share=0.2, late_by="3s").table(6_000)
SPEED = ct.Query("speed", ct.avg("v").alias("mean"), by="player", window=ct.sliding("10s", "5s"))
SPRINTS = ct.sql(
    "SELECT player, max(v) AS top FROM events WHERE v > 5 "
    "GROUP BY player, session_window(ts, '1 second')",
    "sprints",
)


def main() -> None:
    engine = ct.Engine([SPEED, SPRINTS], time="ts", lateness="2s")
    rows = 0
    for start in range(0, EVENTS.num_rows, 1_000):
        batch = EVENTS.slice(start, 1_000)
        engine.push(batch)
        newest = max(batch["ts"].to_pylist())
        rows += engine.advance(newest).rows()  # less the lateness of two seconds
        if start == 3_000:
            saved = engine.snapshot()
            engine = ct.Engine.restore(saved)
    rows += engine.close().rows()
    stats = engine.stats
    print(f"{rows} result rows of {stats.accepted:,} events; {stats.late:,} came too late")
    assert stats.accepted + stats.late == EVENTS.num_rows
    print(ct.explain([SPEED, SPRINTS]))


if __name__ == "__main__":
    main()
