"""What the driver does after each batch of a job, where the driver is a server of Spark Connect.

There the function that Spark calls runs in a process of the server, to which it is sent as bytes:
it cannot be a method of the handle that the user holds. It does what it does elsewhere, and the
handle reads of it in the job's folder.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from catchment.errors import JobError
from catchment.sinks.base import Sink
from catchment.sinks.memory import Memory
from catchment.spark.deliver import BatchCommitter
from catchment.spark.spec import Spec

_COMMITTERS: dict[str, BatchCommitter] = {}
"""The committer of the job that this process of the server works for."""


@dataclass(frozen=True)
class CommitOnServer:
    """Commits batches of a job, in a process of the server."""

    spec: str

    def __call__(self, rows: DataFrame, number: int) -> None:
        if self.spec not in _COMMITTERS:
            spec = Spec.from_text(self.spec)
            _COMMITTERS.clear()
            _COMMITTERS[self.spec] = BatchCommitter(
                spec, lambda *_: None, framed=spec.source is None
            )
        _COMMITTERS[self.spec](rows, number)


def refuse_in_server(sinks: tuple[Sink, ...]) -> None:
    """Refuses sinks that keep results in the process of the driver."""
    if any(isinstance(sink, Memory) for sink in sinks):
        raise JobError(
            "with Spark Connect, results in memory would be in the memory of the server",
            given="the sink memory",
            hint="give the job another sink, or take DataFrames of results: ct.windows",
        )
