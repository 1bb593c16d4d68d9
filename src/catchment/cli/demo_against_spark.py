"""Some of the demo's queries over files of events: ours in one pass, Spark's own one by one."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from catchment.batch import run
from catchment.cli.demo import EVENTS, AgainstSpark
from catchment.cli.demo_queries import hundred
from catchment.errors import CatchmentError

SAMPLE = 600_000
FILES = 4

_BY = "GROUP BY player, "
_SPARKS = {
    "speed": f"avg(v), max(v) FROM events {_BY} window(ts, '10 seconds')",
    "sprints": f"count(*) FROM events WHERE v > 5 {_BY} window(ts, '10 seconds')",
    "possession": "count(*), avg(x) FROM events GROUP BY window(ts, '10 seconds')",
    "area": f"max(x) - min(x), max(y) - min(y) FROM events {_BY} window(ts, '10 seconds')",
    "energy": f"sum(v * v) FROM events {_BY} window(ts, '60 seconds', '10 seconds')",
    "spells": f"count(*), max(v) FROM events {_BY} session_window(ts, '1 second')",
    "faster_6": f"count(*) FROM events WHERE v > 6 {_BY} window(ts, '5 seconds', '1 second')",
    "p99": f"percentile(v, 0.99) FROM events {_BY} window(ts, '30 seconds')",
}
"""What Spark is asked for, by our query's name."""


def compare(spark: SparkSession, most: int) -> AgainstSpark:
    """Asks both for the same windows over the same files, and counts their rows.

    Both have run in this session before. The first file is there to warm up Spark's own functions.
    """
    events = min(SAMPLE, most)
    asked = [query for query in hundred() if query.name in _SPARKS]
    with tempfile.TemporaryDirectory(prefix="catchment-") as name:
        folder = Path(name)
        for number, part in enumerate(EVENTS.batches(-(-events // FILES), events)):
            pq.write_table(pa.Table.from_batches([part]), folder / f"{number}.parquet")
        _sparks(spark, folder / "0.parquet")
        spark_rows, theirs = _sparks(spark, folder)
        began = time.perf_counter()
        results = run(str(folder), asked, time="ts", spark=spark)
        our_rows = {query.name: results[query.name].num_rows for query in asked}
        ours = time.perf_counter() - began
    if our_rows != spark_rows:
        raise CatchmentError(
            "Spark has found other windows than we have",
            given=f"{our_rows} here, {spark_rows} there",
            hint="this is an error in Catchment; please report it",
        )
    return AgainstSpark(events, tuple(_SPARKS), ours, theirs)


def _sparks(spark: SparkSession, path: Path) -> tuple[dict[str, int], float]:
    """The number of rows of each answer, and the seconds that all took."""
    began = time.perf_counter()
    spark.read.parquet(str(path)).createOrReplaceTempView("events")
    rows = {name: spark.sql(f"SELECT {text}").toArrow().num_rows for name, text in _SPARKS.items()}
    return rows, time.perf_counter() - began
