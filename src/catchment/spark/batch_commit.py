"""What Spark calls after each batch of a job: plain data, which can be sent to where it is called.

With a classic session that is the process of the handle, whose function commits the batch. With
Spark Connect it is a process of the server: there nobody has a handle, the batch is committed by
what the job's description says, and the handle reads of it in the job's folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from catchment.errors import JobError
from catchment.sinks.base import Sink
from catchment.sinks.memory import Memory
from catchment.spark.deliver import BatchCommitter
from catchment.spark.spec import Spec

BatchFunction = Callable[[DataFrame, int], None]

_COMMITTERS: dict[str, BatchFunction] = {}
"""What commits the batches of a job in this process, by the job's folder."""


def commit_here(home: str, function: BatchFunction) -> None:
    """Says what commits the batches of the job in this folder, where Spark calls this process."""
    _COMMITTERS[home] = function


@dataclass(frozen=True)
class CommitBatch:
    """Commits batches of a job, in whatever process it is called."""

    home: str
    spec: str

    def __call__(self, rows: DataFrame, number: int) -> None:
        if self.home not in _COMMITTERS:
            spec = Spec.from_text(self.spec)
            framed = spec.source is None
            commit_here(self.home, BatchCommitter(spec, lambda *_: None, framed=framed))
        _COMMITTERS[self.home](rows, number)


def refuse_in_server(sinks: tuple[Sink, ...]) -> None:
    """Refuses sinks that keep results in the process of the driver."""
    if any(isinstance(sink, Memory) for sink in sinks):
        raise JobError(
            "with Spark Connect, results in memory would be in the memory of the server",
            given="the sink memory",
            hint="give the job another sink, or take DataFrames of results: ct.windows",
        )
