"""Jobs that can be started: the job file's model, wired to Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pyspark.sql import DataFrame, SparkSession

from catchment.job import model
from catchment.job.loading import checked
from catchment.job.reading import explained, read
from catchment.spark.handle import Handle
from catchment.spark.stream import start


class Job(model.JobModel):
    """What to compute, from where to where: the sections of a job file as arguments.

        job = ct.Job(queries=[speed], source={"type": "kafka", "servers": "k:9092", "topic": "t"},
                     sinks=[{"type": "parquet", "path": "results/"}], checkpoint="state/")
        with job.start() as handle:
            handle.show()

    `queries` are queries; `source` says where events come from, `sinks` where results go, and
    `nodes`, instead of a source, are a tree. `lookups` are small tables that SQL may join. `name`
    is the job's, `time` the column of event time, or a `ct.TimeColumn`.
    `lateness`, `late` and `keep` say what becomes of late events, `idle_timeout` and `max_ahead`
    what of silent partitions and events from the future, `incomplete` what of windows that are open
    at the end, `emit` which running values are given before. `checkpoint` is the job's folder,
    `trigger` when batches run, `buckets` in how many shares keys are assembled, `rate` the events
    in a second to plan for, `metrics` a port for Prometheus. `aside_bytes`, `aside_disk_bytes`,
    `state_bytes` and `key_bytes` are limits. For trees: `timeout`, `flush`, `count`,
    `count_options`, `quantiles`, `marks` and `security`.
    `catchment schema` has all of them.

    Raises JobError for what is not well formed, and the errors of queries, sources and sinks.
    """

    def __init__(self, **sections: Any) -> None:
        try:
            super().__init__(**sections)
        except ValidationError as error:
            raise explained(error, model.JobModel, sections) from error

    @classmethod
    def load(cls, source: str | Path | Mapping[str, Any]) -> Job:
        """A job from a file, from its text, or from what a file would hold."""
        return checked(cls, source if isinstance(source, Mapping) else read(source))

    def start(
        self, spark: SparkSession | None = None, *, events: DataFrame | None = None
    ) -> Handle:
        """Starts the job as a stream, or goes on with it where its checkpoint stands.

        `events` is a streaming DataFrame of the user's own, instead of a source.
        """
        return start(self, spark, events)
