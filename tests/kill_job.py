"""A job that a test kills: started again and again until it has ended."""

from __future__ import annotations

import sys

import catchment as ct
from catchment.sinks.parquet import ParquetSink
from catchment.sources.generated import Generated
from catchment.spark.session import session

PER_BATCH = 8_000
QUERIES = [
    ct.Query("steps", ct.count(), ct.max("x"), by="player", window=ct.tumbling("5s")),
    ct.Query("late", ct.min("v"), ct.last("seq"), by="player", window=ct.sliding("20s", "4s")),
    ct.Query("bursts", ct.count(), by="player", window=ct.session("1s")),
    ct.Query("all", ct.count(), ct.median("v"), window=ct.tumbling("3s")),
    ct.Query("thousand", ct.max("seq"), window=ct.count_tumbling(1000)),
    ct.Query("lots", ct.sum("seq"), window=ct.count_sliding(30_000, 20_000)),
]


def source(batches: int) -> Generated:
    """So many full batches of events."""
    events = batches * PER_BATCH
    return Generated(seed=7, keys=20, rate=2000, events=events, partitions=2, per_batch=PER_BATCH)


def main(folder: str, master: str, batches: str) -> None:
    read = source(int(batches))
    spark = session(**{"spark.master": master, "spark.executor.memory": "512m"})
    job = ct.Job(
        name="killed",
        queries=QUERIES,
        source=read,
        sinks=[ParquetSink(path=f"{folder}/out", roll=3)],
        checkpoint=f"{folder}/state",
        lateness="30s",
        buckets=2,
    )
    status = job.start(spark).wait()
    assert status.state == "ended", status
    assert status.events == read.events
    assert status.accepted + status.late + status.bad + status.duplicates == status.events


if __name__ == "__main__":
    main(*sys.argv[1:])
