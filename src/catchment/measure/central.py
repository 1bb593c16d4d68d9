"""Sending all events to one place instead: what that costs on the wire."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from catchment.errors import CatchmentError, RefusedError
from catchment.generator import Generator
from catchment.measure.bed import Traffic
from catchment.measure.ports import HOST
from catchment.measure.proxy import Proxy
from catchment.transport import ParentLink, Server
from catchment.tree.words import Beat, Hello, Reply, said

NEEDED = ("ts", "player", "v")
"""The columns that the queries of the suite use."""
BATCH = 100_000
_HEAD = struct.Struct(">4sII")


class Collector:
    """A parent that takes everything, and says so as nodes do."""

    def __init__(self) -> None:
        self.messages = self.beats = 0

    def hello(self, node: str, note: bytes) -> bytes:
        return said(Reply(ack=0, again=True))

    def message(self, node: str, body: bytes) -> bytes:
        self.messages += 1
        return said(Reply(self.messages, self.messages))

    def beat(self, node: str, note: bytes) -> bytes:
        self.beats += 1
        return said(Reply(self.messages, self.messages))

    def ask(self, question: bytes) -> bytes:
        raise RefusedError("a collector answers no questions")


class CollectorLink:
    """A link to a collector through a proxy."""

    def __init__(self) -> None:
        self.collector = Collector()
        self.server = Server(f"{HOST}:0", self.collector)
        self.server.start()
        self.proxy = Proxy((HOST, self.server.port))
        self._answers = 0
        self.link = ParentLink(self.proxy.address, "e1", lambda: said(Hello("e1")), self._heard)
        self.link.open()

    def _heard(self, _: bytes) -> None:
        self._answers += 1

    def cost(self, bodies: Iterable[bytes], beats: int = 0) -> Traffic:
        """The bytes that messages and beats take, their answers with them."""
        up, down, wanted = self.proxy.up, self.proxy.down, self._answers
        for body in bodies:
            self.link.send(body)
            wanted += 1
        for _ in range(beats):
            self.link.beat(said(Beat(life=1, charter=2)))
            wanted += 1
            # Beats come one by one, a second apart: they must not share a frame here either.
            self._wait(wanted)
        self._wait(wanted)
        time.sleep(0.05)  # what the line says of itself may come after the last answer
        return Traffic(self.proxy.up - up, self.proxy.down - down)

    def _wait(self, wanted: int) -> None:
        end = time.monotonic() + 60
        while self._answers < wanted:
            if time.monotonic() > end or self.link.closed:
                raise CatchmentError("no answer came", given=f"{self._answers} of {wanted}")
            time.sleep(0.001)

    def close(self) -> None:
        self.link.close()
        self.proxy.close()
        self.server.stop()


def encoded(events: pa.RecordBatch) -> bytes:
    """Events as a message has partials: one record batch without its schema, zstd, a checksum."""
    rest = events.serialize().to_pybytes()
    packed = pa.Codec("zstd").compress(rest, asbytes=True)
    whole = struct.pack(">I", len(rest)) + packed
    return _HEAD.pack(b"CTE1", zlib.crc32(whole), events.num_rows) + whole


@dataclass(frozen=True)
class Central:
    """The bytes that an event takes where events are sent instead of partials."""

    per_event: float
    events: int
    """That it was measured on."""

    @property
    def detail(self) -> str:
        return (
            f"central sends {', '.join(NEEDED)} in Arrow record batches of {BATCH:,}, zstd: "
            f"{self.per_event:.2f} bytes an event, measured on {self.events:,}"
        )


def central(generator: Generator, events: int) -> Central:
    """Really sends events through a link, and counts."""
    bodies = (encoded(batch.select([*NEEDED])) for batch in generator.batches(BATCH, events))
    line = CollectorLink()
    try:
        return Central(line.cost(bodies).both / events, events)
    finally:
        line.close()
