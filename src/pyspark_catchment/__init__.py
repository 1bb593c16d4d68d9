"""Makes the format `catchment` known to Spark, which looks for packages with such a name.

spark.readStream.format("catchment").option("job", "job.yaml").option("query", "speed").load()
"""

from catchment.spark.result_source import ResultSource as DefaultSource

__all__ = ["DefaultSource"]
