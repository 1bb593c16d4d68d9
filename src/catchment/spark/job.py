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
    """What to compute, from where to where: `ct.Job(queries=[...], source=...).start()`."""

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
