"""Talks to Kafka: what there is, and the messages between two offsets of a partition.

No group is joined and no offset is committed: the offsets are the caller's.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from catchment.errors import SourceError, UnreachableError, did_you_mean

T = TypeVar("T")
Settings = Mapping[str, str]

_log = logging.getLogger("catchment.kafka")
_BLOCK, _BLOCK_BYTES = 20_000, 16 << 20
_CHUNK = 2_000
_LISTED = 5.0
"""Seconds after which a topic that a broker does not list is not there."""
_FEW = 20
"""Topics that an error lists; of more it says the number."""
_PAUSE = 0.05
_ONE_CALL = 10.0

_DEFAULTS = {
    "group.id": "catchment",  # the library wants one; it is not used
    "isolation.level": "read_committed",
    "reconnect.backoff.max.ms": "1000",
    "log_level": "2",  # lost connections come up as errors only if they stay lost
    # What is fetched past the end of a split is thrown away, so not too much ahead.
    "queued.max.messages.kbytes": "16384",
    # Splits end where there is something: nothing is won by waiting for more, and the next split
    # would have to wait until that is over. A full queue is emptied much faster than in a second.
    "fetch.wait.max.ms": "10",
    "fetch.queue.backoff.ms": "10",
    "fetch.error.backoff.ms": "100",
}
_FIXED = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "allow.auto.create.topics": "false",
}
_SPEC: Any = OffsetSpec  # it has no types
_BOTH_ENDS = (_SPEC.earliest(), _SPEC.latest())
_FOR_ANY = {"bootstrap.servers", "reconnect.backoff.max.ms", "log_level"}
_CONSUMER_ONLY = {*_DEFAULTS, *_FIXED} - _FOR_ANY

# Errors of a broker that restarts, moves a partition or has just made it; and of a group, which
# is not needed here.
_PASSING = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._WAIT_CACHE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError._NOENT,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}


def settings(servers: str, options: Mapping[str, str]) -> dict[str, str]:
    """What the library is told; the caller's options win, except over what reading rests on."""
    return {"bootstrap.servers": servers, **_DEFAULTS, **options, **_FIXED}


def passing(error: KafkaError) -> bool:
    """Whether the error may go away by itself."""
    return not error.fatal() and (error.retriable() or error.code() in _PASSING)


def failure(what: str, servers: str, error: KafkaError | None) -> SourceError:
    hint = error.str() if error is not None else "is the server up?"
    return UnreachableError(what, given=servers, hint=hint)


class TopicClient:
    """Asks for topics, partitions and offsets. Waits at most `timeout` seconds for an answer."""

    def __init__(self, settings: Settings, timeout: float) -> None:
        self._settings = settings
        self._timeout = timeout
        self._servers = settings["bootstrap.servers"]
        # The consumer lists topics, because a question of the other would make missing ones.
        self._consumer = _KafkaReader(settings)
        self._admin = self._new_admin()

    def _new_admin(self) -> AdminClient:
        plain = {
            name: value for name, value in self._settings.items() if name not in _CONSUMER_ONLY
        }
        return AdminClient({**plain}, logger=_log)

    def check(self, topics: Iterable[str]) -> None:
        """Raises SourceError when the server does not answer or has not all the topics.

        A broker may not yet list a topic that was made a moment ago, so it is asked for a while.
        """
        wanted = list(topics)
        end = time.monotonic() + min(self._timeout, _LISTED)
        while True:
            there = self._ask(lambda left: self._consumer.consumer.list_topics(timeout=left)).topics
            unknown = [topic for topic in wanted if topic not in there]
            if not unknown:
                return
            if time.monotonic() >= end:
                raise no_topic(unknown[0], there)
            time.sleep(4 * _PAUSE)

    def partitions(self, topic: str) -> list[int]:
        """The numbers of the topic's partitions."""

        def ask(left: float) -> list[int]:
            found = self._consumer.consumer.list_topics(topic, timeout=left).topics[topic]
            if found.error is not None:
                raise KafkaException(found.error)
            return sorted(found.partitions)

        return self._ask(ask)

    def ends(self, parts: Iterable[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
        """The first offset there is and the next one that there will be, of each partition."""
        asked = [TopicPartition(topic, number) for topic, number in parts]
        if not asked:
            return {}
        level = {
            "read_committed": IsolationLevel.READ_COMMITTED,
            "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
        }[self._settings["isolation.level"]]

        def ask(left: float) -> dict[tuple[str, int], tuple[int, int]]:
            low, high = (
                self._admin.list_offsets(
                    dict.fromkeys(asked, which), isolation_level=level, request_timeout=left
                )
                for which in _BOTH_ENDS
            )
            return {
                (part.topic, part.partition): (
                    low[part].result().offset,
                    high[part].result().offset,
                )
                for part in asked
            }

        return self._ask(ask)

    def reaches(self, topic: str, partition: int, offset: int) -> bool:
        """Whether the partition soon has this offset or is about to."""
        end = time.monotonic() + min(self._timeout, _ONE_CALL)
        while self.ends([(topic, partition)])[topic, partition][1] < offset:
            if time.monotonic() > end:
                return False
            time.sleep(_PAUSE)
        return True

    def close(self) -> None:
        self._consumer.consumer.close()

    def _ask(self, ask: Callable[[float], T]) -> T:
        end = time.monotonic() + self._timeout
        while True:
            left = end - time.monotonic()
            try:
                return ask(max(0.5, min(left, _ONE_CALL)))
            except KafkaException as error:
                why: KafkaError = error.args[0]
                if not passing(why) or left <= 0:
                    why = self._consumer.last_error or why
                    raise failure("Kafka does not answer", self._servers, why) from error
                time.sleep(min(4 * _PAUSE, max(0.0, left)))
                # It does not learn of a partition's new leader; a new client does.
                self._admin = self._new_admin()


def no_topic(topic: str, there: Iterable[str]) -> SourceError:
    known = [name for name in there if not name.startswith("__")]
    many = "no topics" if not known else f"{len(known)} topics, none of a similar name"
    otherwise = "" if 0 < len(known) <= _FEW else f"the server has {many}"
    return UnreachableError(
        "no such topic", given=topic, hint=did_you_mean(topic, known, otherwise)
    )


class RemovedOffsets(NamedTuple):
    """Offsets that retention has removed: the first, and how many."""

    offset: int
    number: int


@dataclass(slots=True)
class MessageBlock:
    """Some messages of a partition in order: their offsets and payloads."""

    offsets: list[int] = field(default_factory=list)
    payloads: list[bytes | None] = field(default_factory=list)
    gone: RemovedOffsets | None = None
    """What there should have been before these."""
    size: int = 0

    def full(self) -> bool:
        return len(self.offsets) >= _BLOCK or self.size >= _BLOCK_BYTES

    def add(self, message: Message) -> None:
        payload = message.value()
        self.offsets.append(message.offset() or 0)
        self.payloads.append(payload)
        self.size += len(payload or b"")


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from `start` up to `end` of a partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"


def blocks(
    settings: Settings, wanted: OffsetRange, timeout: float, skip: bool
) -> Iterator[MessageBlock]:
    """The messages of a range. Offsets that hold none (markers, compacted ones) are passed over.

    The blocks are the same each time. Offsets that retention has removed are an error, unless they
    are to be skipped. When for `timeout` seconds nothing comes, that is an error too.
    """
    with _borrowed(settings) as reader:
        block = MessageBlock()
        for got in _fetch(reader, wanted, timeout, skip):
            if isinstance(got, RemovedOffsets):
                if block.offsets:
                    yield block
                block = MessageBlock(gone=got)
                continue
            block.add(got)
            if block.full():
                yield block
                block = MessageBlock()
        if block.offsets or block.gone:
            yield block


def _fetch(
    reader: _KafkaReader, wanted: OffsetRange, timeout: float, skip: bool
) -> Iterator[Message | RemovedOffsets]:
    at = wanted.start
    reader.assign(wanted, at)
    deadline = time.monotonic() + timeout
    while at < wanted.end:
        before = at
        for message in reader.consumer.consume(min(wanted.end - at, _CHUNK), _PAUSE):
            error = message.error()
            offset = message.offset() or 0
            if error is None and at <= offset < wanted.end:
                yield message
                at = offset + 1
            elif error is None or error.code() == KafkaError._PARTITION_EOF:
                # Past the end without having seen its last offset: it holds no message.
                if offset >= wanted.end:
                    return
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                low = min(reader.first(wanted, at), wanted.end)
                if low > at:
                    if not skip:
                        raise lost(wanted.topic, wanted.partition, at, low - at)
                    yield RemovedOffsets(at, low - at)
                at = low
                reader.assign(wanted, at)
                break
            elif not passing(error):
                raise failure(f"{wanted.name} cannot be read", reader.servers, error)
        if at > before:
            deadline = time.monotonic() + timeout
        elif time.monotonic() > deadline:
            raise failure(
                f"{wanted.name} gave nothing at offset {at} for {timeout:g} s",
                reader.servers,
                reader.last_error,
            )


def lost(topic: str, partition: int, at: int, count: int) -> SourceError:
    return SourceError(
        f"{count} offsets are gone before they were read",
        given=f"{topic}/{partition} from {at}",
        hint="keep messages longer (retention.ms), or go on without them: on_lost: skip",
    )


class _KafkaReader:
    """A consumer, and the last error it told of."""

    def __init__(self, settings: Settings) -> None:
        self.servers = settings["bootstrap.servers"]
        self.last_error: KafkaError | None = None
        try:
            self.consumer = Consumer({**settings, "error_cb": self._note}, logger=_log)
        except KafkaException as error:
            raise SourceError(
                "Kafka's client refuses an option",
                given=error.args[0].str(),
                hint="see the options of librdkafka",
            ) from error

    def _note(self, error: KafkaError) -> None:
        self.last_error = error

    def assign(self, wanted: OffsetRange, at: int) -> None:
        self.last_error = None
        self.consumer.assign([TopicPartition(wanted.topic, wanted.partition, at)])

    def first(self, wanted: OffsetRange, otherwise: int) -> int:
        """The first offset there is; `otherwise` when the server does not say or it is before."""
        part = TopicPartition(wanted.topic, wanted.partition)
        try:
            found = self.consumer.get_watermark_offsets(part, timeout=_ONE_CALL)
        except KafkaException as error:
            if not passing(error.args[0]):
                raise failure(
                    f"{wanted.name} cannot be read", self.servers, error.args[0]
                ) from error
            found = None
        time.sleep(_PAUSE)
        return max(otherwise, found[0]) if found else otherwise


# Tasks come several times a second, and to connect takes longer than to read. A consumer is used
# by one reader at a time, and only by the process that made it.
_idle: dict[tuple[Any, ...], list[_KafkaReader]] = {}
_lock = threading.Lock()


@contextmanager
def _borrowed(settings: Settings) -> Iterator[_KafkaReader]:
    key = (os.getpid(), *sorted(settings.items()))
    with _lock:
        kept = _idle.setdefault(key, [])
        reader = kept.pop() if kept else None
    reader = reader or _KafkaReader(settings)
    try:
        yield reader
        reader.consumer.unassign()
    except BaseException:
        reader.consumer.close()
        raise
    with _lock:
        _idle[key].append(reader)


@atexit.register
def close_idle() -> None:
    """Closes the consumers that nobody uses just now."""
    with _lock:
        mine = [key for key in _idle if key[0] == os.getpid()]
        readers = [reader for key in mine for reader in _idle.pop(key)]
    for reader in readers:
        reader.consumer.close()
