"""Bodies of OTLP metrics: looked through as they come, and read as events later."""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2

from catchment.sources.aside import Aside
from catchment.sources.decode import MOST_ROWS
from catchment.sources.named_columns import as_json
from catchment.sources.receiver import (
    MOST_LABELS,
    Inspected,
    KeptRequest,
    ReceiverAnswer,
    RefusedRequest,
)
from catchment.sources.spool import Stored

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_FORMS = {_PROTOBUF: "protobuf", _JSON: "json"}
_ENCODINGS = ("", "identity", "gzip")
_NO_VALUE = int(metrics_pb2.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK)
_TEMPORALITY = {1: "delta", 2: "cumulative"}
_MOST = 2**63 - 1
_MOST_OBJECTS = 100_000
"""Objects of a body that is JSON: a point is one, and each of its attributes two."""
STALE_POINTS = "points without a recorded value are not read"


class OtlpMetrics:
    """Which bodies are taken: ExportMetricsServiceRequest, as protobuf or JSON, plain or gzip."""

    def __init__(self, most: int, keep_stale: bool = False) -> None:
        self._most, self._keep_stale = most, keep_stale

    def form(self, media: str, encoding: str) -> str:
        kind = media.partition(";")[0].strip().lower()
        if kind not in _FORMS:
            raise RefusedRequest(
                415, f"the content type is {media or 'missing'}; {_PROTOBUF} or {_JSON} is taken"
            )
        plain = encoding.strip().lower()
        if plain not in _ENCODINGS:
            raise RefusedRequest(415, f"the content encoding is {encoding}; gzip is taken")
        return _FORMS[kind] + ("+gzip" if plain == "gzip" else "")

    def inspect(self, form: str, body: bytes) -> Inspected:
        data = unpacked(form, body, self._most)
        if form.startswith("json") and data.count(b"{") > _MOST_OBJECTS:
            # The parser of JSON takes about as long for each of them as that of protobuf for 1,000.
            raise RefusedRequest(
                413, f"the body has more than {_MOST_OBJECTS} JSON objects; protobuf takes more"
            )
        message = parsed(form, data)
        _check_counts(message)
        points = [point for _, _, metric in _metrics(message) for point in _points(metric)]
        stale = 0 if self._keep_stale else sum(point.flags & _NO_VALUE for point in points)
        return Inspected(len(points), len(data), {STALE_POINTS: stale})

    def accepted(self, form: str, found: Inspected) -> ReceiverAnswer:
        if form.startswith("json"):
            return ReceiverAnswer(200, b"{}", _JSON)
        return ReceiverAnswer(200, headers={"content-type": _PROTOBUF})

    def refused(self, media: str, refused: RefusedRequest) -> ReceiverAnswer:
        """The reason as a google.rpc.Status, whose second field is the message."""
        text = refused.reason.encode()
        if media.partition(";")[0].strip().lower() != _PROTOBUF:
            body = json.dumps({"message": refused.reason}).encode()
            return ReceiverAnswer(refused.status, body, _JSON)
        return ReceiverAnswer(refused.status, b"\x12" + _varint(len(text)) + text, _PROTOBUF)


def unpacked(form: str, body: bytes, most: int | None = None) -> bytes:
    """The body without compression, of at most so many bytes."""
    if not form.endswith("+gzip"):
        if most is not None and len(body) > most:
            raise RefusedRequest(413, f"the body has {len(body)} bytes; at most {most} fit")
        return body
    made = bytearray()
    rest = body
    try:
        while rest:
            part = zlib.decompressobj(wbits=31)
            made += part.decompress(rest, 0 if most is None else most + 1 - len(made))
            if most is not None and len(made) > most:
                raise RefusedRequest(413, f"the body has more than {most} bytes when decompressed")
            if not part.eof:
                raise zlib.error("it ends too early")
            rest = part.unused_data
    except zlib.error as error:
        raise RefusedRequest(400, f"the body is not compressed by gzip: {error}") from None
    return bytes(made)


def parsed(form: str, data: bytes) -> Any:
    """The request in a body."""
    message = metrics_service_pb2.ExportMetricsServiceRequest()
    try:
        if form.startswith("json"):
            json_format.Parse(data, message, ignore_unknown_fields=True)
        else:
            message.ParseFromString(data)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        why = " ".join(str(error).split())[:300] or type(error).__name__
        raise RefusedRequest(
            400, f"the body is not an ExportMetricsServiceRequest: {why}"
        ) from None
    return message


def _metrics(message: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Each metric, with its resource and scope."""
    for held in message.resource_metrics:
        for scope in held.scope_metrics:
            for metric in scope.metrics:
                yield held.resource, scope.scope, metric


def _check_counts(message: Any) -> None:
    """Counts before anything is looked at one by one: a body may be of empty messages alone."""
    counts: Counter[str] = Counter()

    def add(what: str, held: Any) -> Any:
        counts[what] += len(held)
        if counts[what] > MOST_ROWS:
            raise RefusedRequest(413, f"the request has more than {MOST_ROWS} {what}")
        return held

    def attributes(of: Any) -> None:
        if len(add("attributes", of.attributes)) > MOST_LABELS:
            raise RefusedRequest(
                400, f"a point has {len(of.attributes)} attributes; at most {MOST_LABELS} fit"
            )

    for held in add("resources", message.resource_metrics):
        attributes(held.resource)
        for scope in add("scopes", held.scope_metrics):
            for metric in add("metrics", scope.metrics):
                for point in add("points", _points(metric)):
                    attributes(point)


def _points(metric: Any) -> Any:
    kind = metric.WhichOneof("data")
    return () if kind is None else getattr(metric, kind).data_points


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


class PointColumns(NamedTuple):
    """The columns that points are read as."""

    schema: pa.Schema
    attributes: dict[str, str]
    """Column to attribute."""
    others: str | None
    keep_stale: bool
    """Whether a point without a recorded value is an event; otherwise it is none."""

    def read(self, block: list[Stored], place: int) -> tuple[pa.Table, list[Aside]]:
        """The points of some requests, in their order."""
        columns: dict[str, list[Any]] = {field.name: [] for field in self.schema}
        bad: list[Aside] = []
        rows = 0
        for at, stored in enumerate(block):
            form = KeptRequest.of(stored).form
            for resource, _, metric in _metrics(parsed(form, unpacked(form, stored.payload))):
                about = _about(metric)
                shared = _plain(resource.attributes)
                for point in _points(metric):
                    if point.flags & _NO_VALUE and not self.keep_stale:
                        continue
                    why = _objection(point)
                    if why is not None:
                        bad.append(_refused(metric.name, place + at, why, point))
                        continue
                    rows += 1
                    row = about | _measured(point) | self._named(shared, point)
                    for name, values in columns.items():
                        values.append(row.get(name))
        arrays = [pa.array(columns[field.name], field.type) for field in self.schema]
        if not arrays:
            return pa.table({"_": pa.nulls(rows)}).select([]), bad
        return pa.Table.from_arrays(arrays, schema=self.schema), bad

    def _named(self, shared: dict[str, Any], point: Any) -> dict[str, Any]:
        """Attributes of the point and, where it has none of a name, of its resource."""
        found = shared | _plain(point.attributes)
        made = {column: _text(found.get(name)) for column, name in self.attributes.items()}
        if self.others is not None:
            made[self.others] = as_json(found, set(self.attributes.values()))
        return made


def _about(metric: Any) -> dict[str, Any]:
    """What all points of a metric have in common."""
    kind = metric.WhichOneof("data")
    held = getattr(metric, kind)
    return {
        "metric": metric.name,
        "unit": metric.unit or None,
        "kind": kind,
        "temporality": _TEMPORALITY.get(getattr(held, "aggregation_temporality", 0)),
        "monotonic": getattr(held, "is_monotonic", None),
    }


def _measured(point: Any) -> dict[str, Any]:
    """Times and values of a point: one value, or count and sum of many."""
    start = point.start_time_unix_nano // 1000
    made = {"time": point.time_unix_nano // 1000, "start_time": start or None}
    if point.flags & _NO_VALUE:
        return made
    if isinstance(point, metrics_pb2.NumberDataPoint):
        kind = point.WhichOneof("value")
        made["value"] = None if kind is None else float(getattr(point, kind))
        return made
    made["count"] = point.count
    for name in ("sum", "min", "max"):
        # The sum of a summary is always there, that of a histogram need not be.
        field = point.DESCRIPTOR.fields_by_name.get(name)
        if field is not None and (not field.has_presence or point.HasField(name)):
            made[name] = getattr(point, name)
    return made


def _objection(point: Any) -> str | None:
    """Why a point is no event; None if it is one."""
    if point.time_unix_nano == 0:
        return "the point has no time"
    if point.time_unix_nano // 1000 > _MOST or point.start_time_unix_nano // 1000 > _MOST:
        return f"the time {point.time_unix_nano} is not one"
    if getattr(point, "count", 0) > _MOST:
        return f"the count {point.count} is too large"
    return None


def _refused(metric: str, place: int, why: str, point: Any) -> Aside:
    return Aside(
        f"otlp: {metric}", place, why, json_format.MessageToJson(point, indent=None).encode()
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(given: Any) -> Any:
    """A value of an attribute as JSON has it."""
    kind = given.WhichOneof("value")
    if kind is None:
        return None
    found = getattr(given, kind)
    if kind == "array_value":
        return [_value(one) for one in found.values]
    if kind == "kvlist_value":
        return _plain(found.values)
    return base64.b64encode(found).decode() if kind == "bytes_value" else found


def _text(given: Any) -> str | None:
    """A value of an attribute as the text of a column; what is not a text is so as JSON."""
    return given if given is None or isinstance(given, str) else json.dumps(given)
