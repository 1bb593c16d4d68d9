"""Which process runs a node: a plain one, or one on Spark."""

from __future__ import annotations

from catchment.nodes.founding import Given
from catchment.nodes.process import NodeProcess


def process_of(given: Given) -> NodeProcess:
    """The process of a node, not started yet."""
    if given.engine == "spark":
        from catchment.nodes.spark_process import SparkProcess

        return SparkProcess(given)
    return NodeProcess(given)
