"""Where results go: one file per sink, one line in SINKS."""

from __future__ import annotations

from catchment.sinks.base import Delivery, Sink
from catchment.sinks.console import Console
from catchment.sinks.kafka import KafkaSink
from catchment.sinks.memory import Memory
from catchment.sinks.parquet import ParquetSink
from catchment.sinks.postgres import PostgresSink

SINKS: tuple[type[Sink], ...] = (ParquetSink, KafkaSink, PostgresSink, Console, Memory)

__all__ = ["SINKS", "Delivery", "Sink"]
