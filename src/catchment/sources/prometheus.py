"""Samples that a Prometheus, or who speaks like one, sends by remote write."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, model_validator

from catchment.sources.base import register_source
from catchment.sources.decode import only
from catchment.sources.named_columns import NamedColumns, chosen_columns
from catchment.sources.needs import module
from catchment.sources.receiver import HttpReceiver, Intake
from catchment.sources.spooled import SpoolReader
from catchment.sources.types import TIME

_FIXED: tuple[tuple[str, pa.DataType], ...] = (
    ("time", TIME),
    ("metric", pa.string()),
    ("value", pa.float64()),
)


@register_source
class Prometheus(HttpReceiver):
    """Samples sent by Prometheus remote write, version 1 or 2. One partition, "prometheus".

    The columns are `time`, `metric` (the name), `value` (a double), one for each of `labels`, and
    `other_labels` with all others as a JSON object; a label that is not there is null. In
    Prometheus, `remote_write: [{url: http://127.0.0.1:9201/api/v1/write}]` sends here.

    A request whose answer is lost comes again: `distinct_on` in a query, over `time`, `metric` and
    the labels, makes a sample count once. A staleness marker, the NaN by which Prometheus says that
    a series has ended, is no event, unless `stale: keep` makes it one without a value; any other
    NaN is a value. Native histograms and exemplars are not read. What is not read is counted.

    A body that is not one is answered 400, one too large 413, and one of another kind 415; a full
    spool is answered 503 with Retry-After.
    """

    partition: ClassVar[str] = "prometheus"

    type: Literal["prometheus"] = "prometheus"
    listen: str = Field("127.0.0.1:9201", description="host and port")
    path: str = Field("/api/v1/write", description="where requests are taken")
    labels: NamedColumns = Field(
        (), description="labels that become columns; as {column: label} they get other names"
    )
    other_labels: str | None = Field(
        None, description="a column for the other labels, as a JSON object; without it they go"
    )
    stale: Literal["drop", "keep"] = Field(
        "drop", description="what becomes of staleness markers: no event, or one without a value"
    )

    @model_validator(mode="after")
    def _fits_labels(self) -> Prometheus:
        self._label_columns()
        return self

    def event_schema(self) -> pa.Schema:
        named = [*self._label_columns(), *([self.other_labels] if self.other_labels else [])]
        return pa.schema([*_FIXED, *((name, pa.string()) for name in named)])

    def table(self) -> str | None:
        return "prometheus"

    def intake(self) -> Intake:
        made: Intake = _write().RemoteWrite(self.max_decompressed, self.stale == "keep")
        return made

    def reader(self, columns: list[str] | None) -> SpoolReader:
        schema = only(self.event_schema(), columns)
        made = _write().SampleColumns(
            schema, self._label_columns(), self.other_labels, self.stale == "keep"
        )
        read: SpoolReader = made.read
        return read

    def _label_columns(self) -> dict[str, str]:
        fixed = [name for name, _ in _FIXED]
        return chosen_columns(self.labels, self.other_labels, fixed, "labels")


def _write() -> Any:
    return module("prometheus_write", "receivers")
