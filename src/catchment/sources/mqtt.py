"""Topics of an MQTT broker, which cannot be read again: a receiver keeps messages on local disk."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal
from uuid import uuid4

import pyarrow as pa
from pydantic import Field, PrivateAttr, SecretStr, model_validator

from catchment.durable.folder import Folder
from catchment.errors import SourceError
from catchment.model.duration import micros
from catchment.model.section import duration_option
from catchment.sources.aside import Aside
from catchment.sources.base import NeverRead, register_source
from catchment.sources.decode import Decoded
from catchment.sources.messages import MessageSource
from catchment.sources.needs import module
from catchment.sources.spool import Stored
from catchment.sources.spooled import SpooledSource, SpoolReader

_BLOCK = 20_000
_FOREVER = 0xFFFFFFFF


@register_source
class Mqtt(MessageSource, SpooledSource):
    """Messages of an MQTT broker, in the order they came. There is one partition, "mqtt".

    The driver receives. It acknowledges a message (quality 1) only when it is safe in the spool, a
    folder on the driver's disk that must be at the same path wherever tasks run: so one machine,
    or a shared disk. Messages stay in the spool until they are processed; when it is full, nothing
    is acknowledged, and the broker keeps what comes.

    Quality 1 means that a message may come twice, after a lost connection or a crash; `distinct_on`
    in a query makes it count once. Quality 2 is not offered: the client library would confirm
    messages before they are safe. Quality 0 means that messages may be lost.
    """

    partition: ClassVar[str] = "mqtt"
    when_full: ClassVar[str] = (
        "nothing is acknowledged: the broker keeps messages, and those of quality 0 are lost"
    )

    type: Literal["mqtt"] = "mqtt"
    host: str
    port: int = 1883
    topic: str | tuple[str, ...] = Field(description="topics or filters, as in sensors/+/speed")
    qos: Literal[0, 1] = 1
    client_id: str | None = Field(None, description="given by itself and kept, unless given here")
    username: str | None = None
    password: SecretStr | None = None
    tls: bool = False
    keepalive: int = Field(60, gt=0, description="seconds")
    version: Literal[3, 5] = Field(5, description="of MQTT; 3 means 3.1.1")
    session: Annotated[str, duration_option("session")] = Field(
        "7d", description="how long the broker keeps messages while we are away"
    )
    topic_column: str | None = Field(None, description="a column that holds the message's topic")

    _receiver: Any = PrivateAttr(None)

    @model_validator(mode="after")
    def _fits_mqtt(self) -> Mqtt:
        if self._given_schema() is None:
            raise SourceError("mqtt needs a schema", hint="add schema: {ts: timestamp, v: double}")
        if self.topic_column in (self._given_schema() or pa.schema([])).names:
            raise SourceError(
                "the topic's column has the name of another",
                given=self.topic_column,
                hint="choose another topic_column",
            )
        return self

    def check(self) -> None:
        _client().check(self._link())

    def event_schema(self) -> pa.Schema:
        schema = super().event_schema()
        if self.topic_column is None:
            return schema
        return schema.append(pa.field(self.topic_column, pa.string()))

    def table(self) -> str | None:
        topics = (self.topic,) if isinstance(self.topic, str) else self.topic
        return topics[0] if len(topics) == 1 and not set("+#") & set(topics[0]) else None

    def open(self, home: Folder) -> None:
        spool = self.open_spool(home)
        name = self.client_id or _kept_name(home)
        self._receiver = _client().Receiver(self._link(), name, spool, self.max_spool)
        self._receiver.start()

    def failure(self) -> SourceError | None:
        return None if self._receiver is None else self._receiver.failed

    def never_read(self) -> list[NeverRead]:
        dropped = 0 if self._receiver is None else self._receiver.dropped
        reason = "messages of quality 0 came while the spool was full"
        told = [NeverRead(self.partition, reason, rows=dropped)] if dropped else []
        return [*super().never_read(), *told]

    def spread(self) -> int:
        return self._spread()

    def blocks(self, stored: Iterator[Stored]) -> Iterator[list[Stored]]:
        while block := list(islice(stored, _BLOCK)):
            yield block

    def reader(self, columns: list[str] | None) -> SpoolReader:
        wanted = columns if columns is None else [c for c in columns if c != self.topic_column]
        decoder = self._decoder(super().event_schema(), wanted)

        def read(block: list[Stored], place: int) -> tuple[pa.Table, list[Aside]]:
            made = decoder.decode([message.payload for message in block])
            events = self._with_topics(made, block)
            bad = [Aside(block[i].topic, place + i, why, block[i].payload) for i, why in made.bad]
            return events if columns is None else events.select(columns), bad

        return read

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.stop()
        self._receiver = None
        super().close()

    def _with_topics(self, made: Decoded, block: list[Stored]) -> pa.Table:
        if self.topic_column is None:
            return made.events
        topics = pa.array([message.topic for message in block]).take(made.sender)
        return made.events.append_column(pa.field(self.topic_column, pa.string()), topics)

    def _found_schema(self) -> pa.Schema:
        raise SourceError("mqtt needs a schema")  # refused before it comes to this

    def _link(self) -> Any:
        topics = (self.topic,) if isinstance(self.topic, str) else self.topic
        session = min(max(1, micros(self.session, "session") // 1_000_000), _FOREVER)
        secret = self.password.get_secret_value() if self.password is not None else None
        return _client().BrokerConnection(
            self.host,
            self.port,
            topics,
            self.qos,
            self.username,
            secret,
            self.tls,
            self.keepalive,
            self.version,
            session,
        )


def _kept_name(home: Folder) -> str:
    """The client's name: always the same, because the broker keeps messages under it."""
    kept = home.read("client_id")
    if kept is None:
        kept = f"catchment-{uuid4().hex[:12]}".encode()  # 22 letters: the most all brokers take
        home.write("client_id", kept)
    return kept.decode()


def _client() -> Any:
    return module("mqtt_client", "mqtt")
