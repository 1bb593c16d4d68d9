"""Metrics that an OpenTelemetry collector or SDK sends by OTLP over HTTP."""

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
    ("start_time", TIME),
    ("metric", pa.string()),
    ("unit", pa.string()),
    ("kind", pa.string()),
    ("temporality", pa.string()),
    ("monotonic", pa.bool_()),
    ("value", pa.float64()),
    ("count", pa.int64()),
    ("sum", pa.float64()),
    ("min", pa.float64()),
    ("max", pa.float64()),
)


@register_source
class Otlp(HttpReceiver):
    """Metrics sent by OTLP over HTTP, as protobuf or JSON, plain or gzip. One partition, "otlp".

    Each data point is an event. Its columns are `time`, `start_time`, `metric` (the name), `unit`,
    `kind` (gauge, sum, histogram, exponential_histogram or summary), `temporality` (delta or
    cumulative), `monotonic`, `value` (a double; of gauges and sums), `count`, `sum`, `min` and
    `max` (of the others; buckets and quantiles are not read), one for each of `attributes`, and
    `other_attributes` with all others as a JSON object. An attribute is that of the point or, where
    it has none, that of its resource. Times are cut to microseconds.

    A request whose answer is lost comes again: `distinct_on` in a query, over `time`, `metric` and
    the attributes, makes a point count once. A point that says that it has no recorded value is no
    event, unless `stale: keep` makes it one without a value. One without a time is set aside.

    A body that is not one is answered 400, one too large 413, and one of another kind 415; a full
    spool is answered 503 with Retry-After.
    """

    partition: ClassVar[str] = "otlp"

    type: Literal["otlp"] = "otlp"
    listen: str = Field("127.0.0.1:4318", description="host and port")
    path: str = Field("/v1/metrics", description="where requests are taken")
    attributes: NamedColumns = Field(
        (), description="attributes that become columns; as {column: attribute} with other names"
    )
    other_attributes: str | None = Field(
        None, description="a column for the other attributes, as JSON; without it they go"
    )
    stale: Literal["drop", "keep"] = Field(
        "drop", description="what becomes of points without a recorded value: no event, or one"
    )

    @model_validator(mode="after")
    def _fits_attributes(self) -> Otlp:
        self._attribute_columns()
        return self

    def event_schema(self) -> pa.Schema:
        others = [self.other_attributes] if self.other_attributes else []
        named = [*self._attribute_columns(), *others]
        return pa.schema([*_FIXED, *((name, pa.string()) for name in named)])

    def table(self) -> str | None:
        return "otlp"

    def intake(self) -> Intake:
        made: Intake = _metrics().OtlpMetrics(self.max_decompressed, self.stale == "keep")
        return made

    def reader(self, columns: list[str] | None) -> SpoolReader:
        schema = only(self.event_schema(), columns)
        made = _metrics().PointColumns(
            schema, self._attribute_columns(), self.other_attributes, self.stale == "keep"
        )
        read: SpoolReader = made.read
        return read

    def _attribute_columns(self) -> dict[str, str]:
        fixed = [name for name, _ in _FIXED]
        return chosen_columns(self.attributes, self.other_attributes, fixed, "attributes")


def _metrics() -> Any:
    return module("otlp_metrics", "receivers")
