"""Talks to an MQTT broker: a thread that makes messages safe in a spool, then acknowledges them.

One thread does all, so that an acknowledgement never goes to another connection than its message
came from: there the same number may stand for another message.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from catchment.errors import SourceError, UnreachableError
from catchment.sources.spool import Spool

_log = logging.getLogger("catchment.mqtt")
_Properties: Any = Properties  # it has no types

_WINDOW = 2_000
"""The most messages the broker sends ahead of acknowledgements (MQTT 5)."""
_MANY, _LONG = 1_000, 0.05
"""Messages are made safe at the latest when they are so many or so old; earlier in a lull."""
_ANSWER = 10.0
_LONGEST_PAUSE = 5.0
_FAREWELL = 2.0


@dataclass(frozen=True)
class BrokerConnection:
    """How to reach the broker, and what to ask it for."""

    host: str
    port: int
    topics: tuple[str, ...]
    qos: int
    username: str | None
    password: str | None
    tls: bool
    keepalive: int
    version: int
    session: int
    """Seconds for which the broker keeps messages for a receiver that is away."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def client(self, name: str) -> Client:
        """A client that acknowledges nothing by itself."""
        new = self.version == 5
        client = Client(
            CallbackAPIVersion.VERSION2,
            name,
            None if new else False,
            protocol=MQTTProtocolVersion.MQTTv5 if new else MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        if self.username is not None:
            client.username_pw_set(self.username, self.password)
        if self.tls:
            client.tls_set()
        return client

    def connect(self, client: Client, session: int) -> None:
        if self.version != 5:
            client.connect(self.host, self.port, self.keepalive)
            return
        asked = _Properties(PacketTypes.CONNECT)
        asked.SessionExpiryInterval = session
        asked.ReceiveMaximum = _WINDOW
        client.connect(
            self.host, self.port, self.keepalive, clean_start=session == 0, properties=asked
        )

    def subscribe(self, client: Client) -> None:
        if self.version != 5:
            client.subscribe([(topic, self.qos) for topic in self.topics])
            return
        # Retained messages come with a new subscription, not again after each reconnection.
        once = SubscribeOptions(
            qos=self.qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
        )
        client.subscribe([(topic, once) for topic in self.topics])


def check(link: BrokerConnection) -> None:
    """Raises SourceError when the broker does not answer or does not let us in."""
    client = link.client(f"catchment-check-{uuid4().hex[:12]}")
    said: list[Any] = []
    client.on_connect = lambda *given: said.append(given[3])
    try:
        link.connect(client, session=0)
        end = time.monotonic() + _ANSWER
        while not said and time.monotonic() < end:
            if client.loop(0.1) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                break
    except (OSError, ValueError) as error:
        raise UnreachableError(
            "the MQTT broker cannot be reached", given=link.address, hint=str(error)
        ) from error
    client.disconnect()
    if not said or said[0].is_failure:
        hint = str(said[0]) if said else "it does not answer as an MQTT broker does"
        raise UnreachableError("the MQTT broker lets nobody in", given=link.address, hint=hint)


class Receiver(threading.Thread):
    """Receives messages until it is asked to stop. An error that ends it is in `failed`."""

    def __init__(self, link: BrokerConnection, name: str, spool: Spool, most: int) -> None:
        super().__init__(name="catchment-mqtt", daemon=True)
        self._link = link
        self._client_name = name
        self._spool = spool
        self._most = most
        self._stop_asked = threading.Event()
        self._waiting: list[MQTTMessage] = []
        self._since = 0.0
        self.receiving = False
        """Whether the broker has granted the subscription, and sends what is published."""
        self.failed: SourceError | None = None
        self.dropped = 0
        """Messages of quality 0 that came while the spool was full."""

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()

    def run(self) -> None:
        pause = 0.1
        try:
            while not self._stop_asked.is_set() and self.failed is None:
                why = self._session()
                pause = 0.1 if self.receiving else min(2 * pause, _LONGEST_PAUSE)
                if not self._stop_asked.is_set() and self.failed is None:
                    _log.warning("%s: %s; trying again", self._link.address, why)
                    self._stop_asked.wait(pause)
        except OSError as error:
            self.failed = SourceError(
                "messages cannot be kept in the spool", given=str(error), hint="is the disk full?"
            )

    def _session(self) -> str:
        """One connection, from its beginning to its end; why it ended."""
        client = self._link.client(self._client_name)
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_message = self._arrived
        self.receiving = False
        try:
            self._link.connect(client, self._link.session)
        except (OSError, ValueError) as error:
            return str(error)
        code = MQTTErrorCode.MQTT_ERR_SUCCESS
        while code == MQTTErrorCode.MQTT_ERR_SUCCESS and self.failed is None:
            before = len(self._waiting)
            code = client.loop(0 if before and not self._full() else _LONG)
            if self._stop_asked.is_set() or self._due(before):
                self._make_safe(client)
            if self._stop_asked.is_set():
                _leave(client)
                return "stopped"
        if not self._full():
            self._spool_waiting()  # they come again, but better twice than not at all
        self._waiting = []
        return code.name

    def _due(self, before: int) -> bool:
        """Whether to make safe what waits: in a lull, or when it is much or old."""
        waiting = len(self._waiting)
        if not waiting or self._full():
            return False
        old = time.monotonic() - self._since > _LONG
        return waiting == before or waiting >= _MANY or old

    def _full(self) -> bool:
        """Nothing is acknowledged then, and so the broker sends no more than its window."""
        return self._spool.size() >= self._most

    def _make_safe(self, client: Client) -> None:
        if self._full():
            return
        messages = self._spool_waiting()
        for message in messages:
            client.ack(message.mid, message.qos)

    def _spool_waiting(self) -> list[MQTTMessage]:
        messages, self._waiting = self._waiting, []
        for message in messages:
            self._spool.add(message._topic, bytes(message.payload))
        self._spool.sync()
        return messages

    def _arrived(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        if message.qos == 0 and self._full():
            self.dropped += 1
            return
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(message)

    def _connected(self, client: Client, _data: Any, _flags: Any, code: Any, _more: Any) -> None:
        if code.is_failure:
            _log.warning("%s refuses the connection: %s", self._link.address, code)
            if code.getName() in _FOR_GOOD:
                self.failed = SourceError(
                    "the MQTT broker lets us not in", given=self._link.address, hint=str(code)
                )
            return
        self._link.subscribe(client)

    def _subscribed(self, _client: Client, _data: Any, _mid: int, codes: Any, _more: Any) -> None:
        for topic, code in zip(self._link.topics, codes, strict=False):
            if code.is_failure:
                self.failed = SourceError(
                    "the MQTT broker refuses the subscription", given=topic, hint=str(code)
                )
        self.receiving = self.failed is None


def _leave(client: Client) -> None:
    """Ends the connection in order, after the last acknowledgements have gone out."""
    end = time.monotonic() + _FAREWELL
    while client.want_write() and time.monotonic() < end:
        if client.loop(_LONG) != MQTTErrorCode.MQTT_ERR_SUCCESS:
            return
    client.disconnect()


_FOR_GOOD = {
    "Bad user name or password",
    "Not authorized",
    "Client identifier not valid",
    "Banned",
    "Unsupported protocol version",
}
