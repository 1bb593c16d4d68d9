"""Makes the format `catchment` known to Spark, which looks for packages with such a name.

spark.readStream.format("catchment").option("job", "job.yaml").option("query", "speed").load()
"""

from importlib.util import find_spec

__all__ = ["DefaultSource"]

# Spark imports this package whenever it looks for a source. Before 4.2 it cannot have this one.
if find_spec("pyspark.sql.streaming.datasource") is not None:
    from catchment.spark.result_source import ResultSource as DefaultSource
