"""A streaming job whose checkpoint and results are in a store of objects; a test kills it.

python tests/object_job.py EVENTS CHECKPOINT RESULTS SETTINGS
"""

from __future__ import annotations

import json
import sys

import catchment as ct
from catchment.generator import Generator
from catchment.sinks.parquet import ParquetSink
from catchment.sources.parquet_file import Parquet
from catchment.spark.session import session

FILES = 6
EVENTS = Generator(seed=5, keys=7, rate=500).table(FILES * 1000)
QUERIES = [
    ct.Query("speed", ct.count(), ct.max("v"), by="player", window=ct.sliding("2s", "1s")),
    ct.Query("bursts", ct.count(), by="player", window=ct.session("20ms")),
    ct.Query("hundred", ct.last("seq"), window=ct.count_tumbling(100)),
]


def main(events: str, checkpoint: str, results: str, settings: str) -> None:
    spark = session(cores=2, **json.loads(settings))
    job = ct.Job(
        name="objects",
        queries=QUERIES,
        trigger="available-now",
        source=Parquet(path=events, max_files_per_batch=1),
        sinks=[ParquetSink(path=results)],
        checkpoint=checkpoint,
    )
    job.start(spark).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
