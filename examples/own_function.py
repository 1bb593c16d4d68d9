"""A function of your own: what becomes of a value, how two are joined, and what the result is.

    python examples/own_function.py

The function shares slices with all others, and works in batch, in a stream and over a tree, because
it says how partials are merged.
"""

from __future__ import annotations

import math

import catchment as ct
from catchment.generator import Generator

root_mean_square = ct.function(
    "root_mean_square",
    lift=lambda value: (value * value, 1),
    combine=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    lower=lambda state: math.sqrt(state[0] / state[1]),
)


def main() -> None:
    events = Generator(keys=2, rate=50).table(1_000)
    query = ct.Query(
        "energy",
        root_mean_square("v").alias("rms"),
        ct.avg("v").alias("mean"),
        by="player",
        window=ct.tumbling("5s"),
    )
    print(ct.run(events, query, spark=False).to_polars("energy"))

    plan = ct.plan([query])  # the same by hand, as a tree of two nodes does it
    halves = [ct.slice(events.slice(n * 500, 500), plan, node=n) for n in range(2)]
    merged = ct.assemble(ct.merge(halves, plan), None, plan)["energy"]
    print(f"{merged.num_rows} rows, merged from two halves")


if __name__ == "__main__":
    main()
