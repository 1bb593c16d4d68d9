"""When a topic of Kafka shows all that was written to it."""

from __future__ import annotations

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

import servers
from patience import PATIENCE, wait_for


def wait_until_settled(kafka: servers.Kafka, topic: str) -> None:
    """Until all transactions of the topic's first partition have ended: the broker tells a producer
    of its commit before readers see it."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    asked = {TopicPartition(topic, 0): OffsetSpec.latest()}

    def end(level: IsolationLevel) -> int:
        (found,) = admin.list_offsets(asked, isolation_level=level).values()
        return int(found.result(PATIENCE).offset)

    wait_for(lambda: end(IsolationLevel.READ_COMMITTED) == end(IsolationLevel.READ_UNCOMMITTED))
