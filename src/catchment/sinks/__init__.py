"""Where results go: one file per sink, and one line here."""

from catchment.sinks.base import Delivery as Delivery
from catchment.sinks.base import Sink as Sink
from catchment.sinks.base import register_sink as register_sink
from catchment.sinks.console import Console as Console
from catchment.sinks.kafka import KafkaSink as KafkaSink
from catchment.sinks.memory import Memory as Memory
from catchment.sinks.parquet import ParquetSink as ParquetSink
from catchment.sinks.postgres import PostgresSink as PostgresSink
from catchment.sinks.prometheus import PrometheusSink as PrometheusSink
from catchment.sinks.spark_format import SparkFormat as SparkFormat
from catchment.sinks.webhook import HttpSink as HttpSink
