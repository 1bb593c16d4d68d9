"""The stages of a streaming query: a source's parcels of partials, and buckets that assemble them.

events -- read and slice --> parcels -- by bucket, with state --> rows for the driver
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from catchment.spark.bucket import Bucket
from catchment.spark.datasource import NAME, PartialsSource
from catchment.spark.rows import OUTPUT
from catchment.spark.session import configured, streaming
from catchment.spark.spec import Spec

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def read_parcels(spark: SparkSession, spec: Spec) -> DataFrame:
    """The parcels of a job's source."""
    spark.dataSource.register(PartialsSource)
    return spark.readStream.format(NAME).option("spec", spec.to_text()).load()


def assemble_buckets(spec: Spec, parcels: DataFrame) -> DataFrame:
    """What buckets of keys give of parcels: results, reports, and rows set aside."""
    return parcels.groupBy("bucket").transformWithState(
        Bucket(spec.to_text()), OUTPUT, outputMode="Update", timeMode="None"
    )


def start_query(spark: SparkSession, spec: Spec, writer: DataStreamWriter) -> StreamingQuery:
    """Starts a query with the settings that it needs.

    A query works by a copy of the session's settings, made when it starts: the session is left as
    it was.
    """
    with configured(spark, {**streaming(), "spark.sql.shuffle.partitions": str(spec.buckets)}):
        return writer.start()
