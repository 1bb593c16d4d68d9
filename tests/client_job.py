"""What a test runs where there is no Java, only `pyspark-client`: client_job.py URL FOLDER."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import catchment as ct
from catchment.generator import Generator
from catchment.spark.session import ROCKSDB
from catchment.testing.compare import assert_same, rows_of

EVENTS = Generator(seed=9, keys=6, rate=200).table(4_000)
QUERIES = [
    ct.Query("ten", ct.count(), ct.max("v"), by="player", window=ct.tumbling("5s")),
    ct.Query("bursts", ct.count(), by="player", window=ct.session("50ms")),
    ct.Query("thousand", ct.median("v"), window=ct.count_tumbling(1000)),
]


def main(url: str, folder: Path) -> None:
    importlib.metadata.version("pyspark-client")
    assert shutil.which("java") is None
    spark = SparkSession.builder.remote(url).getOrCreate()
    wanted = ct.run(EVENTS, QUERIES, spark=False)

    frames = ct.windows(EVENTS, QUERIES, spark=spark)
    for query in QUERIES:
        found = frames[query.name].toArrow()
        assert_same(rows_of(wanted[query.name]), found, query.name, keys=query.keys)
    assert frames.counts()["accepted"] == len(EVENTS)
    assert frames.union().count() == sum(table.num_rows for table in wanted.values())
    frames.unpersist()

    results = ct.run(spark.createDataFrame(EVENTS).coalesce(1), QUERIES[:2])
    for query in QUERIES[:2]:
        assert_same(rows_of(wanted[query.name]), results[query.name], query.name, keys=query.keys)

    (folder / "in").mkdir()
    pq.write_table(EVENTS, folder / "in/0.parquet")
    schema = spark.read.parquet(str(folder / "in")).schema
    stream = spark.readStream.schema(schema).parquet(str(folder / "in"))
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    frame = ct.windows(stream, QUERIES[0])["ten"]
    writer = frame.writeStream.format("parquet").option("path", str(folder / "rows"))
    writer = writer.option("checkpointLocation", str(folder / "state"))
    writer.trigger(availableNow=True).start().awaitTermination()
    engine = ct.Engine(QUERIES[:1])
    engine.push(EVENTS)
    ended = engine.advance(int(EVENTS.column("ts").cast("int64").to_numpy().max()))["ten"]
    assert_same(rows_of(ended), pq.read_table(folder / "rows"), keys=["player"])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
