"""Results as JSON, posted to a URL: for alerts, and for whoever has no other sink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, SecretStr, model_validator

from catchment.errors import SinkError
from catchment.sinks.base import Delivery, Sink, register_sink
from catchment.sinks.http_client import HttpPoster, HttpTarget, check_target, check_url
from catchment.sinks.options import Timeout, seconds
from catchment.sinks.rows import filled
from catchment.sinks.text import PLAIN, objects, texts, whole

_OWN = ("content-type", "idempotency-key", "authorization")


@register_sink
class HttpSink(Sink):
    """A POST of JSON for each delivery, or for each row: a webhook.

    Each post has the header `Idempotency-Key`. A delivery that comes again after a crash, or
    because its answer was lost, has the same keys and bodies: a receiver that remembers keys counts
    a post once. With `each: delivery` the body is an object of `job`, `batch`, `part`, `number` (0,
    1, ... of the posts of a delivery) and `results`, a list of at most `max_rows` objects of
    `query` and `row`. With `each: row` it is an object of `query` and `row`. Without results
    nothing is posted.

    An answer 2xx is success. The answers 408, 429 and 5xx and lost connections are tried again for
    `timeout`, after pauses that double or that Retry-After asks for. Any other answer is an error
    that says the server's reason; the delivery comes again later, from its first post on.
    """

    type: Literal["http"] = "http"
    url: str = Field(repr=False, description="as in https://host/path")
    each: Literal["delivery", "row"] = Field("delivery", description="what is one post")
    token: SecretStr | None = Field(None, description="sent as Authorization: Bearer <token>")
    headers: dict[str, str] = Field(default={}, repr=False, description="headers of every post")
    authority: str | None = Field(None, description="a PEM file, instead of the system's")
    max_rows: int = Field(1_000, gt=0, description="rows of one post")
    timeout: Timeout = Field("30s", description="how long to try while the server is away")

    @model_validator(mode="after")
    def _fits_http(self) -> HttpSink:
        check_url(self.type, self.url)
        for name, value in self.headers.items():
            if name.lower() in _OWN:
                raise SinkError(
                    "this header is not for users to set",
                    given=name,
                    hint="a token goes into token" if name.lower() == "authorization" else None,
                )
            if not name or any(sign in name + value for sign in "\r\n\0"):
                raise SinkError("a header is not one", given=repr(name))
        return self

    def check(self) -> None:
        check_target(self._target())

    def write(self, delivery: Delivery) -> None:
        tables = filled(delivery)
        if not tables:
            return
        with HttpPoster(self._target()) as poster:
            for number, body in enumerate(self._bodies(delivery, tables)):
                key = f"{delivery.job}-{delivery.batch}-{delivery.part}-{number}"
                poster.post(body.encode(), {"Idempotency-Key": f'"{key}"'})

    def _bodies(self, delivery: Delivery, tables: list[tuple[str, pa.Table]]) -> Iterator[str]:
        rows = [row for query, table in tables for row in _rows(query, table)]
        if self.each == "row":
            yield from rows
            return
        about = f'"job":{PLAIN.quoted(delivery.job)},"batch":{delivery.batch}'
        for number, start in enumerate(range(0, len(rows), self.max_rows)):
            held = ",".join(rows[start : start + self.max_rows])
            yield f'{{{about},"part":{delivery.part},"number":{number},"results":[{held}]}}'

    def _target(self) -> HttpTarget:
        headers = {"Content-Type": "application/json", "User-Agent": "catchment", **self.headers}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token.get_secret_value()}"
        return HttpTarget(self.type, self.url, seconds(self.timeout), headers, self.authority)


def _rows(query: str, table: pa.Table) -> list[str]:
    """The rows of a query as texts of JSON objects, with its name."""
    columns = texts([whole(column) for column in table.columns])
    values: Any = objects(table.column_names, columns, table.num_rows)
    name = PLAIN.quoted(query)
    return [f'{{"query":{name},"row":{row}}}' for row in values.to_pylist()]
