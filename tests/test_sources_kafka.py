"""Kafka as a source: every offset once, whatever the splits, the payloads and the broker do."""

from __future__ import annotations

import io
import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any
from uuid import uuid4

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pydantic import ValidationError

import servers
from catchment.errors import SourceError
from catchment.sources import kafka_client
from catchment.sources.base import BAD, Piece
from catchment.sources.kafka import Kafka, shares
from patience import PATIENCE, wait_for

SCHEMA = {"n": "bigint", "s": "string"}


def done(futures: dict[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(PATIENCE)


def new_topic(kafka: servers.Kafka, partitions: int = 1, **config: str) -> str:
    name = f"t-{uuid4()}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    done(admin.create_topics([NewTopic(name, partitions, 1, config=config)]))
    wait_until_known(admin, name, partitions)
    return name


def wait_until_known(admin: AdminClient, topic: str, partitions: int) -> None:
    """The broker tells of new partitions after it has said that they are made."""

    def known() -> bool:
        topics = admin.list_topics(timeout=PATIENCE).topics
        return topic in topics and len(topics[topic].partitions) == partitions

    wait_for(known)


def produce(
    kafka: servers.Kafka, topic: str, values: list[bytes | None], partition: int = 0, **more: str
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, **more})
    for value in values:
        producer.produce(topic, value, partition=partition)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0


def numbers(first: int, count: int) -> list[bytes | None]:
    return [json.dumps({"n": n, "s": f"é{n}"}).encode() for n in range(first, first + count)]


def source(kafka: servers.Kafka, topic: str | tuple[str, ...], **more: Any) -> Kafka:
    return Kafka(servers=kafka.bootstrap, topic=topic, **({"schema": SCHEMA} | more))


def pieces(made: Kafka, start: Any, end: Any, parallel: int = 1) -> list[tuple[str, Piece]]:
    """What executors read: copies that came by pickle."""
    copy = pickle.loads(pickle.dumps(made))
    splits = made.splits(start, end, parallel)
    return [(s.partition, piece) for s in splits for piece in copy.read(s, None, None)]


def read_all(made: Kafka, parallel: int = 1) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Batch after batch to the end; also checks that places only grow."""
    position = made.start()
    events, bad, next_place = [], [], dict[str, int]()
    while (end := made.latest(position)) != position:
        for partition, piece in pieces(made, position, end, parallel):
            events.append(piece.events)
            bad += piece.bad.to_pylist() if piece.bad else []
            assert piece.bad is None or piece.bad.schema == BAD
            assert piece.arrival is not None and piece.arrival >= next_place.get(partition, 0)
            next_place[partition] = piece.arrival + piece.events.num_rows
            top = end[partition] * made._spread()
            assert next_place[partition] <= top
        position = end
    made.close()
    return pa.concat_tables([made.event_schema().empty_table(), *events]), bad


@pytest.fixture(autouse=True)
def _no_idle_consumers() -> Iterator[None]:
    yield
    kafka_client.close_idle()


@pytest.mark.parametrize("parallel", [1, 7])
@pytest.mark.parametrize("most", [5_000_000, 12_345])
def test_every_offset_is_read_once(kafka: servers.Kafka, parallel: int, most: int) -> None:
    topic = new_topic(kafka, 3)
    produce(kafka, topic, numbers(0, 45_000), 0)
    produce(kafka, topic, numbers(45_000, 5), 2)
    table, bad = read_all(source(kafka, topic, max_per_batch=most), parallel)
    assert sorted(table["n"].to_pylist()) == list(range(45_005)) and bad == []
    assert table["s"][44_999].as_py() == f"é{table['n'][44_999]}"


def test_splits_are_cut_by_offsets(kafka: servers.Kafka) -> None:
    made = source(kafka, "t")
    splits = made.splits({"t/0": 5, "t/1": 7, "t/2": 9}, {"t/0": 40_005, "t/1": 8, "t/2": 9}, 4)
    shown = [(s.partition, s.arrival, s.body.start, s.body.end, s.weight) for s in splits]
    quarters = [("t/0", 5 + i * 10_000, 5 + i * 10_000, 10_005 + i * 10_000) for i in range(4)]
    assert shown == [*((*quarter, 10_000) for quarter in quarters), ("t/1", 7, 7, 8, 1)]


def test_a_batch_is_shared_out_fairly() -> None:
    assert shares({}, 5) == {}
    assert shares({"a": 0, "b": 3}, 5) == {"a": 0, "b": 3}
    assert sum(shares({"a": 9, "b": 9, "c": 9}, 10).values()) == 10


def test_bad_payloads_are_set_aside_with_their_bytes(kafka: servers.Kafka) -> None:
    topic = new_topic(kafka)
    wrong = [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"n": 1',
        b'{"n": "1"}',
        b'{"n": 1.5}',
        b'{"n": true}',
        b'{"n": 9223372036854775808}',
        b'{"n": 1}{"n": 2}',
        b'{"n": 1}null{}',
        b'{"s": "\xff"}',
        b'{"s": "\\ud800"}',
        b'{"s": 1}',
        b'{"n": 1, "n": 2}',
        b'{"s": "}',
        b'{","s": ""}',
    ]
    good: list[bytes | None] = [
        b'{"n":\n 1\n}',
        b" {} ",
        b'{"x": {"n": 5}, "n": null}',
        b'{"n": -0}',
    ]
    mixed = [p for pair in zip(wrong, good * 5, strict=False) for p in pair]
    produce(kafka, topic, [*mixed, None])
    table, bad = read_all(source(kafka, topic))
    assert table["n"].to_pylist() == ([1, None, None, 0] * 5)[: len(wrong)]
    assert [row["body"] for row in bad] == [*wrong, b""]
    assert [row["place"] for row in bad] == [*range(0, 2 * len(wrong), 2), 2 * len(wrong)]
    assert {row["origin"] for row in bad} == {f"{topic}/0"}
    assert all(row["reason"] for row in bad) and "no payload" in bad[-1]["reason"]


def test_times_are_iso_texts(kafka: servers.Kafka) -> None:
    topic = new_topic(kafka)
    texts = ["2026-01-01T00:00:00Z", "2026-01-01 02:00:00+02:00", "2026-01-01T00:00:00.000000999"]
    produce(kafka, topic, [json.dumps({"ts": t}).encode() for t in [*texts, "soon", 5, None]])
    table, bad = read_all(source(kafka, topic, schema={"ts": "timestamp"}))
    moments = table["ts"].cast(pa.int64()).to_pylist()
    assert moments == [1_767_225_600_000_000] * 3 + [None]
    assert [row["place"] for row in bad] == [3, 4] and "ts" in bad[0]["reason"]


def transact(kafka: servers.Kafka, topic: str, *parts: tuple[list[bytes | None], bool]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": str(uuid4())})
    producer.init_transactions(PATIENCE)
    end = 0
    for values, commit in parts:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        producer.flush(PATIENCE)
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE)
        end += len(values) + 1
    wait_until_ended(kafka, topic, end)


def wait_until_ended(kafka: servers.Kafka, topic: str, end: int) -> None:
    """The broker marks the end of a transaction in a partition after it has told the producer."""
    made = source(kafka, topic)
    wait_for(lambda: made.latest(made.start())[f"{topic}/0"] >= end)
    made.close()


@pytest.mark.parametrize("last", [True, False])
def test_holes_of_transactions_are_passed_over(kafka: servers.Kafka, last: bool) -> None:
    topic = new_topic(kafka)
    parts = [(numbers(0, 5), True), (numbers(100, 5), False), (numbers(5, 5), last)]
    transact(kafka, topic, *parts)
    made = source(kafka, topic, timeout="60s", max_per_batch=4)
    began = time.monotonic()
    table, bad = read_all(made)
    assert table["n"].to_pylist() == list(range(10 if last else 5)) and bad == []
    assert time.monotonic() - began < 60


def test_an_open_transaction_is_waited_for(kafka: servers.Kafka) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, numbers(0, 3))
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": str(uuid4())})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce(topic, numbers(3, 1)[0], partition=0)
    producer.flush(PATIENCE)
    made = source(kafka, topic)
    assert made.latest(made.start()) == {f"{topic}/0": 3}
    producer.commit_transaction(PATIENCE)
    wait_until_ended(kafka, topic, 5)
    assert read_all(made)[0]["n"].to_pylist() == [0, 1, 2, 3]


def delete_before(kafka: servers.Kafka, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    done(admin.delete_records([TopicPartition(topic, 0, offset)]))


def test_lost_offsets_are_an_error_or_a_bad_row(kafka: servers.Kafka) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, numbers(0, 10))
    strict, lenient = source(kafka, topic), source(kafka, topic, on_lost="skip", max_per_batch=5)
    position = strict.start()
    end = strict.latest(position)
    delete_before(kafka, topic, 4)
    with pytest.raises(SourceError, match=r"4 offsets are gone .*from 0.*on_lost: skip"):
        strict.latest(position)
    with pytest.raises(SourceError, match="4 offsets are gone"):  # removed after it was planned
        pieces(strict, position, end)
    end = lenient.latest(position)
    assert end == {f"{topic}/0": 9}
    made = [piece for _, piece in pieces(lenient, position, end)]
    assert pa.concat_tables(p.events for p in made)["n"].to_pylist() == [4, 5, 6, 7, 8]
    bad = [row for p in made if p.bad for row in p.bad.to_pylist()]
    assert [(row["place"], row["reason"][:18]) for row in bad] == [(0, "4 offsets are gone")]
    strict.close(), lenient.close()


def test_a_topic_made_anew_is_an_error(kafka: servers.Kafka) -> None:
    topic = new_topic(kafka)
    made = source(kafka, topic)
    with pytest.raises(SourceError, match=r"ends before the offset .*new checkpoint"):
        made.latest({f"{topic}/0": 7})
    made.close()


def test_a_new_partition_is_read_from_its_beginning(kafka: servers.Kafka) -> None:
    topic = new_topic(kafka)
    made = source(kafka, topic, start="latest")
    position = made.start()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    done(admin.create_partitions([NewPartitions(topic, 2)]))
    wait_until_known(admin, topic, 2)
    produce(kafka, topic, numbers(0, 3), 1)
    bound = made.bound(position)
    seen = []
    while (end := made.latest(position, bound)) != position:
        seen += [n for _, p in pieces(made, position, end) for n in p.events["n"].to_pylist()]
        position = end
    assert seen == [0, 1, 2] and position == bound == {f"{topic}/0": 0, f"{topic}/1": 3}
    assert made.partitions(position) == [f"{topic}/0", f"{topic}/1"]
    made.close()


def test_it_begins_where_it_is_told(kafka: servers.Kafka) -> None:
    topic, other = new_topic(kafka), new_topic(kafka)
    produce(kafka, topic, numbers(0, 3))
    produce(kafka, other, numbers(0, 2))
    newest = source(kafka, (topic, other), start="latest")
    assert newest.start() == {f"{topic}/0": 3, f"{other}/0": 2}
    # A topic added to a running job begins as in a new job.
    assert newest.latest({f"{topic}/0": 3}) == newest.start()
    assert newest.latest({f"{topic}/0": 3}, bound={f"{topic}/0": 3}) == {f"{topic}/0": 3}
    newest.close()


@pytest.mark.parametrize("down", [servers.Kafka.stop, servers.Kafka.kill])
def test_a_broker_that_comes_back_goes_on(
    kafka: servers.Kafka, down: Callable[[servers.Kafka], None]
) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, numbers(0, 60_000))
    made = source(kafka, topic, timeout=f"{PATIENCE:.0f}s")
    start = made.start()
    (split,) = made.splits(start, made.latest(start), 1)
    reading = made.read(split, ["n"], None)
    seen = next(reading).events["n"].to_pylist()
    down(kafka)
    back = threading.Timer(1.0, kafka.start)
    back.start()
    for piece in reading:
        seen += piece.events["n"].to_pylist()
    assert seen == list(range(60_000))
    back.join(PATIENCE)
    assert made.latest(start) == {f"{topic}/0": 60_000}  # the planner's connection too
    made.close()


def test_a_broker_that_stays_away_is_an_error(kafka: servers.Kafka) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, numbers(0, 3))
    made, hasty = source(kafka, topic), source(kafka, topic, timeout="5s")
    start = made.start()
    splits = made.splits(start, made.latest(start), 1)
    kafka.stop()
    try:
        with pytest.raises(SourceError, match="gave nothing at offset 0 for 5 s"):
            list(hasty.read(splits[0], None, None))
        with pytest.raises(SourceError, match="Kafka does not answer"):
            hasty.latest(start)
    finally:
        kafka.start()
    assert [p.events.num_rows for p in made.read(splits[0], None, None)] == [3]
    made.close(), hasty.close()


def test_avro_framed_and_plain(kafka: servers.Kafka) -> None:
    stamp = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [{"name": "ts", "type": stamp}, {"name": "v", "type": ["null", "double"]}]
    avro = {"type": "record", "name": "event", "fields": fields}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, avro, {"ts": 1_000, "v": 2.5})
    record = out.getvalue()
    for framed, prefix in ((False, b""), (True, b"\0\0\0\0\x07")):
        topic = new_topic(kafka)
        wrong = [record[:3], prefix + record + b"x", b"\1" * 4]
        produce(kafka, topic, [prefix + record, *wrong, None, prefix + record])
        settings = {"format": "avro", "avro": json.dumps(avro), "framed": framed, "schema": None}
        table, bad = read_all(source(kafka, topic, **settings))
        assert table["ts"].cast(pa.int64()).to_pylist() == [1_000_000] * 2
        assert table["v"].to_pylist() == [2.5, 2.5]
        assert [row["body"] for row in bad] == [*wrong, b""]


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_arrow_streams_hold_many_events(kafka: servers.Kafka) -> None:
    topic = new_topic(kafka)
    first = stream(pa.table({"n": range(1000), "s": pa.array(["a"] * 1000).dictionary_encode()}))
    produce(
        kafka, topic, [first, b"junk", stream(pa.table({"n": [7]})), stream(pa.table({"n": ["x"]}))]
    )
    found, bad = read_all(source(kafka, topic, format="arrow", schema=None))
    assert found["n"].to_pylist() == [*range(1000), 7] and found["s"][1000].as_py() is None
    assert [row["place"] for row in bad] == [1, 3]
    told, _ = read_all(source(kafka, topic, format="arrow", schema={"n": "double"}))
    assert told["n"].type == pa.float64() and told.num_rows == 1001


def test_only_the_columns_asked_for(kafka: servers.Kafka) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, [b'{"n": 1, "s": 5}', b'{"n": "x"}'])
    made = source(kafka, topic)
    (split,) = made.splits({f"{topic}/0": 0}, {f"{topic}/0": 2}, 1)
    (piece,) = made.read(split, ["n"], None)
    assert piece.events.to_pydict() == {"n": [1]}
    (piece,) = made.read(split, [], None)
    assert (piece.events.num_rows, piece.events.num_columns) == (1, 0)
    with pytest.raises(SourceError, match="no such column"):
        list(made.read(split, ["m"], None))


def test_consumers_are_kept_and_none_is_shared(kafka: servers.Kafka) -> None:
    topic = new_topic(kafka)
    produce(kafka, topic, numbers(0, 30))
    made = source(kafka, topic)
    splits = [made.splits({f"{topic}/0": n}, {f"{topic}/0": n + 10}, 1)[0] for n in (20, 0, 10)]
    both = [made.read(split, ["n"], None) for split in splits]
    firsts = [next(reading).events["n"].to_pylist() for reading in both]  # all at once
    assert firsts == [[*range(n, n + 10)] for n in (20, 0, 10)]
    assert [list(reading) for reading in both] == [[], [], []]
    assert sum(map(len, kafka_client._idle.values())) == 3
    took = []
    for split in splits * 5:
        began = time.monotonic()
        (piece,) = made.read(split, ["n"], None)
        took.append(time.monotonic() - began)
        assert piece.events["n"][0].as_py() == split.arrival
    assert min(took) < 0.3, "one that is kept gives at once what it is asked for"
    assert sum(map(len, kafka_client._idle.values())) == 3


def test_what_is_wrong_is_said(kafka: servers.Kafka) -> None:
    topic = new_topic(kafka)
    source(kafka, topic).check()
    with pytest.raises(SourceError, match=f"no such topic .*did you mean '{topic}'"):
        source(kafka, topic[:-1]).check()
    with pytest.raises(SourceError, match=r"refuses an option .*no\.such"):
        source(kafka, topic, options={"no.such": "1"}).check()
    with pytest.raises(SourceError, match="no message yet that tells its columns"):
        source(kafka, topic, format="arrow", schema=None).check()
    listed = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g"}).list_topics()
    assert topic[:-1] not in listed.topics  # asking did not make it


def test_a_topic_that_is_being_made_is_waited_for(kafka: servers.Kafka) -> None:
    topic = f"t-{uuid4()}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    made = [NewTopic(topic, 1, 1)]
    making = threading.Timer(1.0, lambda: done(admin.create_topics(made)))
    making.start()
    source(kafka, topic).check()
    making.join()


def test_an_unknown_topic_among_many_is_said_in_few_words() -> None:
    many = {f"t{number}": None for number in range(300)} | {"__offsets": None}
    found = kafka_client.no_topic("orders", many)
    assert str(found) == (
        "no such topic (given: orders); the server has 300 topics, none of a similar name"
    )
    assert "known: a, b" in str(kafka_client.no_topic("orders", {"b": None, "a": None}))


def test_a_server_that_is_not_there_is_said() -> None:
    made = Kafka(servers="127.0.0.1:1", topic="t", schema=SCHEMA, timeout="1s")
    with pytest.raises(SourceError, match=r"Kafka does not answer \(given: 127.0.0.1:1\)"):
        made.check()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, "the format json needs a schema"),
        ({"schema": {"n": "nubmer"}}, "no such type of column"),
        ({"format": "avro"}, "the format avro needs the schema"),
        ({"format": "avro", "avro": '{"type": "rec"}'}, "not an Avro schema"),
        ({"format": "avro", "avro": "/no/such.avsc"}, "the Avro schema cannot be read"),
        ({"schema": SCHEMA, "framed": True}, "are for the format avro"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], error: str) -> None:
    with pytest.raises(SourceError, match=error):
        Kafka(servers="h:1", topic="t", **options)


@pytest.mark.parametrize(
    "options", [{"timeout": "soon"}, {"timeout": "-5s"}, {"max_per_batch": 0}, {"start": "now"}]
)
def test_values_that_are_none(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Kafka(servers="h:1", topic="t", schema=SCHEMA, **options)
