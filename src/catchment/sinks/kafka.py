"""Results as messages of Kafka, each in exactly one committed transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field

from catchment.sinks.base import Delivery, Sink, register_sink
from catchment.sinks.naming import topic_name
from catchment.sinks.options import Timeout, need, seconds
from catchment.sinks.rows import bounds, filled, grouped
from catchment.sinks.text import PLAIN, lists, objects, texts, whole

if TYPE_CHECKING:
    from catchment.sinks.kafka_transactions import TopicTarget


@register_sink
class KafkaSink(Sink):
    """Messages that a consumer with `isolation.level=read_committed` sees once.

    A delivery is one transaction, in which its number is committed, too, as the offset of a
    consumer group that nobody joins; a delivery that comes again finds its number and is left out.
    Brokers forget such offsets after `offsets.retention.minutes` (a week): a job that stood still
    for longer may repeat its last delivery.

    The key is a JSON list: query, list of key values, window_start, window_end and, of windows
    whose bounds may repeat, window_index. The value is the row as a JSON object. Headers tell query
    and revision.
    """

    type: Literal["kafka"] = "kafka"
    servers: str = Field(description="as in host:9092,other:9092")
    topic: str = Field(description="a topic; {query} in it stands for the query's name")
    format: Literal["json"] = "json"
    options: dict[str, str | int | float | bool] = Field(
        default={}, repr=False, description="settings of librdkafka, such as security.protocol"
    )
    timeout: Timeout = Field(
        default="30s", description="how long to try while the servers are away"
    )

    def check(self) -> None:
        need("confluent_kafka", "kafka")
        from catchment.sinks import kafka_transactions

        kafka_transactions.check(self._target())

    def write(self, delivery: Delivery) -> None:
        tables = filled(delivery)
        if not tables:
            return
        need("confluent_kafka", "kafka")
        from catchment.sinks import kafka_transactions

        topics = {query: topic_name(self.topic, query) for query, _ in tables}
        kafka_transactions.write(
            self._target(),
            delivery.job,
            delivery.part,
            delivery.batch,
            set(topics.values()),
            lambda: _addressed(_FORMATS[self.format](delivery), topics),
        )

    def close(self) -> None:
        need("confluent_kafka", "kafka")
        from catchment.sinks import kafka_transactions

        kafka_transactions.close(self._target())

    def _target(self) -> TopicTarget:
        from catchment.sinks.kafka_transactions import TopicTarget

        # The topic whose offsets count deliveries is there whatever the queries are.
        marker = topic_name(self.topic, "catchment")
        options = tuple(sorted(self.options.items()))
        return TopicTarget(self.servers, marker, self.topic, options, seconds(self.timeout))


class KafkaMessage(NamedTuple):
    query: str
    revision: int
    key: str
    value: str


def _json(delivery: Delivery) -> Iterator[KafkaMessage]:
    for group in grouped(delivery):
        table, rows, names = group.table, group.table.num_rows, group.table.column_names
        text = dict(zip(names, texts([whole(column) for column in table.columns]), strict=True))
        own = lists([text[name] for name in group.keys], rows)
        name = group.named([PLAIN.quoted(query) for query in group.queries])
        key = lists([name, own, *(text[bound] for bound in bounds(table))], rows)
        value = objects(names, list(text.values()), rows)
        revision: Iterable[Any] = repeat(0)
        if "revision" in names:
            revision = table["revision"].to_pylist()
        queries: list[Any] = group.named(group.queries).to_pylist()
        yield from map(KafkaMessage, queries, revision, key.to_pylist(), value.to_pylist())


_FORMATS: dict[str, Callable[[Delivery], Iterator[KafkaMessage]]] = {"json": _json}


def _addressed(
    messages: Iterator[KafkaMessage], topics: Mapping[str, str]
) -> Iterator[tuple[str, KafkaMessage]]:
    return ((topics[message.query], message) for message in messages)
