"""Results written to a table of Delta or Iceberg, by a process that a test kills on its way.

    python tests/table_job.py run KIND FOLDER
    python tests/table_job.py read KIND FOLDER

A KIND is `delta` or `iceberg`, a streaming frame written by the format's own sink, or `delta-job`,
a job whose sink is Delta. Spark fetches the format's jars from Maven Central by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession

import catchment as ct
from catchment.generator import Generator
from catchment.spark.session import session
from numbered_files import write_numbered

FILES = 8
EVENTS = Generator(seed=5, keys=7, rate=500).table(FILES * 1000)
COUNT, FASTEST = ct.count().alias("n"), ct.max("v").alias("fastest")  # Delta takes no brackets
QUERY = ct.Query("speed", COUNT, FASTEST, by="player", window=ct.sliding("2s", "1s"))
SPARK = ".".join(pyspark.__version__.split(".")[:2])
PACKAGES = {
    "delta": f"io.delta:delta-spark_{SPARK}_2.13:4.4.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": "",
    },
}


def write_events(folder: Path) -> None:
    """One file for each batch."""
    for number in range(FILES):
        write_numbered(folder / "in", number, EVENTS.slice(number * 1000, 1000))


def spark_for(kind: str, folder: Path) -> SparkSession:
    format = kind.split("-")[0]
    settings = SETTINGS[format] | {"spark.jars.packages": PACKAGES[format]}
    if format == "iceberg":
        settings["spark.sql.catalog.lake.warehouse"] = str(folder / "lake")
    return session(cores=2, **settings, **{"spark.sql.shuffle.partitions": "2"})


def run(kind: str, folder: Path) -> None:
    spark = spark_for(kind, folder)
    if kind == "delta-job":
        _run_job(spark, folder)
        return
    schema = spark.read.parquet(str(folder / "in/0.parquet")).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    frame = ct.windows(stream.parquet(str(folder / "in")), QUERY)["speed"]
    writer = frame.writeStream.format(kind).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / "state"))
    if kind == "delta":
        query = writer.start(str(folder / "table"))
    else:
        query = writer.toTable("lake.db.speed")
    query.awaitTermination()


def _run_job(spark: SparkSession, folder: Path) -> None:
    from catchment.sinks.spark_format import SparkFormat
    from catchment.sources.parquet_file import Parquet

    job = ct.Job(
        name="tables",
        queries=[QUERY],
        trigger="available-now",
        source=Parquet(path=str(folder / "in"), max_files_per_batch=1),
        sinks=[SparkFormat(format="delta", path=str(folder / "{query}"))],
        checkpoint=str(folder / "state"),
    )
    job.start(spark).wait()


def read(kind: str, folder: Path) -> None:
    spark = spark_for(kind, folder)
    if kind == "iceberg":
        found = spark.read.table("lake.db.speed")
    else:
        place = "speed" if kind == "delta-job" else "table"
        found = spark.read.format("delta").load(str(folder / place))
    pq.write_table(found.toArrow(), folder / "found.parquet")


if __name__ == "__main__":
    {"run": run, "read": read}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
