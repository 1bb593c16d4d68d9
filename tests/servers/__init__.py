"""Real servers on loopback for tests: Kafka, PostgreSQL, Mosquitto, Prometheus.

`scripts/servers` brings them. Each context manager gives a running server that a test may stop,
kill and start again: it comes back on the same port with the same data. `missing` says why a server
cannot be had here.
"""

from catchment.errors import CatchmentError, did_you_mean
from servers import debian, kafka_broker
from servers.debian import (
    Mosquitto,
    Postgres,
    PrometheusServer,
    mosquitto,
    postgres,
    prometheus,
)
from servers.kafka_broker import Kafka, kafka

__all__ = [
    "Kafka",
    "Mosquitto",
    "Postgres",
    "PrometheusServer",
    "kafka",
    "missing",
    "mosquitto",
    "postgres",
    "prometheus",
]

_MISSING = {
    "kafka": kafka_broker.missing,
    "postgres": debian.missing_postgres,
    "mosquitto": debian.missing_mosquitto,
    "prometheus": debian.missing_prometheus,
}


def missing(name: str) -> str | None:
    """Why this server cannot be had here, in one line; None when it can."""
    if name not in _MISSING:
        raise CatchmentError("no such server", given=name, hint=did_you_mean(name, _MISSING))
    return _MISSING[name]()
