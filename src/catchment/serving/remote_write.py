"""The messages of Prometheus remote write, versions 1 and 2, as far as they are read or written.

Prometheus publishes no Python package for them. Numbers and types of the fields are those of
`prompb/remote.proto`, `prompb/types.proto` and `prompb/io/prometheus/write/v2/types.proto`; fields
that are not named here are unknown to the parser, which passes over them. Histograms, exemplars
and metadata are named so that they can be counted.
"""

from __future__ import annotations

import struct
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

MEDIA = "application/x-protobuf"
VERSION_1 = "prometheus.WriteRequest"
VERSION_2 = "io.prometheus.write.v2.Request"
STALE = 0x7FF0_0000_0000_0002
"""The bits of the NaN that says that a series has ended. Other NaNs are values."""
STALE_SAMPLE = b"\x09" + struct.pack("<Q", STALE)
"""How such a value looks in a sample."""

_KINDS = {
    "double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}
_NOTHING: dict[str, tuple[int, str]] = {}
_V1 = {
    "Label": {"name": (1, "string"), "value": (2, "string")},
    "Sample": {"value": (1, "double"), "timestamp": (2, "int64")},
    "Exemplar": _NOTHING,
    "Histogram": _NOTHING,
    "TimeSeries": {
        "labels": (1, "*Label"),
        "samples": (2, "*Sample"),
        "exemplars": (3, "*Exemplar"),
        "histograms": (4, "*Histogram"),
    },
    "WriteRequest": {"timeseries": (1, "*TimeSeries")},
}
_V2 = {
    "Sample": {"value": (1, "double"), "timestamp": (2, "int64")},
    "Exemplar": _NOTHING,
    "Histogram": _NOTHING,
    "TimeSeries": {
        "labels_refs": (1, "*uint32"),
        "samples": (2, "*Sample"),
        "histograms": (3, "*Histogram"),
        "exemplars": (4, "*Exemplar"),
    },
    "Request": {"symbols": (4, "*string"), "timeseries": (5, "*TimeSeries")},
}


def _classes(package: str, messages: dict[str, dict[str, tuple[int, str]]]) -> dict[str, Any]:
    """Classes of messages. They are in a pool of their own: others may have the same names."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for label, (number, kind) in fields.items():
            field = message.field.add(name=label, number=number)
            several = kind.startswith("*")
            field.label = field.LABEL_REPEATED if several else field.LABEL_OPTIONAL
            kind = kind.removeprefix("*")
            if kind in _KINDS:
                field.type = _KINDS[kind]
            else:
                field.type = field.TYPE_MESSAGE
                field.type_name = f".{package}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = [pool.FindMessageTypeByName(f"{package}.{name}") for name in messages]
    return {one.name: message_factory.GetMessageClass(one) for one in found}


_V1_CLASSES = _classes("prometheus", _V1)
_V2_CLASSES = _classes("io.prometheus.write.v2", _V2)
WriteRequest = _V1_CLASSES["WriteRequest"]
"""The request of version 1."""
WriteRequest2 = _V2_CLASSES["Request"]
"""The request of version 2."""
