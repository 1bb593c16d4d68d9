"""From a real Kafka through Spark to PostgreSQL and Kafka: each result once, bad messages aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import catchment as ct
import servers
from catchment.generator import Generator
from catchment.sinks.kafka import KafkaSink
from catchment.sinks.postgres import PostgresSink
from catchment.sources.kafka import Kafka
from patience import PATIENCE

pytestmark = pytest.mark.spark

EVENTS = Generator(seed=2, keys=4, rate=50).table(2_000)
QUERY = ct.Query("five", ct.count().alias("n"), by="player", window=ct.tumbling("5s"))


def send(server: servers.Kafka, topic: str, start: int, stop: int, broken: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server.bootstrap})
    for row in EVENTS.slice(start, stop - start).to_pylist():
        text = json.dumps({"ts": row["ts"].isoformat(), "player": row["player"], "v": row["v"]})
        producer.produce(topic, text.encode(), partition=0)
        producer.poll(0)
    for number in range(broken):
        producer.produce(topic, f"{{not json {number}".encode(), partition=0)
    assert producer.flush(PATIENCE) == 0


def received(server: servers.Kafka, topic: str) -> list[dict[str, Any]]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    from kafka_ends import wait_until_settled

    options = {
        "bootstrap.servers": server.bootstrap,
        "group.id": "test",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    wait_until_settled(server, topic)
    consumer = Consumer(options)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    rows: list[dict[str, Any]] = []
    while (message := consumer.poll(PATIENCE)) is not None and message.error() is None:
        rows.append(json.loads(message.value()))
    consumer.close()
    return rows


def test_kafka_to_postgres_and_kafka(
    spark: SparkSession, kafka: servers.Kafka, postgres: servers.Postgres, tmp_path: Path
) -> None:
    import psycopg

    job = ct.Job(
        name="servers",
        queries=[QUERY],
        trigger="available-now",
        checkpoint=str(tmp_path),
        source=Kafka(
            servers=kafka.bootstrap,
            topic="events",
            schema={"ts": "timestamp", "player": "string", "v": "double"},
        ),
        sinks=[
            PostgresSink(dsn=postgres.dsn, prefix="e2e_"),
            KafkaSink(servers=kafka.bootstrap, topic="results"),
        ],
    )
    send(kafka, "events", 0, 900, broken=3)
    first = job.start(spark).wait()
    assert (first.events, first.accepted, first.bad) == (903, 900, 3)
    send(kafka, "events", 900, 2000, broken=0)
    last = job.start(spark).wait()
    assert (last.events, last.accepted, last.bad) == (2003, 2000, 3)
    aside = pq.read_table(tmp_path / "catchment/aside/unread").column("body").to_pylist()
    assert aside == [f"{{not json {number}".encode() for number in range(3)]

    engine = ct.Engine([QUERY])
    engine.push(EVENTS)
    newest = int(EVENTS.column("ts").cast("int64").to_numpy().max())
    wanted = sorted(
        (row["player"], row["window_start"], row["n"])
        for row in engine.advance(newest)["five"].to_pylist()
    )
    with psycopg.connect(postgres.dsn) as connection:
        found = connection.execute("SELECT player, window_start, n FROM e2e_five").fetchall()
    assert sorted(found) == wanted
    sent = sorted((row["player"], row["n"]) for row in received(kafka, "results"))
    assert sent == sorted((player, n) for player, _, n in wanted)
