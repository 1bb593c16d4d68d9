"""Kafka's side of its sink: producers whose transactions each carry the number of a delivery."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from catchment.errors import SinkError
from catchment.sinks.kafka import KafkaMessage
from catchment.sinks.naming import digest


class _LibraryLog:
    """What librdkafka has to say, which is much while a server is away; errors tell the rest."""

    def log(self, _: int, text: str, *args: object) -> None:
        logging.getLogger("catchment.sinks.kafka").debug(text, *args)


_LOG: Any = _LibraryLog()
_MOST = 32
"""Producers kept by a process: each has threads of its own."""
_ABORT = 2.0
"""Seconds to undo a transaction; a new producer undoes it, too."""
_SHARED = ("security.", "sasl.", "ssl.", "enable.ssl", "client.", "socket.", "broker.", "metadata.")
"""Options that matter to all who connect, not only to producers."""
_PASSING = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._TRANSPORT,
    KafkaError._STATE,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
)
"""Another process had the part in between, a topic has gone, or a server has just come: a new
producer may do."""


class TopicTarget(NamedTuple):
    """Where to write, and for how many seconds to try."""

    servers: str
    marker: str
    """The topic whose offsets count deliveries."""
    topic: str
    options: tuple[tuple[str, str | int | float | bool], ...]
    timeout: float


@dataclass
class TransactionalProducer:
    """A producer of one part of a job."""

    producer: Producer
    group: Any
    """The group of the pseudo consumer."""
    batch: int
    """The next one: those before are committed."""
    errors: list[KafkaError] = field(default_factory=list)


_links: dict[tuple[int, TopicTarget, str], TransactionalProducer] = {}
"""By process, target, and name: the newest last. One in use is not in it."""
_topics: set[tuple[str, str]] = set()
"""Servers and topics that were seen to be there."""


def check(target: TopicTarget) -> None:
    """Fails when no server answers, an option is wrong or the topic cannot be had."""
    errors: list[KafkaError] = []
    with _explained(target, errors):
        # Options that only producers have are checked by making one.
        Producer(_settings(target, errors) | dict(target.options), logger=_LOG)
        _topics.discard((target.servers, target.marker))
        _have(target, [target.marker], time.monotonic() + target.timeout, errors)


def write(
    target: TopicTarget,
    job: str,
    part: int,
    batch: int,
    topics: Iterable[str],
    messages: Callable[[], Iterator[tuple[str, KafkaMessage]]],
) -> None:
    """Commits the messages of a batch, unless they are committed."""
    end = time.monotonic() + target.timeout
    name = f"{job}-{part}-{digest(target.topic)}"
    errors: list[KafkaError] = []
    with _explained(target, errors):
        while True:
            try:
                return _once(target, name, batch, topics, messages, end, errors)
            except KafkaException as error:
                _topics.clear()
                why = error.args[0]
                if not (why.retriable() or why.code() in _PASSING) or time.monotonic() > end:
                    raise
                time.sleep(0.1)


def close(target: TopicTarget) -> None:
    for key in [key for key in _links if key[:2] == (os.getpid(), target)]:
        del _links[key]


@atexit.register
def _close_all() -> None:
    _links.clear()


def _once(
    target: TopicTarget,
    name: str,
    batch: int,
    topics: Iterable[str],
    messages: Callable[[], Iterator[tuple[str, KafkaMessage]]],
    end: float,
    errors: list[KafkaError],
) -> None:
    _have(target, [target.marker, *topics], end, errors)
    key = (os.getpid(), target, name)
    # A producer that failed is not put back: only a new one knows what became of its transaction.
    link = _links.pop(key, None) or _link(target, name, end, errors)
    if link.batch <= batch:
        link.errors = errors
        try:
            _commit(link, target.marker, batch, messages(), end)
        except KafkaException:
            _abort(link.producer)
            raise
        link.batch = batch + 1
    _links[key] = link
    while len(_links) > _MOST:
        del _links[next(iter(_links))]


def _link(
    target: TopicTarget, name: str, end: float, errors: list[KafkaError]
) -> TransactionalProducer:
    """A new producer; from here on all earlier ones of the part are shut out."""
    settings = _settings(target, errors) | {
        "transactional.id": name,
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "linger.ms": 5,
        "queue.buffering.max.messages": 1_000_000,
    }
    producer = Producer(settings | dict(target.options), logger=_LOG)
    producer.init_transactions(_left(end))
    # Only now: before, an earlier producer might have committed after the look.
    consumer = Consumer(
        _settings(target, errors)
        | {"group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed"},
        logger=_LOG,
    )
    try:
        found = consumer.committed([TopicPartition(target.marker, 0)], timeout=_left(end))[0]
        if found.error is not None:
            raise KafkaException(found.error)
        return TransactionalProducer(
            producer, consumer.consumer_group_metadata(), max(0, found.offset)
        )
    finally:
        consumer.close()


def _commit(
    link: TransactionalProducer,
    marker: str,
    batch: int,
    messages: Iterator[tuple[str, KafkaMessage]],
    end: float,
) -> None:
    producer, failed = link.producer, []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer.begin_transaction()
    for topic, (query, revision, key, value) in messages:
        headers: list[tuple[str, str | bytes | None]]
        headers = [("query", query.encode()), ("revision", b"%d" % (revision or 0))]
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=delivered, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
                if time.monotonic() > end:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None
        if failed:
            break
    try:
        # Not by flush, which goes on calling back after a fatal error and loses it so.
        while len(producer) and not failed:
            producer.poll(0.1)
            if time.monotonic() > end:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        offset = TopicPartition(marker, 0, batch + 1)
        producer.send_offsets_to_transaction([offset], link.group, _left(end))
        producer.commit_transaction(_left(end))
    except KafkaException as error:
        # The transaction only tells that a message failed; the message tells why.
        why = next((e for e in failed if e.code() != KafkaError._PURGE_QUEUE), None)
        if why is None:
            raise
        raise KafkaException(why) from error


def _abort(producer: Producer) -> None:
    # SystemError is what becomes of a fatal error among many messages that fail.
    with contextlib.suppress(KafkaException, SystemError):
        producer.purge()
        producer.abort_transaction(_ABORT)


def _have(target: TopicTarget, topics: Iterable[str], end: float, errors: list[KafkaError]) -> None:
    """Makes the topics that are missing, with the partitions that the servers think right."""
    if all((target.servers, topic) in _topics for topic in topics):
        return
    admin = AdminClient(_settings(target, errors), logger=_LOG)
    there = admin.list_topics(timeout=_left(end)).topics
    missing = sorted({topic for topic in topics if topic not in there})
    if missing:
        made = admin.create_topics(
            [NewTopic(topic, num_partitions=-1, replication_factor=-1) for topic in missing],
            operation_timeout=_left(end),
            request_timeout=_left(end),
        )
        for future in made.values():
            try:
                future.result(_left(end))
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
    _topics.update((target.servers, topic) for topic in topics)


def _settings(target: TopicTarget, errors: list[KafkaError]) -> dict[str, Any]:
    shared = {name: value for name, value in target.options if name.startswith(_SHARED)}
    return {
        "bootstrap.servers": target.servers,
        "error_cb": errors.append,
        # A request that waits for a server heeds only this; transactions take no more than 60 s.
        "socket.timeout.ms": min(60_000, max(1000, int(1000 * target.timeout))),
        "reconnect.backoff.max.ms": 1000,
    } | shared


def _left(end: float) -> float:
    return max(0.1, end - time.monotonic())


@contextlib.contextmanager
def _explained(target: TopicTarget, errors: list[KafkaError]) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise _refused(error.args[0], target, errors) from error


def _refused(error: KafkaError, target: TopicTarget, errors: list[KafkaError]) -> SinkError:
    code, given = error.code(), target.servers
    if code == KafkaError._INVALID_ARG:
        return SinkError("an option of Kafka is wrong", given=given, hint=error.str())
    if code in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
        why = errors[-1].str() if errors else error.str()
        return SinkError("Kafka cannot be reached", given=given, hint=why)
    if code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE):
        hint = "raise message.max.bytes of the topic and of the options"
        return SinkError("a result is too large for a message", given=target.topic, hint=hint)
    if code in (KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED):
        hint = f"choose another topic, or make it and grant the user: {error.str()}"
        return SinkError("the topic cannot be had", given=target.topic, hint=hint)
    return SinkError("Kafka refused the results", given=given, hint=error.str())
