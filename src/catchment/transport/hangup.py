"""Ends connections of peers that do not let go: Flight has no way to."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable

OPEN_FILES = "/dev/fd"
"""Where the system lists the open files of a process."""


def hang_up(port: int, peers: Iterable[str]) -> None:
    """Shuts the connections that were accepted at a port from peers, as Flight names these."""
    theirs = {peer.rpartition(":")[2] for peer in peers}
    with contextlib.suppress(OSError):
        for name in os.listdir(OPEN_FILES):
            with contextlib.suppress(OSError):
                _shut(int(name), port, theirs)


def _shut(number: int, port: int, theirs: set[str]) -> None:
    with socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as connection:
        here, there = connection.getsockname(), connection.getpeername()
        # Addresses of other kinds of sockets are texts.
        if isinstance(here, tuple) and here[1] == port and str(there[1]) in theirs:
            connection.shutdown(socket.SHUT_RDWR)
