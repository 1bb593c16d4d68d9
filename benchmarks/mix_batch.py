"""The demo's mix from Parquet on Spark: against Spark itself, and DuckDB, over the same files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa

import catchment as ct
from benchmarks import mix_sql
from benchmarks.figure import Figure, at_least
from benchmarks.mix_files import demo_files, duckdb_answers, spark_answers
from benchmarks.progress import tell
from benchmarks.spark_data import Files, at_speed
from benchmarks.timing import Prepare, in_turns, ratio, typical
from catchment.cli.demo_queries import mix

CORES = 2


def figures(quick: bool = False) -> Iterator[Figure]:
    """All queries in one job of ours, one after the other elsewhere."""
    from catchment.spark.session import session

    spark = session(cores=CORES)
    with demo_files(2_000_000 if quick else 16_000_000) as load:
        yield from compared(spark, load, runs=1 if quick else 3)


def compared(spark: Any, load: Files, runs: int) -> Iterator[Figure]:
    """Every system answers all queries that it can express, and gives tables."""
    on_spark, on_duckdb = mix_sql.for_spark(), mix_sql.for_duckdb()
    asked = mix()
    systems: list[Callable[[list[str]], dict[str, pa.Table]]] = [
        lambda paths: dict(ct.run(paths, asked, time="ts", spark=spark)),
        lambda paths: spark_answers(spark, paths, on_spark),
        lambda paths: duckdb_answers(paths, on_duckdb, threads=CORES),
    ]
    tell("the demo's queries from Parquet: to warm up, one file's answers are compared", 1, 2)
    ours, *others = (system(load.paths[:1]) for system in systems)
    for answers in others:
        for name, table in answers.items():
            mix_sql.agree(name, ours[name], table)
    tell(f"the demo's queries from Parquet: {load.detail}", 2, 2)
    actions: list[Prepare] = [partial(partial, system, load.paths) for system in systems]
    times = in_turns(runs, actions, warm_up=False)
    detail = f"{load.detail}; {CORES} cores; {at_speed(typical(times, 0), load.events)}"
    yield at_least(
        f"the demo's {len(asked)} queries from Parquet, against Spark, {len(on_spark)} one by one",
        ratio(times, 1, 0),
        "times as fast",
        25,
        f"{detail}, Spark {typical(times, 1):.0f} s; median of {runs} runs",
    )
    yield at_least(
        f"the demo's queries from Parquet, against DuckDB, {len(on_duckdb)} one by one",
        ratio(times, 2, 0),
        "times as fast",
        4,
        f"{detail}, DuckDB {duckdb.__version__}, two threads: {typical(times, 2):.0f} s; median of "
        f"{runs} runs",
    )
