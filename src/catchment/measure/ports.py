"""Ports of loopback to listen on."""

from __future__ import annotations

import contextlib
import socket
from random import SystemRandom

from catchment.errors import CatchmentError

HOST = "127.0.0.1"
# Below what Linux hands out to clients. Otherwise, while a server is down, another connection may
# be given its port, and a client that keeps trying to connect may even reach itself.
_PORTS = (20_000, 32_000)


def free_port() -> int:
    """A port of loopback that nothing listens on.

    Two processes must not draw the same one, so the seed of a test run has no say in it.
    """
    chance = SystemRandom()
    for _ in range(100):
        port = chance.randrange(*_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port
    raise CatchmentError("no free port was found", given=f"{_PORTS[0]} to {_PORTS[1]}")
