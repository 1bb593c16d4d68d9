"""Kafka: a consumer of committed messages sees each result once, whatever happens to writers."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from catchment.errors import SinkError
from catchment.sinks import kafka_transactions
from catchment.sinks.kafka import KafkaSink
from catchment.sinks.naming import topic_name
from kafka_ends import wait_until_settled
from patience import PATIENCE
from servers import Kafka
from sink_rows import (
    BATCHES,
    ODD,
    QUERIES,
    ROWS,
    TYPES,
    Child,
    child_delivery,
    delivery,
    every_type,
    killed_and_repeated,
    rows,
)

NOBODY = "127.0.0.1:1"


def consume(kafka: Kafka, topic: str, isolation: str = "read_committed") -> list[Message]:
    """All committed messages of a topic."""
    settings = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": str(uuid4()),
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = []
    wait_until_settled(kafka, topic)
    end = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < end:
            message = consumer.poll(1)
            if message is None:
                continue
            if (error := message.error()) is None:
                got.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return got
    finally:
        consumer.close()
    raise AssertionError("the end of the topic was not reached")


def values(kafka: Kafka, topic: str) -> list[dict[str, Any]]:
    return [json.loads(message.value() or b"") for message in consume(kafka, topic)]


def once(kafka: Kafka, topic: str) -> bool:
    """Whether all that child processes write is there once."""
    keys = [message.key() for message in consume(kafka, topic)]
    return len(keys) == len(set(keys)) == BATCHES * QUERIES * ROWS


@pytest.fixture
def make(kafka: Kafka) -> Iterator[Callable[..., KafkaSink]]:
    made: list[KafkaSink] = []

    def sink(**options: Any) -> KafkaSink:
        made.append(KafkaSink(**{"servers": kafka.bootstrap, "topic": f"t-{uuid4()}"} | options))
        return made[-1]

    yield sink
    for each in made:
        each.close()


Make = Callable[..., KafkaSink]


def job() -> str:
    return f"job-{uuid4().hex[:8]}"


def test_the_same_delivery_counts_once(kafka: Kafka, make: Make) -> None:
    sink, name = make(), job()
    sink.check()
    for batch in (3, 3, 4):
        sink.write(child_delivery(name, batch))
    sink.close()  # as in another process, which has no memory of it
    sink.write(child_delivery(name, 4))
    sink.write(child_delivery(name, 4, part=1))
    assert len(consume(kafka, sink.topic)) == 3 * QUERIES * ROWS


def test_what_a_message_holds(kafka: Kafka, make: Make) -> None:
    sink = make()
    table = rows([None, 'a"b'], [float("nan"), 0.5], revision=2)
    counted = rows(["a"], [1]).append_column("window_index", pa.array([7]))
    sink.write(delivery({"b q": table, "c": counted}, job=job()))
    first, second, third = consume(kafka, sink.topic)
    bounds = ["2023-11-14T22:13:20.000000Z", "2023-11-14T22:13:21.000000Z"]
    assert json.loads(first.key() or b"") == ["b q", [None], *bounds]
    assert json.loads(second.key() or b"") == ["b q", ['a"b'], *bounds]
    assert json.loads(third.key() or b"") == ["c", ["a"], *bounds, 7]
    assert json.loads(first.value() or b"") == {
        "user": None,
        "window_start": bounds[0],
        "window_end": bounds[1],
        "sum(v)": "NaN",
        "revision": 2,
        "retracted": False,
    }
    assert first.headers() == [("query", b"b q"), ("revision", b"2")]
    assert third.headers() == [("query", b"c"), ("revision", b"0")]


def test_every_type(kafka: Kafka, make: Make) -> None:
    sink = make()
    sink.write(delivery({"q": every_type()}, job=job()))
    first, second, _ = values(kafka, sink.topic)
    for name, (_, _, text) in TYPES.items():
        assert first[name] == text and second[name] is None


def test_odd_names_each_have_a_topic(kafka: Kafka, make: Make) -> None:
    sink = make(topic=f"{uuid4()}-{{query}}")
    sink.check()
    sink.write(delivery({name: rows(["a"], [n]) for n, name in enumerate(ODD)}, job=job()))
    for number, name in enumerate(ODD):
        assert [row["sum(v)"] for row in values(kafka, topic_name(sink.topic, name))] == [number]
    assert all(len(topic_name(sink.topic, name * 30)) < 250 for name in ODD)


def test_names_that_kafka_takes_for_one_have_topics_of_their_own(kafka: Kafka, make: Make) -> None:
    """It refuses a topic that differs from another in dots and underscores only."""
    sink = make(topic=f"{uuid4()}-{{query}}")
    names = ("a.b", "a_b", "a b", "A_b", "catchment", "x" * 300, "x" * 300 + "y")
    for batch, name in enumerate(names):
        sink.write(delivery({name: rows(["a"], [batch])}, batch, job=f"job-{sink.topic}"))
    for batch, name in enumerate(names):
        assert [row["sum(v)"] for row in values(kafka, topic_name(sink.topic, name))] == [batch]


def test_windows_of_equal_bounds_have_keys_of_their_own(kafka: Kafka, make: Make) -> None:
    """So that a topic which is compacted keeps the last revision of each."""
    sink, name = make(), job()
    table = rows(["a", "a"], [1, 2], revision=0)
    both = table.append_column("window_index", pa.array([0, 1]))
    again = rows(["a"], [4], revision=1).append_column("window_index", pa.array([1]))
    sink.write(delivery({"q": both}, 0, job=name))
    sink.write(delivery({"q": again}, 1, job=name))
    held = {m.key(): json.loads(m.value() or b"")["sum(v)"] for m in consume(kafka, sink.topic)}
    assert sorted(held.values()) == [1, 4]


def test_older_revisions_are_told_apart_and_keys_are_the_same(kafka: Kafka, make: Make) -> None:
    sink, name = make(), job()
    for batch, revision in enumerate([0, 2, 1]):
        sink.write(delivery({"q": rows([None], [revision], revision=revision)}, batch, job=name))
    messages = consume(kafka, sink.topic)
    assert len({message.key() for message in messages}) == 1
    assert [json.loads(m.value() or b"")["revision"] for m in messages] == [0, 2, 1]


def test_two_sinks_of_one_job(kafka: Kafka, make: Make) -> None:
    name, sinks = job(), [make(), make()]
    for batch in range(2):
        for sink in sinks:
            sink.write(delivery({"q": rows(["a"], [batch])}, batch, job=name))
    for sink in sinks:
        assert [row["sum(v)"] for row in values(kafka, sink.topic)] == [0, 1]


def test_killed_at_any_moment(kafka: Kafka, make: Make) -> None:
    sink = make()
    killed_and_repeated(sink, job())
    assert once(kafka, sink.topic)


def test_two_write_the_same(kafka: Kafka, make: Make) -> None:
    sink, name = make(), job()
    for child in [Child(sink, name) for _ in range(2)]:
        assert child.end() == list(range(BATCHES))
    assert once(kafka, sink.topic)


def test_one_that_was_shut_out_in_the_middle_writes_nothing(kafka: Kafka, make: Make) -> None:
    """A zombie has an open transaction while another process writes its delivery."""
    sink, name = make(), job()
    sink.write(child_delivery(name, 0))
    links = kafka_transactions._links
    ((key, link),) = [item for item in links.items() if item[0][2].startswith(name)]
    link.producer.begin_transaction()
    link.producer.produce(sink.topic, b"{}", b"zombie")
    link.producer.flush(PATIENCE)
    del links[key]
    sink.write(child_delivery(name, 1))
    links[key] = link  # it wakes up, and does not know
    sink.write(child_delivery(name, 1))
    assert len(consume(kafka, sink.topic)) == 2 * QUERIES * ROWS
    assert len(consume(kafka, sink.topic, "read_uncommitted")) > 2 * QUERIES * ROWS


def test_the_server_goes_and_comes_back(kafka: Kafka, make: Make) -> None:
    topic, name = f"t-{uuid4()}", job()
    sink, short = make(topic=topic, timeout="4m"), make(topic=topic, timeout="1s")
    sink.write(child_delivery(name, 0))
    short.write(child_delivery(name, 0))
    kafka.kill()
    back = threading.Timer(0.5, kafka.start)
    try:
        with pytest.raises(SinkError, match="Kafka cannot be reached"):
            short.write(child_delivery(name, 1))
        back.start()
        sink.write(child_delivery(name, 1))
    finally:
        back.join() if back.ident else kafka.start()
    sink.write(child_delivery(name, 2))
    assert len(consume(kafka, topic)) == 3 * QUERIES * ROWS


def test_nobody_there(make: Make) -> None:
    sink = make(servers=NOBODY, timeout="500ms")
    for act in (sink.check, lambda: sink.write(child_delivery("j", 0))):
        start = time.monotonic()
        with pytest.raises(SinkError, match=r"Kafka cannot be reached \(given: 127.0.0.1:1\); "):
            act()
        assert time.monotonic() - start < 60


def test_wrong_options_and_topics(make: Make) -> None:
    with pytest.raises(SinkError, match=r'option of Kafka is wrong .*"no.such"'):
        make(options={"no.such": 1}).check()
    with pytest.raises(SinkError, match=r"the topic cannot be had \(given: a b\)"):
        make(topic="a b").check()


def test_a_result_that_is_too_large(kafka: Kafka, make: Make) -> None:
    sink, name = make(), job()
    with pytest.raises(SinkError, match="too large for a message"):
        sink.write(delivery({"q": rows(["a", "x" * 3_000_000], [1, 2])}, job=name))
    noise = os.urandom(2_000_000).hex()  # too large when it is compressed, too
    big = make(topic=sink.topic, options={"message.max.bytes": 10_000_000})
    with pytest.raises(SinkError, match="too large for a message"):
        big.write(delivery({"q": rows(["a", noise], [1, 2])}, job=name))
    sink.write(delivery({"q": rows(["a"], [1])}, job=name))
    assert len(consume(kafka, sink.topic)) == 1


def test_without_rows_nothing_happens(make: Make) -> None:
    make(servers=NOBODY).write(delivery({"q": rows([], pa.array([], pa.int64()))}))


def test_passwords_are_not_shown(make: Make) -> None:
    assert "hunter2" not in repr(make(options={"sasl.password": "hunter2"}))
