"""What sources of messages have in common: the form of the payloads, and what is set aside."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, field_validator, model_validator

from catchment.errors import SourceError
from catchment.sources.base import Source
from catchment.sources.decode import Arrow, Decoder, JsonPayload, only
from catchment.sources.needs import module
from catchment.sources.types import schema_of


class MessageSource(Source):
    """A source whose events come as payloads of messages.

    - json: one object a message, read as `schema` says; what is not in `schema` is passed over.
    - avro: one record a message in binary form, of the schema `avro` (a mapping, JSON text, or
      the path of a file); `framed` if Confluent's magic byte and schema number come first.
    - arrow: an Arrow IPC stream a message, which holds some events.

    Only the columns that are asked for are read, and only they can make a payload bad.
    """

    format: Literal["json", "avro", "arrow"] = "json"
    columns: dict[str, str] | None = Field(
        None, alias="schema", description="column to type, as in {ts: timestamp, v: double}"
    )
    avro: Any = Field(None, description="the Avro schema of the payloads")
    framed: bool = Field(False, description="whether Avro payloads have Confluent's frame")

    @field_validator("avro", mode="before")
    @classmethod
    def _read_avro(cls, given: Any) -> Any:
        return None if given is None else _avro().load_avro(given)

    @model_validator(mode="after")
    def _fits(self) -> MessageSource:
        if self.format == "json" and not self.columns:
            raise SourceError(
                "the format json needs a schema", hint="add schema: {ts: timestamp, v: double}"
            )
        if self.format == "avro" and self.avro is None:
            raise SourceError(
                "the format avro needs the schema of the records", hint="add avro: events.avsc"
            )
        if self.format != "avro" and (self.avro is not None or self.framed):
            raise SourceError("avro and framed are for the format avro", given=self.format)
        if self.format == "avro" and self.columns:
            raise SourceError(
                "the format avro has its columns from the Avro schema", hint="leave out schema"
            )
        self._given_schema()
        return self

    def event_schema(self) -> pa.Schema:
        given = self._given_schema()
        return self._found_schema() if given is None else given

    @abstractmethod
    def _found_schema(self) -> pa.Schema:
        """The columns of the first message, where nothing says them."""

    def _given_schema(self) -> pa.Schema | None:
        if self.format == "avro":
            found: pa.Schema = _avro().avro_columns(self.avro)
            return found
        return schema_of(self.columns) if self.columns else None

    def _spread(self) -> int:
        """How far apart the places of messages are in the order of arrival."""
        return Arrow.spread if self.format == "arrow" else 1

    def _decoder(self, schema: pa.Schema, columns: Sequence[str] | None) -> Decoder:
        # A payload without any column cannot be counted, so one column is read.
        wanted = only(schema, schema.names[:1] if columns is not None and not columns else columns)
        if self.format == "avro":
            decoder: Decoder = _avro().Avro(wanted, self.avro, self.framed)
            return decoder
        return Arrow(wanted) if self.format == "arrow" else JsonPayload(wanted)


def _avro() -> Any:
    return module("avro", "kafka")
