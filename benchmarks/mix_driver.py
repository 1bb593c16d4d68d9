"""The driver's memory by the number of results: what tasks make must not pass through it.

The same events give few results, by windows that follow each other, or many, by windows that slide.
The driver is alone in its processes, Python and Java: the tasks run in a cluster beside it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import catchment as ct
from benchmarks.figure import Figure
from benchmarks.mix_files import error_line, failures
from benchmarks.process import environment, peak_bytes, python
from benchmarks.progress import tell
from benchmarks.spark_data import BEGIN
from catchment.errors import CatchmentError

NAME = "driver memory, many results against few"
BAR = 1.25
_LIMIT = 3600
"""Seconds that a job may take."""


def figures(quick: bool = False) -> Iterator[Figure]:
    """Peaks of the driver with few and with many result rows."""
    events, slides = (100_000, 20) if quick else (1_000_000, 100)
    with tempfile.TemporaryDirectory(prefix="catchment-bench-") as folder:
        write(Path(folder), events)
        found = []
        for number, times in enumerate((1, slides), 1):
            tell(f"driver memory, {events * times:,} results", number, 2)
            found.append(one := alone(folder, times))
            if not one["failed"] and one["rows"] != events * times:
                raise CatchmentError("other results than there are windows", given=str(one))
    few, many = found
    value = many["bytes"] / few["bytes"]
    failed = [one["failed"] for one in found if one["failed"]]
    sizes = " and ".join(f"{one['bytes'] / 1e6:.0f} MB" for one in found)
    detail = f"peak resident size of Python and Java: {sizes}; {events:,} events of as many keys"
    rows = f"{events:,} and {events * slides:,} result rows"
    words = f"failed: {failed[0]}; {rows}" if failed else f"{rows}, counted"
    yield Figure(NAME, value, "of before", BAR, value <= BAR and not failed, f"{words}; {detail}")


def write(folder: Path, events: int) -> None:
    """Each key has one event, all within a second: windows of a second have one result each."""
    places = np.random.default_rng(1).permutation(events)
    table = pa.table(
        {
            "ts": pa.array(BEGIN + places % 1_000_000, pa.timestamp("us", "UTC")),
            "k": pa.array(np.arange(events)),
            "v": pa.array(places / events),
        }
    )
    pq.write_table(table, folder / "events.parquet", row_group_size=events // 8)


def alone(folder: str, slides: int) -> dict[str, Any]:
    """What `measure` finds in a process of its own."""
    done = subprocess.run(
        python("benchmarks.mix_driver", folder, slides),
        env=environment(),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_LIMIT,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(folder: str, slides: int) -> dict[str, Any]:
    """Counts results on a cluster; gives the peak of the driver, and why the job failed, if so."""
    from benchmarks.spark_cluster import cluster

    query = ct.Query("many", ct.avg("v"), by="k", window=ct.sliding(f"{slides}s", "1s"))
    failed, rows = "", 0
    with cluster(workers=2, cores=1) as spark:
        machine: Any = spark._jvm
        java = machine.java.lang.ProcessHandle.current().pid()
        try:
            rows = ct.run(folder, query, time="ts", spark=spark).rows()
        except failures() as error:
            failed = error_line(error)
        peak = peak_bytes(os.getpid()) + peak_bytes(java)
    return {"bytes": peak, "rows": rows, "failed": failed}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(sys.argv[1], int(sys.argv[2]))) + "\n")
