"""Addresses to listen at, and whether others than this machine reach them."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

from catchment.errors import CatchmentError


class AddressError(CatchmentError, ValueError):
    """An address that cannot be one, or that cannot be listened at."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of an address.

    >>> split_address("localhost:7000"), split_address("[::1]:0")
    (('localhost', 7000), ('[::1]', 0))
    """
    host, _, port = address.rpartition(":")
    bare = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not host or bare or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise AddressError(
            "an address is a host and a port", given=repr(address), hint='such as "localhost:7000"'
        )
    return host, int(port)


Endpoint = tuple[socket.AddressFamily, tuple[Any, ...]]
"""A family of addresses and an address of it, as sockets take them."""


def resolved(listen: str) -> list[Endpoint]:
    """The addresses to listen at; raises OSError where the name is not known."""
    host, port = split_address(listen)
    found = socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    return list(dict.fromkeys((family, where) for family, _, _, _, where in found))


def loopback(endpoint: Endpoint) -> bool:
    """Whether nothing outside this machine reaches an address.

    >>> loopback((socket.AF_INET, ("127.5.0.1", 0))), loopback((socket.AF_INET6, ("::", 0, 0, 0)))
    (True, False)
    """
    address = ipaddress.ip_address(str(endpoint[1][0]).partition("%")[0])
    inner = getattr(address, "ipv4_mapped", None)
    return bool((inner or address).is_loopback)
