"""Makes up events of three sites and puts them into Kafka, as fast as they would happen."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime

from confluent_kafka import Producer

from catchment.generator import Generator

RATE = 200
SITES = 3


def main() -> None:
    producer = Producer({"bootstrap.servers": os.environ.get("SERVERS", "kafka:9092")})
    streams = [Generator(seed=site, keys=5, rate=RATE) for site in range(SITES)]
    second = 0
    while True:
        began = time.monotonic()
        at = datetime.now(UTC)
        for site, made in enumerate(streams):
            rows = made.table(RATE, second * RATE).select(["player", "v"]).to_pylist()
            for row in rows:
                event = {"ts": at.isoformat(), **row}
                producer.produce(f"site-{site + 1}", json.dumps(event).encode())
        producer.flush()
        second += 1
        time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))


if __name__ == "__main__":
    main()
