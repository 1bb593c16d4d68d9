"""Files of events for the Spark suite, and what Spark itself does with them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import catchment as ct

FILES = 8
COLUMNS = ["ts", "k", "v"]
BEGIN = 1_767_225_600_000_000
"""2026, in microseconds since 1970."""


@dataclass(frozen=True)
class Files:
    """Parquet files of a stream in order of time, and how much is in them."""

    folder: Path
    events: int
    rate: int
    keys: int

    @property
    def paths(self) -> list[str]:
        return [str(path) for path in sorted(self.folder.glob("*.parquet"))]

    @property
    def detail(self) -> str:
        return f"{self.events / 1e6:.0f} M events of {self.keys:,} keys, {self.rate:,}/s of time"


@contextmanager
def files(events: int, rate: int, keys: int) -> Iterator[Files]:
    """Files that are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="catchment-bench-"))
    try:
        write(folder, events, rate, keys)
        yield Files(folder, events, rate, keys)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write(folder: Path, events: int, rate: int, keys: int) -> None:
    random = np.random.default_rng(1)
    each = events // FILES
    for number in range(FILES):
        place = np.arange(number * each, (number + 1) * each, dtype=np.int64)
        table = pa.table(
            {
                "ts": pa.array(BEGIN + place * 1_000_000 // rate, pa.timestamp("us", "UTC")),
                "k": pa.array(random.integers(0, keys, each).astype(np.int32)),
                "v": pa.array(np.round(random.random(each) * 100, 2)),
                "x": pa.array(random.random(each)),
            }
        )
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=1 << 20)


def read_only(load: Files) -> Callable[[], object]:
    """PyArrow reads the columns that the queries need, on all cores, and does nothing else."""
    return lambda: [
        pq.read_table(path, columns=COLUMNS, memory_map=True).num_rows for path in load.paths
    ]


def averages(windows: list[ct.Query] | int) -> list[ct.Query]:
    """Averages by key over so many tumbling windows of 1 to 10 s."""
    count = windows if isinstance(windows, int) else len(windows)
    return [
        ct.Query(f"q{n}", ct.avg("v"), by="k", window=ct.tumbling(f"{1 + n % 10}s"))
        for n in range(count)
    ]


def sliding(length: int, slide: int) -> ct.Query:
    return ct.Query("sliding", ct.avg("v"), by="k", window=ct.sliding(f"{length}s", f"{slide}s"))


def native(spark: Any, paths: list[str], windows: list[tuple[int, int]]) -> Callable[[], object]:
    """Spark's own windows (length and slide in seconds), one job each: it takes one at a time."""
    from pyspark.sql import functions as sf

    def one(length: int, slide: int) -> None:
        events = spark.read.parquet(*paths)
        window = sf.window("ts", f"{length} seconds", f"{slide} seconds")
        events.groupBy("k", window).agg(sf.avg("v")).write.format("noop").mode("overwrite").save()

    def all_of_them() -> None:
        for length, slide in windows:
            one(length, slide)

    return all_of_them


def at_speed(seconds: float, events: int) -> str:
    return f"{events / seconds / 1e6:.1f} M events/s"
