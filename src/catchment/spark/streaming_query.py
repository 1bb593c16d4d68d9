"""The stages of a streaming query: a source's parcels of partials, and buckets that assemble them.

events -- read and slice --> parcels -- by bucket, with state --> rows for the driver
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from catchment.spark.bucket import Bucket
from catchment.spark.datasource import NAME, PartialsSource
from catchment.spark.rows import OUTPUT
from catchment.spark.spec import Spec


def read_parcels(spark: SparkSession, spec: Spec) -> DataFrame:
    """The parcels of a job's source."""
    spark.dataSource.register(PartialsSource)
    return spark.readStream.format(NAME).option("spec", spec.to_text()).load()


def assemble_buckets(spark: SparkSession, spec: Spec, parcels: DataFrame) -> DataFrame:
    """What buckets of keys give of parcels: results, reports, and rows set aside."""
    spark.conf.set("spark.sql.shuffle.partitions", str(spec.buckets))
    return parcels.groupBy("bucket").transformWithState(
        Bucket(spec.to_text()), OUTPUT, outputMode="Update", timeMode="None"
    )
