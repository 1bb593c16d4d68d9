"""What a test runs on a real cluster, in a process of its own: Spark has one session in each."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq

import catchment as ct
from benchmarks.spark_cluster import cluster
from catchment.generator import Generator
from catchment.sinks.parquet import ParquetSink
from catchment.sources.parquet_file import Parquet
from catchment.testing.compare import assert_same, rows_of

EVENTS = Generator(seed=9, keys=6, rate=200).table(12_000)
QUERIES = [
    ct.Query("ten", ct.count(), ct.max("v"), by="player", window=ct.tumbling("10s")),
    ct.Query("bursts", ct.count(), by="player", window=ct.session("50ms")),
    ct.Query("thousand", ct.median("v"), window=ct.count_tumbling(1000)),
]


def main(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        pq.write_table(EVENTS.slice(number * 3000, 3000), tmp_path / f"in/{number}.parquet")
    engine = ct.Engine(QUERIES)
    engine.push(EVENTS)
    last = int(EVENTS.column("ts").cast("int64").to_numpy().max())
    streamed, whole = engine.advance(last), engine.close()
    with cluster(workers=2, cores=1) as spark:
        assert spark.sparkContext.master.startswith("spark://")
        from_files = ct.run(tmp_path / "in", QUERIES, spark=spark)
        from_memory = ct.run(EVENTS, QUERIES, spark=spark)
        job = ct.Job(
            name="cluster",
            queries=QUERIES,
            trigger="available-now",
            source=Parquet(path=str(tmp_path / "in"), max_files_per_batch=2),
            sinks=[ParquetSink(path=str(tmp_path / "out"))],
            checkpoint=str(tmp_path / "state"),
        )
        status = job.start(spark).wait()
    assert status.accepted == EVENTS.num_rows
    for query in QUERIES:
        rows = rows_of(streamed[query.name])
        assert_same(rows, ParquetSink(path=str(tmp_path / "out")).read(query.name), query.name)
        rows += rows_of(whole[query.name])
        assert_same(rows, from_files[query.name], query.name)
        assert_same(rows, from_memory[query.name], query.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
