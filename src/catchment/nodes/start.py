"""Which process runs a node: a plain one, or one on Spark."""

from __future__ import annotations

import pyarrow as pa

from catchment.nodes.bootstrap import NodeConfig
from catchment.nodes.process import NodeProcess


def process_of(given: NodeConfig) -> NodeProcess:
    """The process of a node, not started yet."""
    if given.engine == "spark":
        from catchment.nodes.spark_process import SparkProcess

        return SparkProcess(given)
    if given.source is not None:
        # A small device has no memory to spare, and the system's allocator keeps the least.
        pa.set_memory_pool(pa.system_memory_pool())
    return NodeProcess(given)
