"""Batch on Spark: against only reading, against Spark's own windows, by windows and cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import catchment as ct
from benchmarks.figure import Figure, at_least, below, plain
from benchmarks.spark_data import (
    FILES,
    Files,
    at_speed,
    averages,
    files,
    native,
    read_only,
    sliding,
)
from benchmarks.timing import in_turns, ratio, seconds, typical

WINDOWS = 1000
SOME = 20
"""Windows that Spark itself computes: its time for all is this, times as many as there are more."""


def figures(quick: bool, spark: Any) -> Iterator[Figure]:
    events, runs = (8_000_000, 2) if quick else (64_000_000, 3)
    with files(events, rate=100_000, keys=10) as load:
        yield from _many(load, spark, runs)
        yield from _sliding(load, spark, "sliding 20 s / 1 s", (20, 1), 25)
        yield from _frame(load, spark)
        yield _memory(load, spark)
    with files(events, rate=100_000, keys=20_000) as load:
        yield from _sliding(load, spark, "sliding 60 s / 1 s, 20,000 keys", (60, 1), 50)


def ours(load: Files, queries: list[ct.Query], spark: Any) -> Callable[[], Any]:
    return lambda: ct.run(str(load.folder), queries, time="ts", spark=spark)


def _many(load: Files, spark: Any, runs: int) -> Iterator[Figure]:
    part = load.paths[:1]
    times = in_turns(
        runs,
        [
            lambda: read_only(load),
            lambda: ours(load, averages(WINDOWS), spark),
            lambda: ours(load, averages(1), spark),
            lambda: native(spark, load.paths, [(5, 5)]),
        ],
    )
    some = [(1 + n % 10, 1 + n % 10) for n in range(SOME)]
    slow = seconds(native(spark, part, some)) * FILES * WINDOWS / SOME
    speed = at_speed(typical(times, 1), load.events)
    name = f"{WINDOWS} windows"
    detail = f"avg by key over tumbling windows of 1 to 10 s; {load.detail}; {speed}"
    yield at_least(
        f"{name}, against only reading",
        ratio(times, 0, 1),
        "of PyArrow's speed",
        0.5,
        f"{detail}; PyArrow {at_speed(typical(times, 0), load.events)}",
    )
    yield at_least(
        f"{name}, against Spark's one window",
        ratio(times, 3, 1),
        "times as fast",
        3,
        f"{detail}; Spark {at_speed(typical(times, 3), load.events)}",
    )
    yield at_least(
        f"{name}, against Spark's {SOME} extrapolated",
        slow / typical(times, 1),
        "times as fast",
        100,
        f"{detail}; Spark's time for {SOME} windows over one of {FILES} files, "
        f"times {FILES}, times {WINDOWS // SOME}: {slow:,.0f} s",
    )
    yield at_least(
        f"{name}, against our one window", ratio(times, 2, 1), "of its speed", 0.8, detail
    )


def _sliding(
    load: Files, spark: Any, name: str, window: tuple[int, int], bar: float
) -> Iterator[Figure]:
    mine = min(seconds(ours(load, [sliding(*window)], spark)) for _ in range(2))
    theirs = seconds(native(spark, load.paths[:1], [window])) * FILES
    yield at_least(
        name,
        theirs / mine,
        "times Spark's speed",
        bar,
        f"avg by key; {load.detail}; {at_speed(mine, load.events)}, "
        f"Spark {at_speed(theirs, load.events)} (over one of {FILES} files)",
    )


def _frame(load: Files, spark: Any) -> Iterator[Figure]:
    frame = spark.read.parquet(*load.paths)
    queries = averages(SOME)
    mine = min(seconds(lambda: ct.run(frame, queries, time="ts")) for _ in range(2))
    some = [(1 + n % 10, 1 + n % 10) for n in range(SOME)]
    theirs = seconds(native(spark, load.paths[:1], some)) * FILES
    yield at_least(
        f"a DataFrame, {SOME} windows",
        theirs / mine,
        "times Spark's speed",
        10,
        f"avg by key over tumbling windows of 1 to 10 s; {load.detail}; "
        f"{at_speed(mine, load.events)}, Spark {at_speed(theirs, load.events)}",
    )


def _memory(load: Files, spark: Any) -> Figure:
    """The driver's memory after all files against after one, the results let go."""
    used = []
    for paths in (load.paths[:1], load.paths):
        ct.run(paths, averages(WINDOWS), time="ts", spark=spark)
        used.append(driver_bytes(spark))
    return below(
        "driver memory, eight times the events",
        used[1] / used[0],
        "of before",
        1.25,
        f"Python and Java heap after the job; {used[0] / 1e6:.0f} to {used[1] / 1e6:.0f} MB",
    )


def driver_bytes(spark: Any) -> int:
    """What the driver holds on to, in Python and in Java."""
    import gc
    import resource
    from pathlib import Path

    gc.collect()
    machine = spark._jvm.java.lang
    machine.System.gc()
    runtime = machine.Runtime.getRuntime()
    java = int(runtime.totalMemory() - runtime.freeMemory())
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return java + pages * resource.getpagesize()


def by_cores(load: Files, spark_on: Callable[[int], Any]) -> Iterator[Figure]:
    """One core against two, each with a session of its own."""
    times = []
    for cores in (1, 2):
        spark = spark_on(cores)
        run = ours(load, averages(WINDOWS), spark)
        run()
        times.append(min(seconds(run) for _ in range(3)))
    yield at_least(
        "two cores against one",
        times[0] / times[1],
        "times as fast",
        1.6,
        f"{WINDOWS} windows; {load.detail}; {at_speed(times[0], load.events)} and "
        f"{at_speed(times[1], load.events)}",
    )


def against_cluster(load: Files, local: float, cluster: float) -> Figure:
    """A real cluster beside local mode on the same cores."""
    return plain(
        "a standalone cluster of two workers",
        local / cluster,
        "of local mode's speed",
        f"{WINDOWS} windows; {load.detail}; {at_speed(cluster, load.events)}",
    )
