"""Windows over the readings of players: each function is a table of the pipeline.

Inside such a function Spark may not be asked for anything, not even for the columns of what it will
read. So frames are made outside, and the functions give them.
"""

from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

import catchment as ct

spark: Any = SparkSession.active()

SPEED = ct.Query("speed", ct.avg("v"), by="player", window=ct.sliding("10s", "5s"))
BURSTS = ct.Query("bursts", ct.count(), by="player", window=ct.session("20ms"))
HUNDREDS = ct.Query("hundreds", ct.max("v"), window=ct.count_tumbling(100))

columns = "ts TIMESTAMP, player STRING, v DOUBLE"
stream = spark.readStream.schema(columns).parquet("readings")
speeds = stream.transform(ct.window(SPEED, lateness="1s"))
all_of_stream = ct.windows(stream, [SPEED, BURSTS, HUNDREDS], lateness="1s").union()
bursts_of_batch = spark.read.parquet("readings").transform(ct.window(BURSTS))


@dp.table
def speed() -> DataFrame:
    """A streaming table: final windows, each once."""
    return speeds


@dp.table
def several() -> DataFrame:
    """Several queries in one pass; the column `query` says whose row it is."""
    return all_of_stream


@dp.materialized_view
def bursts() -> DataFrame:
    """A batch over all readings there are, computed anew by each run."""
    return bursts_of_batch


@dp.materialized_view
def fastest() -> DataFrame:
    """A view of Spark's own over a table of windows."""
    return spark.read.table("speed").groupBy("player").agg({"avg(v)": "max"}).toDF("player", "v")
