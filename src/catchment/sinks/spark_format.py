"""Results in any format that Spark can write: what a job file says of it.

Executors write them, so this is for streaming jobs on Spark; how it is done is in
`spark/format_sink.py`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from catchment.errors import SinkError
from catchment.sinks.base import Delivery, Sink, register_sink


@register_sink
class SparkFormat(Sink):
    """Writes through Spark: a folder or a table for each query.

    Each result comes once where a batch that comes again can be told: formats of files in a `path`
    get a folder `batch=N` for each batch, and Delta is given the job and the batch (`txnAppId`,
    `txnVersion`). In any other format, the last batch before a crash may be there twice.

    A folder of files belongs to one job: another's batches would have the same names.
    """

    on_driver: ClassVar[bool] = True

    type: Literal["spark"] = "spark"
    format: str = Field(description="as df.write.format has it: delta, iceberg, orc, jdbc, ...")
    path: str | None = Field(
        default=None, description="a folder, in which each query has one, or has {query} in it"
    )
    table: str | None = Field(default=None, description="a table for each query, as in db.{query}")
    options: dict[str, str] = Field(default_factory=dict, description="options of the format")

    def check(self) -> None:
        if (self.path is None) == (self.table is None):
            raise SinkError(
                "results go to a path or to a table",
                given="neither" if self.path is None else "both",
                hint="add path: results/, or table: results.{query}",
            )
        if self.table is not None and "{query}" not in self.table:
            raise SinkError(
                "each query needs a table of its own",
                given=self.table,
                hint=f"put {{query}} into its name, as in {self.table}_{{query}}",
            )

    def write(self, delivery: Delivery) -> None:
        raise SinkError(
            "only streaming jobs on Spark write results through Spark",
            given=f"format: {self.format}",
            hint="take another sink here, or write frames: ct.windows(events, queries)",
        )
