"""What our sources need of Spark's interface for streaming sources, which has it since 4.2."""

from __future__ import annotations

try:
    from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
except ModuleNotFoundError as error:
    import pyspark

    from catchment.errors import JobError

    raise JobError(
        "streaming jobs, and the format 'catchment', need Spark 4.2 or later",
        given=f"Spark {pyspark.__version__}",
        hint="a source is not told there where a batch begins; streaming DataFrames of results "
        "work, ct.windows(spark.readStream..., queries)",
    ) from error

__all__ = ["ReadLimit", "SupportsTriggerAvailableNow"]
