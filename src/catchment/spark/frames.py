"""A user's own Spark DataFrame, sliced by Spark columns where edges are known ahead."""

from __future__ import annotations

from pyspark.sql import DataFrame

from catchment.model.plan import Plan
from catchment.spark.tasks import Work


def sliced(events: DataFrame, plan: Plan, time: str, buckets: int) -> tuple[Work, DataFrame]:
    raise NotImplementedError
