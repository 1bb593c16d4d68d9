"""Bodies of Prometheus remote write: looked through as they come, and read as events later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import cramjam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from catchment.serving.remote_write import (
    MEDIA,
    STALE,
    STALE_SAMPLE,
    VERSION_1,
    VERSION_2,
    WriteRequest,
    WriteRequest2,
)
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
from catchment.sources.types import TIME

_FORMS = {VERSION_1: "1", VERSION_2: "2"}
_NAME = "__name__"
_LATEST = (2**63 - 1) // 1000
"""Milliseconds whose microseconds still are a time."""
HISTOGRAMS, EXEMPLARS = "native histograms are not read", "exemplars are not read"
STALE_MARKS = "staleness markers are not read as values"

LabelledSeries = tuple[dict[str, str], Any]
"""The labels of a series, and its samples."""


class RemoteWrite:
    """Which bodies are taken: requests of version 1 or 2, compressed by Snappy."""

    def __init__(self, most: int, keep_stale: bool = False) -> None:
        self._most, self._keep_stale = most, keep_stale

    def form(self, media: str, encoding: str) -> str:
        kind, _, rest = media.partition(";")
        proto = VERSION_1
        for word in rest.split(";"):
            name, _, value = word.strip().partition("=")
            proto = value.strip('"') if name.lower() == "proto" else proto
        if kind.strip().lower() != MEDIA or proto not in _FORMS:
            raise RefusedRequest(
                415, f"the content type is {media or 'missing'}; {MEDIA} of {_either()} is taken"
            )
        if encoding.strip().lower() != "snappy":
            raise RefusedRequest(
                415, f"the content encoding is {encoding or 'missing'}; snappy is taken"
            )
        return _FORMS[proto]

    def inspect(self, form: str, body: bytes) -> Inspected:
        data = self._decompressed(body)
        rows = histograms = exemplars = stale = 0
        suspect = not self._keep_stale and STALE_SAMPLE in data
        message = _parsed(form, data)
        if len(message.timeseries) > MOST_ROWS:
            raise RefusedRequest(413, f"the request has more than {MOST_ROWS} series")
        for _, one in _series(form, message):
            rows += len(one.samples)
            histograms += len(one.histograms)
            exemplars += len(one.exemplars)
            if suspect:
                stale += int(np.count_nonzero(_bits(_values(one)) == STALE))
        if rows > MOST_ROWS:
            raise RefusedRequest(413, f"the request has {rows} samples; at most {MOST_ROWS} fit")
        passed = {HISTOGRAMS: histograms, EXEMPLARS: exemplars, STALE_MARKS: stale}
        return Inspected(rows, len(data), passed)

    def accepted(self, form: str, found: Inspected) -> ReceiverAnswer:
        if form == "1":
            return ReceiverAnswer(204)
        written = {"samples": found.rows, "histograms": 0, "exemplars": 0}
        names = {f"x-prometheus-remote-write-{what}-written": str(n) for what, n in written.items()}
        return ReceiverAnswer(204, headers=names)

    def refused(self, media: str, refused: RefusedRequest) -> ReceiverAnswer:
        return ReceiverAnswer(refused.status, f"{refused.reason}\n".encode())

    def _decompressed(self, body: bytes) -> bytes:
        try:
            size = cramjam.snappy.decompress_raw_len(body)
            if size > self._most:
                raise RefusedRequest(
                    413, f"the body has {size} bytes when decompressed; at most {self._most} fit"
                )
            return decompressed(body)
        except cramjam.DecompressionError as error:
            raise RefusedRequest(400, f"the body is not compressed by Snappy: {error}") from None


def decompressed(body: bytes) -> bytes:
    return bytes(cramjam.snappy.decompress_raw(body))


def _either() -> str:
    return " or ".join(_FORMS)


def _parsed(form: str, data: bytes) -> Any:
    message = WriteRequest() if form == "1" else WriteRequest2()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        kind = VERSION_1 if form == "1" else VERSION_2
        raise RefusedRequest(400, f"the body is not a {kind}: {error}") from None
    return message


def _series(form: str, message: Any) -> Iterator[LabelledSeries]:
    if form == "1":
        for one in message.timeseries:
            _bounded(len(one.labels))
            yield {label.name: label.value for label in one.labels}, one
        return
    symbols = [*message.symbols]
    for one in message.timeseries:
        _bounded(len(one.labels_refs) // 2)
        refs = [*one.labels_refs]
        if len(refs) % 2:
            raise RefusedRequest(400, "a series has a label without a value")
        if refs and max(refs) >= len(symbols):
            raise RefusedRequest(
                400, f"a series refers to symbol {max(refs)} of {len(symbols)} symbols"
            )
        yield {symbols[a]: symbols[b] for a, b in zip(refs[::2], refs[1::2], strict=True)}, one


def _bounded(labels: int) -> None:
    if labels > MOST_LABELS:
        raise RefusedRequest(400, f"a series has {labels} labels; at most {MOST_LABELS} fit")


def _values(one: Any) -> npt.NDArray[np.float64]:
    return np.fromiter((s.value for s in one.samples), np.float64, len(one.samples))


def _bits(values: npt.NDArray[np.float64]) -> npt.NDArray[np.uint64]:
    return values.view(np.uint64)


class SampleColumns(NamedTuple):
    """The columns that samples are read as."""

    schema: pa.Schema
    labels: dict[str, str]
    """Column to label."""
    others: str | None
    keep_stale: bool
    """Whether a staleness marker is an event without a value; otherwise it is none."""

    def read(self, block: list[Stored], place: int) -> tuple[pa.Table, list[Aside]]:
        """The samples of some requests, in their order."""
        labels: list[dict[str, str]] = []
        counts: list[int] = []
        values = [np.empty(0)]
        times = [np.empty(0, np.int64)]
        sender: list[int] = []
        for at, stored in enumerate(block):
            message = _parsed(KeptRequest.of(stored).form, decompressed(stored.payload))
            for found, one in _series(KeptRequest.of(stored).form, message):
                count = len(one.samples)
                if not count:
                    continue
                labels.append(found)
                counts.append(count)
                sender.append(place + at)
                values.append(_values(one))
                times.append(np.fromiter((s.timestamp for s in one.samples), np.int64, count))
        value, time = np.concatenate(values), np.concatenate(times)
        series = np.repeat(np.arange(len(labels)), counts)
        stale = _bits(value) == STALE
        sound = np.abs(time) <= _LATEST
        bad = [
            _untimed(labels[series[i]], sender[series[i]], int(time[i]), float(value[i]))
            for i in np.flatnonzero(~sound)
        ]
        keep = sound if self.keep_stale else sound & ~stale
        rows = _SampleRows(labels, series[keep], time[keep], value[keep], stale[keep])
        arrays = [self._column(field.name, rows) for field in self.schema]
        return _table(arrays, self.schema, int(np.count_nonzero(keep))), bad

    def _column(self, name: str, rows: _SampleRows) -> Any:
        if name == "time":
            return pa.array(rows.time * 1000, pa.int64()).cast(TIME)
        if name == "value":
            return pa.array(rows.value, pa.float64(), mask=rows.stale)
        if name == "metric":
            texts = [found.get(_NAME) for found in rows.labels]
        elif name == self.others:
            known = {_NAME, *self.labels.values()}
            texts = [as_json(found, known) for found in rows.labels]
        else:
            # To Prometheus, a label that is empty is a label that is not there.
            texts = [found.get(self.labels[name]) or None for found in rows.labels]
        return pa.array(texts, pa.string()).take(rows.series)


class _SampleRows(NamedTuple):
    labels: list[dict[str, str]]
    series: npt.NDArray[np.int64]
    """The series of each sample."""
    time: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]
    stale: npt.NDArray[np.bool_]


def _untimed(labels: dict[str, str], place: int, time: int, value: float) -> Aside:
    reason = f"the timestamp {time} is not a time"
    body = as_json({**labels, "timestamp": time, "value": repr(value)}, set())
    return Aside("prometheus", place, reason, body.encode())


def _table(arrays: list[Any], schema: pa.Schema, rows: int) -> pa.Table:
    if arrays:
        return pa.Table.from_arrays(arrays, schema=schema)
    # Without columns a table would have no rows, and they are to be counted.
    return pa.table({"_": pa.nulls(rows)}).select([])
