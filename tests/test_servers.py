"""The servers that tests run against really answer, and come back with what they held."""

from __future__ import annotations

import queue
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, Producer
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from catchment.errors import CatchmentError
from patience import PATIENCE, wait_for
from servers import Kafka, Mosquitto, Postgres, missing
from servers.daemon import Daemon, ServerError


def produce(kafka: Kafka, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE) == 0


def consume(kafka: Kafka, topic: str, count: int) -> list[bytes | None]:
    """What a new group reads, once it has `count` committed messages or its patience ends."""
    settings = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": str(uuid4()),
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        got: list[bytes | None] = []
        end = time.monotonic() + PATIENCE
        while len(got) < count and time.monotonic() < end:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                got.append(message.value())
        return got
    finally:
        consumer.close()


def test_kafka_gives_back_a_message(kafka: Kafka) -> None:
    topic = f"plain-{uuid4()}"
    produce(kafka, topic, b"one")
    assert consume(kafka, topic, 1) == [b"one"]


def test_kafka_shows_only_what_a_transaction_committed(kafka: Kafka) -> None:
    topic = f"transactions-{uuid4()}"
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.flush(PATIENCE)
    producer.abort_transaction(PATIENCE)
    producer.begin_transaction()
    producer.produce(topic, b"committed")
    producer.commit_transaction(PATIENCE)
    assert consume(kafka, topic, 1) == [b"committed"]


@pytest.mark.parametrize("down", [Kafka.stop, Kafka.kill])
def test_kafka_comes_back_with_its_messages(kafka: Kafka, down: Callable[[Kafka], None]) -> None:
    topic = f"kept-{uuid4()}"
    produce(kafka, topic, b"before")
    down(kafka)
    kafka.start()
    produce(kafka, topic, b"after")
    assert consume(kafka, topic, 2) == [b"before", b"after"]


def test_postgres_selects_and_upserts(postgres: Postgres) -> None:
    with psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        connection.execute("CREATE TEMPORARY TABLE kept (k text PRIMARY KEY, v int)")
        upsert = "INSERT INTO kept VALUES ('a', %s) ON CONFLICT (k) DO UPDATE SET v = excluded.v"
        connection.execute(upsert, [1])
        connection.execute(upsert, [2])
        assert connection.execute("SELECT * FROM kept").fetchall() == [("a", 2)]


@pytest.mark.parametrize("down", [Postgres.stop, Postgres.kill])
def test_postgres_comes_back_with_its_rows(
    postgres: Postgres, down: Callable[[Postgres], None]
) -> None:
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (v int)")
        connection.execute("TRUNCATE kept")
        connection.execute("INSERT INTO kept VALUES (7)")
    with psycopg.connect(postgres.dsn):  # a client that stays is in nobody's way
        down(postgres)
    postgres.start()
    with psycopg.connect(postgres.dsn) as connection:
        assert connection.execute("SELECT v FROM kept").fetchall() == [(7,)]


@contextmanager
def connected(mosquitto: Mosquitto, name: str = "") -> Iterator[tuple[Client, queue.Queue[bytes]]]:
    """A client, and what arrives for it. One with a name has a session that outlives it."""
    client = Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=not name)
    arrived: queue.Queue[bytes] = queue.Queue()

    def keep(_client: Client, _data: object, message: MQTTMessage) -> None:
        arrived.put(message.payload)

    client.on_message = keep
    client.connect(mosquitto.host, mosquitto.port)
    client.loop_start()
    try:
        yield client, arrived
    finally:
        client.disconnect()
        client.loop_stop()


def subscribe(client: Client, topic: str) -> None:
    """Subscribes and waits until the server has it."""
    granted: queue.Queue[bool] = queue.Queue()
    client.on_subscribe = lambda *_: granted.put(True)
    client.subscribe(topic, qos=1)
    assert granted.get(timeout=PATIENCE)


def hands_on(mosquitto: Mosquitto) -> bool:
    topic = f"plain/{uuid4()}"
    with connected(mosquitto) as (client, arrived):
        subscribe(client, topic)
        client.publish(topic, b"one", qos=1).wait_for_publish(PATIENCE)
        return arrived.get(timeout=PATIENCE) == b"one"


def test_mosquitto_hands_on_what_is_published(mosquitto: Mosquitto) -> None:
    assert hands_on(mosquitto)


def test_mosquitto_comes_back_with_what_was_not_yet_fetched(mosquitto: Mosquitto) -> None:
    name, topic = uuid4().hex, f"kept/{uuid4()}"
    with connected(mosquitto, name) as (client, _):
        subscribe(client, topic)
    with connected(mosquitto) as (client, _):
        client.publish(topic, b"waiting", qos=1).wait_for_publish(PATIENCE)
    mosquitto.stop()
    mosquitto.start()
    with connected(mosquitto, name) as (_, arrived):
        assert arrived.get(timeout=PATIENCE) == b"waiting"


def test_mosquitto_comes_back_after_a_kill(mosquitto: Mosquitto) -> None:
    mosquitto.kill()
    mosquitto.start()
    assert hands_on(mosquitto)


def test_an_unknown_server_is_named() -> None:
    with pytest.raises(CatchmentError, match=r"no such server \(given: kafak\); did you mean"):
        missing("kafak")


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo no room left; exit 3"]
    daemon = Daemon("It", command, tmp_path / "log", answers=lambda: False)
    with pytest.raises(ServerError, match=r"It ended with 3; the end of .*log:\n  no room left"):
        daemon.start()


ORPHAN = """
import os, sys
from pathlib import Path
from servers.daemon import Daemon
command = ["sh", "-c", "echo $$; exec sleep 600"]
log = Path(sys.argv[1])
Daemon("It", command, log, answers=lambda: log.read_text().endswith("\\n")).start()
os._exit(0)
"""


def test_a_server_does_not_outlive_its_parent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    subprocess.run(
        [sys.executable, "-c", ORPHAN, str(log)],
        cwd=Path(__file__).parent,
        check=True,
        timeout=PATIENCE,
    )
    wait_for(lambda: not alive(int(log.read_text())))


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # it has gone, maybe just now
        return False
