"""Runs a job file on the session of Spark that this program is submitted to.

    spark-submit run_job.py job.yaml

`catchment run` starts a session of its own, in local mode; on a cluster the session comes from
spark-submit or from the Spark operator.
"""

from __future__ import annotations

import signal
import sys

from pyspark.sql import SparkSession

import catchment as ct


def main() -> None:
    job = ct.Job.load(sys.argv[1])
    spark = SparkSession.builder.appName(job.name).getOrCreate()
    handle = job.start(spark)
    signal.signal(signal.SIGTERM, lambda *_: handle.stop())
    status = handle.wait()
    sys.stdout.write(f"{status}\n")
    spark.stop()


if __name__ == "__main__":
    main()
