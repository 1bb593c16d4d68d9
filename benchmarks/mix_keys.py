"""Very many keys on Spark, each with few events, against Spark's own windows: both count results.

Where every event makes a result row of its own, there is little to share; but nothing may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import catchment as ct
from benchmarks.figure import Figure, at_least
from benchmarks.mix_files import error_line, failures, few_partitions
from benchmarks.progress import tell
from benchmarks.spark_data import Files, files
from benchmarks.timing import seconds
from catchment.errors import CatchmentError
from catchment.model.window import Window

WINDOWS: tuple[tuple[str, Window, tuple[str, ...], float], ...] = (
    ("tumbling 60 s", ct.tumbling("60s"), ("60 seconds",), 1.5),
    ("sliding 5 min / 1 min", ct.sliding("5m", "1m"), ("5 minutes", "1 minute"), 5),
)
"""Name, our window, Spark's, the bar."""
SPAN = 200
"""Seconds of event time: windows of a minute end in it, and those of five overlap."""

Count = Callable[[list[str]], int]
"""Gives the number of results over some files."""


def figures(quick: bool = False) -> Iterator[Figure]:
    """Both windows, each in turns with Spark's."""
    from catchment.spark.session import session

    spark = session(cores=2)
    events, keys, runs = (1_000_000, 500_000, 1) if quick else (20_000_000, 10_000_000, 2)
    with files(events, rate=events // SPAN, keys=keys) as load:
        for number, (name, window, words, bar) in enumerate(WINDOWS, 1):
            tell(f"{name}, {load.detail}", number, len(WINDOWS))
            mine, theirs = _ours(spark, window), _native(spark, words)
            theirs(load.paths[:1])
            yield against(f"{name}, {keys:,} keys", mine, theirs, bar, load, runs)


def against(
    name: str,
    mine: Count,
    theirs: Count,
    bar: float,
    load: Files,
    runs: int,
) -> Figure:
    """The best of some runs of each; a job of ours that fails has no speed at all."""
    rows: dict[str, int] = {}
    unit = "times Spark's speed"
    other = seconds(lambda: rows.update(spark=theirs(load.paths)))
    try:
        mine(load.paths[:1])
        own = seconds(lambda: rows.update(ours=mine(load.paths)))
    except failures() as error:
        why = f"ours failed: {error_line(error)}"
        return at_least(name, 0.0, unit, bar, f"avg by key; {load.detail}; {why}")
    if rows["spark"] != rows["ours"]:
        raise CatchmentError("Spark finds other windows", given=f"{name}: {rows}")
    for _ in range(runs - 1):
        other = min(other, seconds(lambda: theirs(load.paths)))
        own = min(own, seconds(lambda: mine(load.paths)))
    return at_least(
        name,
        other / own,
        unit,
        bar,
        f"avg by key; {load.detail}; {rows['ours']:,} results counted; "
        f"{own:.1f} s, Spark {other:.1f} s; best of {runs} runs",
    )


def _ours(spark: Any, window: Window) -> Count:
    query = ct.Query("many", ct.avg("v"), by="k", window=window)
    return lambda paths: ct.run(paths, query, time="ts", spark=spark).rows()


def _native(spark: Any, window: tuple[str, ...]) -> Count:
    """Spark's own aggregation. The sum of the averages keeps it from leaving them out."""
    from pyspark.sql import functions as sf

    def count(paths: list[str]) -> int:
        with few_partitions(spark):
            events = spark.read.parquet(*paths)
            found = events.groupBy("k", sf.window("ts", *window)).agg(sf.avg("v").alias("mean"))
            return int(found.agg(sf.count("*"), sf.sum("mean")).first()[0])

    return count
