"""The pipeline on Apache Spark: the only place that knows pyspark."""
