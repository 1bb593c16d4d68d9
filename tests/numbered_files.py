"""Files that Spark reads in the order of their numbers."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def write_numbered(folder: Path, number: int, table: pa.Table) -> None:
    """A Parquet file, which appears whole.

    Spark reads files in the order in which they changed, and two that are written one after the
    other may have changed in the same millisecond: these are a second apart.
    """
    folder.mkdir(exist_ok=True, parents=True)
    beside = folder / f".{number}.parquet"
    pq.write_table(table, beside)
    changed = time.time() - 60 + number
    os.utime(beside, (changed, changed))
    beside.rename(folder / f"{number}.parquet")
