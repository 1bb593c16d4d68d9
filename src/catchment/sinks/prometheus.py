"""Results as samples of Prometheus, by remote write; no two names ever become one.

The rule is that of `catchment.sinks.naming`. A name that Prometheus takes, and that can be read in
one way only, stays as it is; any other gets an underscore and a digest of the whole name behind it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from string import Formatter
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.types as of
from pydantic import Field, SecretStr, model_validator

from catchment.errors import SinkError, did_you_mean
from catchment.sinks.base import Delivery, Sink, register_sink
from catchment.sinks.http_client import HttpPoster, HttpRefusedError, HttpTarget, check_url
from catchment.sinks.naming import digest
from catchment.sinks.options import Timeout, need, seconds
from catchment.sinks.rows import aggregates, filled, latest
from catchment.sinks.text import decoded, whole

_LABEL = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
_METRIC = re.compile("[a-zA-Z_:][a-zA-Z0-9_:]*")
_MADE = re.compile(r"_[a-z2-7]{26}\Z")
"""How a name ends that has a digest; one that a user gave such an end gets a digest too."""
_OLD = re.compile("out of order|duplicate sample|out of bounds|too old", re.IGNORECASE)
"""What servers say of a sample that is older than, or another than, what they have."""
_log = logging.getLogger("catchment.prometheus")


class WriteSample(NamedTuple):
    """A sample: its labels, sorted by name, its value and its time in milliseconds."""

    labels: tuple[tuple[str, str], ...]
    value: float
    time: int


@register_sink
class PrometheusSink(Sink):
    """Samples sent to Prometheus, or who takes its remote write (version 1).

    Each aggregate is a metric, called as `metric` says; keys are labels, and `window_end` is the
    time. Of several results of one series and time, the newest revision of the last window counts.
    A null is not sent, and aggregates that are not numbers or booleans are an error, unless
    `columns` leaves them out. Windows whose bounds may repeat have a label `window_index`. A key
    that is null is no label; Prometheus takes an empty label for none, so an empty text is `""`,
    and a text of nothing but double quotes gets two more. A key comes before one of `labels`.

    No two names become one. In a name that Prometheus does not take, other letters are underscores
    and a digest follows: `sum(v)` of a query `q` is `q:sum_v__` and 26 letters and digits; `AS s`
    makes it `q:s`. So it is where a name could be read in two ways: with `{query}_{column}`,
    `a_b_c` is the column `c` of `a_b`, and the column `b_c` of `a` gets a digest. Without `{query}`
    or `{column}`, two columns of one name are an error.

    A sample is known by its series and time, so a delivery that comes again changes nothing. What a
    server says of a sample that is older than the newest of its series, or another than the one it
    has, depends on its settings: VictoriaMetrics and Mimir can take them; Prometheus refuses them
    unless `out_of_order_time_window` is set, and never takes a revision of a sample. Such samples
    are found, left out and logged, while the others are sent; `refused: error` makes the delivery
    fail instead. Retracted results are not sent: a sample cannot be deleted by remote write.

    The answers 429 and 5xx and lost connections are tried again for `timeout`.
    """

    type: Literal["prometheus"] = "prometheus"
    url: str = Field(repr=False, description="as in http://host:9090/api/v1/write")
    metric: str = Field(
        "{query}:{column}", description="names of metrics, of query and column; must differ"
    )
    labels: dict[str, str] = Field(default={}, description="labels that every sample gets")
    columns: tuple[str, ...] | None = Field(None, description="the aggregates to send; all if none")
    refused: Literal["skip", "error"] = Field(
        "skip", description="what to do with samples that the server takes for too old"
    )
    token: SecretStr | None = Field(None, description="sent as Authorization: Bearer <token>")
    headers: dict[str, str] = Field(
        default={}, repr=False, description="headers of every request, such as X-Scope-OrgID"
    )
    authority: str | None = Field(None, description="a PEM file, instead of the system's")
    max_samples: int = Field(2_000, gt=0, description="samples of one request")
    timeout: Timeout = Field("30s", description="how long to try while the server is away")

    @model_validator(mode="after")
    def _fits_prometheus(self) -> PrometheusSink:
        check_url(self.type, self.url)
        try:
            given = self.metric.format(query="q", column="c")
        except (KeyError, IndexError, ValueError):
            given = ""
        if not _METRIC.fullmatch(given):
            raise SinkError(
                "the metric is not a name",
                given=self.metric,
                hint="as in {query}:{column}; letters, digits, _ and : beside these",
            )
        for name in self.labels:
            if not _LABEL.fullmatch(name) or name.startswith("__"):
                raise SinkError("a label is not a name", given=name, hint="as in site")
        return self

    def check(self) -> None:
        with HttpPoster(self._target()) as poster:
            poster.post(_encoded([]), {})  # a request without samples changes nothing

    def write(self, delivery: Delivery) -> None:
        samples = self._samples(delivery)
        if not samples:
            return
        with HttpPoster(self._target()) as poster:
            left_out = 0
            for start in range(0, len(samples), self.max_samples):
                left_out += self._send(poster, samples[start : start + self.max_samples])
        if left_out:
            _log.warning(
                "%d of %d samples were refused as too old or as other than what the server has",
                left_out,
                len(samples),
            )

    def misfits(
        self, results: Mapping[str, pa.Schema], keys: Mapping[str, tuple[str, ...]]
    ) -> Iterator[SinkError]:
        sent: dict[str, list[str]] = {}
        for query, schema in results.items():
            try:
                sent[query] = self._sent(query, schema, keys[query])
            except SinkError as error:
                yield error
                continue
            for column in sent[query]:
                if not _is_number(schema.field(column).type):
                    yield _no_number(query, column, schema.field(column).type)
        yield from self._alike(sent)

    def _alike(self, sent: Mapping[str, Sequence[str]]) -> Iterator[SinkError]:
        """Columns that are one metric; there are none where `metric` has both names in it."""
        if "{query}" in self.metric and "{column}" in self.metric:
            return
        known: dict[str, str] = {}
        for query, columns in sent.items():
            for column in columns:
                name, this = metric_name(self.metric, query, column), f"{column!r} of {query!r}"
                if known.setdefault(name, this) != this:
                    yield SinkError(
                        f"two columns are one metric, {name!r}",
                        given=f"{known[name]} and {this}, by metric: {self.metric}",
                        hint="put {query} and {column} into metric",
                    )

    def _samples(self, delivery: Delivery) -> list[WriteSample]:
        """Each series and time once, in the order of time."""
        tables = {name: table.schema for name, table in delivery.results.items()}
        for error in self._alike(
            {query: self._known(schema, delivery.keys[query]) for query, schema in tables.items()}
        ):
            raise error
        found: dict[tuple[Any, int], WriteSample] = {}
        for query, table in filled(delivery):
            for sample in self._of_query(query, latest(table, delivery.keys[query]), delivery):
                found[sample.labels, sample.time] = sample
        return sorted(found.values(), key=lambda sample: sample.time)

    def _of_query(self, query: str, table: pa.Table, delivery: Delivery) -> Iterator[WriteSample]:
        keys = self._labels(table, delivery.keys[query])
        ends = table["window_end"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        times = np.asarray(ends.to_numpy()) // 1000
        for column in self._sent(query, table.schema, delivery.keys[query]):
            name = metric_name(self.metric, query, column)
            values = _numbers(query, column, whole(table[column]))
            for row, value in enumerate(values):
                if value is not None:
                    own = {**keys[row], "__name__": name}
                    yield WriteSample(tuple(sorted(own.items())), value, int(times[row]))

    def _sent(self, query: str, schema: pa.Schema, keys: Sequence[str]) -> list[str]:
        found = self._known(schema, keys)
        if not found and self.columns is not None:
            known = _aggregates(schema, keys)
            raise SinkError(
                f"query {query!r} has none of the columns to send",
                given=", ".join(self.columns),
                hint=did_you_mean(self.columns[0] if self.columns else "", known),
            )
        return found

    def _known(self, schema: pa.Schema, keys: Sequence[str]) -> list[str]:
        """The aggregates of a query that are to be sent."""
        known = _aggregates(schema, keys)
        if self.columns is None:
            return known
        return [name for name in dict.fromkeys(self.columns) if name in known]

    def _labels(self, table: pa.Table, keys: Sequence[str]) -> list[dict[str, str]]:
        """The labels of each row; `grouping_id`, `node` and `window_index` are keys too."""
        more = [name for name in _KEYS if name in table.column_names and name not in keys]
        named = {name: label_name(name) for name in [*keys, *more]}
        # A label that is a key's stays free where the key is null.
        same = {name: text for name, text in self.labels.items() if name not in named.values()}
        made = [dict(same) for _ in range(table.num_rows)]
        for name, label in named.items():
            for row, text in zip(made, _texts(table[name]), strict=True):
                if text is not None:
                    row[label] = label_value(text)
        return made

    def _send(self, poster: HttpPoster, samples: list[WriteSample]) -> int:
        """Sends samples; how many were left out, because the server takes them for too old."""
        try:
            poster.post(_encoded(samples), {})
        except HttpRefusedError as error:
            if self.refused == "error" or not _OLD.search(error.reason):
                raise
            if len(samples) == 1:
                return 1
            half = len(samples) // 2
            return self._send(poster, samples[:half]) + self._send(poster, samples[half:])
        return 0

    def _target(self) -> HttpTarget:
        need("cramjam", "receivers")
        need("google.protobuf", "receivers")
        from catchment.serving.remote_write import MEDIA

        headers = {
            **self.headers,
            "Content-Type": MEDIA,
            "Content-Encoding": "snappy",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
            "User-Agent": "catchment",
        }
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token.get_secret_value()}"
        return HttpTarget(self.type, self.url, seconds(self.timeout), headers, self.authority)


_KEYS = ("grouping_id", "node", "window_index")
_ABOUT = ("complete", "missing", *_KEYS)
"""What results say of themselves; it is no aggregate."""


@lru_cache(maxsize=10_000)
def metric_name(template: str, query: str, column: str) -> str:
    """The metric of a column of a query; where the template has both, no other has its name.

    >>> metric_name("{query}_{column}", "a_b", "c"), metric_name("{query}:{column}", "a", "b_c")
    ('a_b_c', 'a:b_c')
    >>> metric_name("{query}_{column}", "a", "b_c")
    'a_b_c_656c6vs7ld5uxe5zmqzlgvpizv'
    >>> metric_name("{query}_{column}", "5m", "avg(v)")
    '_5m_avg_v__4tumlmg4dynn6vbn6dktadzxpx'
    """
    text = template.format(query=query, column=column)
    if _METRIC.fullmatch(text) and not _MADE.search(text) and _reads(template, text, query, column):
        return text
    readable = re.sub(r"[^a-zA-Z0-9_:]", "_", text)
    readable = readable if _METRIC.fullmatch(readable) else f"_{readable}"
    return f"{readable}_{digest(f'{len(query)} {query}{column}')}"


def _reads(template: str, text: str, query: str, column: str) -> bool:
    """Whether a metric, when it is read by its template, gives these names and no others."""
    reading = _reading(template)
    found = None if reading is None else reading.fullmatch(text)
    names = {"query": query, "column": column}
    return found is not None and all(names[key] == got for key, got in found.groupdict().items())


@lru_cache(maxsize=100)
def _reading(template: str) -> re.Pattern[str] | None:
    """Finds the one pair of names that a metric is read as; None where names are not whole."""
    parts: list[str] = []
    for text, name, form, conversion in Formatter().parse(template):
        parts.append(re.escape(text))
        if name is None:
            continue
        if name not in ("query", "column") or form or conversion:
            return None
        group = f"(?P<{name}>.+)"
        parts.append(f"(?P={name})" if group in parts else group)
    return re.compile("".join(parts))


def label_name(text: str) -> str:
    """The label of a key; no other key has it.

    >>> label_name("user_id"), label_name("user.id")
    ('user_id', 'user_id_6tyjkaoy553w3tt5xguysm4su5')
    >>> label_name("1st"), label_name("__x")
    ('_1st_4ao56zmuuq4hxp2sbz6wpblycu', 'x_m4bsd7hc2zmxlok23ny6c5lqcm')
    """
    if _LABEL.fullmatch(text) and not text.startswith("__") and not _MADE.search(text):
        return text
    readable = re.sub(r"[^a-zA-Z0-9_]", "_", text).lstrip("_") or "key"
    return f"{'_' if readable[0].isdigit() else ''}{readable}_{digest(text)}"


def label_value(text: str) -> str:
    """The value of a label, which is never empty: that would be no label.

    >>> label_value("x"), label_value(""), len(label_value('""'))
    ('x', '""', 4)
    """
    return text if text.strip('"') else f'{text}""'


def _encoded(samples: list[WriteSample]) -> bytes:
    """A request, compressed; samples of one series are together, in the order of time."""
    import cramjam

    from catchment.serving.remote_write import WriteRequest

    series: dict[tuple[tuple[str, str], ...], list[WriteSample]] = {}
    for sample in samples:
        series.setdefault(sample.labels, []).append(sample)
    request = WriteRequest()
    for labels, held in series.items():
        one = request.timeseries.add()
        for name, value in labels:
            one.labels.add(name=name, value=value)
        for sample in held:
            one.samples.add(value=sample.value, timestamp=sample.time)
    return bytes(cramjam.snappy.compress_raw(request.SerializeToString()))


def _aggregates(schema: pa.Schema, keys: Sequence[str]) -> list[str]:
    return [name for name in aggregates(schema.empty_table(), keys) if name not in _ABOUT]


def _is_number(kind: pa.DataType) -> bool:
    number = of.is_integer(kind) or of.is_floating(kind) or of.is_decimal(kind)
    return number or of.is_boolean(kind) or of.is_null(kind)


def _no_number(query: str, column: str, kind: pa.DataType) -> SinkError:
    return SinkError(
        f"column {column!r} of query {query!r} is no number",
        given=str(kind),
        hint="name the columns to send, as in columns: [n, mean]",
    )


def _numbers(query: str, column: str, array: Any) -> list[float | None]:
    kind = array.type
    if of.is_null(kind):
        return []
    if not _is_number(kind):
        raise _no_number(query, column, kind)
    if of.is_boolean(kind):
        array = array.cast(pa.int8())
    return [None if value is None else float(value) for value in array.to_pylist()]


def _texts(column: pa.ChunkedArray[Any]) -> list[str | None]:
    array = decoded(whole(column))
    kind = array.type
    if of.is_binary(kind) or of.is_large_binary(kind) or of.is_fixed_size_binary(kind):
        return [None if value is None else _text_of_bytes(value) for value in array.to_pylist()]
    try:
        return list(array.cast(pa.string()).to_pylist())
    except pa.ArrowException:
        return [None if value is None else str(value) for value in array.to_pylist()]


def _text_of_bytes(value: bytes) -> str:
    r"""Bytes as text, or in hexadecimal where they are none or look like that.

    >>> _text_of_bytes(b"x"), _text_of_bytes(b"\xff"), _text_of_bytes(b"\\xff")
    ('x', '\\xff', '\\x5c786666')
    """
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\\x"
    return f"\\x{value.hex()}" if text.startswith("\\x") else text
