"""One Kafka broker that is its own controller (KRaft), from the jars in build/kafka."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from catchment.measure.ports import HOST, free_port
from servers.daemon import Daemon, Server, ask, run, running

JARS = Path(__file__).resolve().parents[2] / "build" / "kafka"
_NEEDED_JAVA = 17
_CLUSTER = "Y2F0Y2htZW50LXRlc3RzIQ"
# Serial collection and the first compiler only: a test broker lives for seconds, on few cores.
_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""

# Retention and the bound on future times are off because events of tests are of any time; the
# cleaner's buffer would by default take half the heap. A broker that was killed may register anew
# only when the session of its last life has run out, so that is short.
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
auto.create.topics.enable=true
num.partitions=1
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
log.retention.ms=-1
log.message.timestamp.after.max.ms=9223372036854775807
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=2
num.io.threads=4
"""


@dataclass(frozen=True)
class Kafka(Server):
    """A running broker."""

    @property
    def bootstrap(self) -> str:
        """What clients call bootstrap.servers."""
        return f"{self.host}:{self.port}"


def missing() -> str | None:
    """Why there can be no broker here; None when there can."""
    version = _java_version(_java())
    if version is None:
        return "no Kafka: it needs Java and none was found"
    if version < _NEEDED_JAVA:
        return f"no Kafka: it needs Java {_NEEDED_JAVA} and this is Java {version}"
    if not (JARS / ".ready").is_file():
        return f"no Kafka: its jars are not in {JARS} (scripts/servers fetches them)"
    return None


@contextmanager
def kafka(folder: Path) -> Iterator[Kafka]:
    """Runs a broker that keeps its data and its log, `kafka.log`, in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    port, log = free_port(), folder / "kafka.log"
    settings, logging = folder / "server.properties", folder / "log4j2.properties"
    logging.write_text(_LOGGING)
    settings.write_text(
        _SETTINGS.format(host=HOST, port=port, controller=free_port(), data=folder / "data")
    )
    java = [_java(), *_JVM, f"-Dlog4j2.configurationFile={logging}", "-cp", f"{JARS}/*"]
    storage = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings)]
    run([*java, *storage], log)
    command = [*java, "kafka.Kafka", str(settings)]
    daemon = Daemon("Kafka", command, log, lambda: _answers(port))
    with running(Kafka(HOST, port, daemon)) as server:
        yield server


def _answers(port: int) -> bool:
    """True when the broker lists itself: one that still waits for its controller lists none."""
    # Metadata, version 4: client "t", an empty list of topics, none to be made.
    body = struct.pack(">hhih", 3, 4, 1, 1) + b"t" + struct.pack(">ib", 0, 0)
    # Length, correlation, throttle, then the number of brokers.
    answer = ask(port, struct.pack(">i", len(body)) + body, 16)
    return len(answer) == 16 and struct.unpack(">4i", answer)[3] > 0


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"


@lru_cache
def _java_version(java: str) -> int | None:
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=240
        ).stderr
    except OSError:
        return None
    # "17.0.15" is Java 17; "1.8.0_412" is Java 8.
    found = re.search(r' version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None
