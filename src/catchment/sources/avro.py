"""Avro payloads: one record a message, in binary form, with or without Confluent's frame."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from fastavro.schema import SchemaParseException

from catchment.errors import SourceError
from catchment.sources.decode import NO_PAYLOAD, Decoded, Decoder

_FRAME = 5
"""Confluent's frame: a zero, and the number of the schema in four bytes."""
_UTC = "UTC"
_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: dict[str, pa.DataType] = {
    "timestamp-micros": pa.timestamp("us", _UTC),
    "timestamp-millis": pa.timestamp("us", _UTC),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-millis": pa.timestamp("us"),
    "date": pa.date32(),
    "time-micros": pa.time64("us"),
    "time-millis": pa.time64("us"),
    "uuid": pa.string(),
}


class Avro(Decoder):
    """Records of one Avro schema. `framed` payloads begin with a zero and the schema's number.

    The number is not looked up: all messages must be of the given schema.
    """

    def __init__(self, schema: pa.Schema, avro: Mapping[str, Any], framed: bool) -> None:
        super().__init__(schema)
        self._avro = fastavro.parse_schema(dict(avro))
        self._framed = framed

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        records: list[dict[str, Any]] = []
        kept: list[int] = []
        bad: list[tuple[int, str]] = []
        for i, payload in enumerate(payloads):
            try:
                records.append(self._record(payload))
                kept.append(i)
            except _BAD as error:
                bad.append((i, _reason(payload, error)))
        try:
            return Decoded(self._table(records), np.array(kept, np.int64), bad)
        except (pa.ArrowException, OverflowError):
            return self._one_by_one(records, kept, bad)

    def _one_by_one(
        self, records: list[dict[str, Any]], kept: list[int], bad: list[tuple[int, str]]
    ) -> Decoded:
        """Some value has no place in its column; sets its record aside."""
        tables, fit = [self.schema.empty_table()], []
        for record, i in zip(records, kept, strict=True):
            try:
                tables.append(self._table([record]))
                fit.append(i)
            except (pa.ArrowException, OverflowError) as error:
                bad.append((i, str(error)))
        return Decoded(pa.concat_tables(tables), np.array(fit, np.int64), sorted(bad))

    def _record(self, payload: bytes | None) -> dict[str, Any]:
        if payload is None:
            raise ValueError(NO_PAYLOAD)
        stream = io.BytesIO(payload)
        if self._framed and (len(payload) < _FRAME or stream.read(_FRAME)[0] != 0):
            raise ValueError("the frame of five bytes, of which the first is zero, is not there")
        record = fastavro.schemaless_reader(stream, self._avro, None)
        if stream.tell() != len(payload):
            raise ValueError(f"{len(payload) - stream.tell()} bytes are left after the record")
        return record  # type: ignore[return-value]  # check_avro made sure it is a record

    def _table(self, records: list[dict[str, Any]]) -> pa.Table:
        columns = [pa.array([r[f.name] for r in records], f.type) for f in self.schema]
        return pa.table(columns, schema=self.schema)


# What fastavro raises when bytes are not what the schema says; it has no error of its own.
_BAD = (ValueError, EOFError, IndexError, KeyError, TypeError, OverflowError, MemoryError)


def _reason(payload: bytes | None, error: BaseException) -> str:
    if isinstance(error, EOFError):
        return f"the record ends too early, after {len(payload or b'')} bytes"
    return str(error) or f"not a record of the schema ({type(error).__name__})"


def load_avro(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """An Avro schema from JSON text, from a file, or as it is."""
    if isinstance(given, Mapping):
        return dict(given)
    try:
        text = given if given.lstrip().startswith("{") else Path(given).read_text()
        made = json.loads(text)
    except (OSError, ValueError) as error:
        raise SourceError(
            "the Avro schema cannot be read", given=given[:80], hint=str(error)
        ) from error
    if not isinstance(made, dict):
        raise SourceError("the Avro schema is not a record", given=given[:80])
    return made


def avro_columns(avro: Mapping[str, Any]) -> pa.Schema:
    """The columns of an Avro schema, which must be a record.

    >>> fields = [{"name": "n", "type": ["null", "long"]}, {"name": "s", "type": "string"}]
    >>> avro_columns({"type": "record", "name": "r", "fields": fields}).types
    [DataType(int64), DataType(string)]
    """
    try:
        fastavro.parse_schema(dict(avro))
    except (SchemaParseException, ValueError, KeyError, TypeError) as error:
        raise SourceError("not an Avro schema", given=avro, hint=str(error)) from error
    if avro.get("type") != "record":
        raise SourceError(
            "the Avro schema is not a record",
            given=avro.get("type"),
            hint="events have named fields: wrap it in a record",
        )
    return pa.schema(_fields(avro, {}))


def _fields(record: Mapping[str, Any], named: dict[str, Any]) -> list[pa.Field[Any]]:
    return [pa.field(f["name"], _arrow(f["type"], named)) for f in record["fields"]]


def _arrow(avro: Any, named: dict[str, Any]) -> pa.DataType:
    if isinstance(avro, list):
        kinds = [kind for kind in avro if kind != "null"]
        if len(kinds) > 1:
            raise SourceError(
                "a field of several types cannot be a column",
                given=json.dumps(avro),
                hint='only ["null", one type] is possible',
            )
        return _arrow(kinds[0], named) if kinds else pa.null()
    if isinstance(avro, str):
        return _by_name(avro, named)
    if "name" in avro and "type" in avro:
        named[avro["name"]] = avro
    if avro.get("logicalType") == "decimal":
        return pa.decimal128(avro["precision"], avro.get("scale", 0))
    if avro.get("logicalType") in _LOGICAL:
        return _LOGICAL[avro["logicalType"]]
    kind = avro["type"]
    if kind == "record":
        return pa.struct(_fields(avro, named))
    if kind == "array":
        return pa.list_(_arrow(avro["items"], named))
    if kind == "map":
        return pa.map_(pa.string(), _arrow(avro["values"], named))
    return _arrow(kind, named)


def _by_name(name: str, named: dict[str, Any]) -> pa.DataType:
    if name in _PLAIN:
        return _PLAIN[name]
    if name in named:
        return _arrow(named[name], {k: v for k, v in named.items() if k != name})
    raise SourceError(
        "this Avro type cannot be a column", given=name, hint="records within themselves cannot"
    )
