"""Links between the nodes of a tree: frames over TCP, with TLS where there are certificates.

A node opens one `ParentLink` to the `Server` of its parent: a connection on which messages and
heartbeats go up, acknowledgements and pushes come down. Commands `ask` a node single questions.
`Limits` says what peers may cost, before and after they are known.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from catchment.serving.addresses import AddressError
    from catchment.serving.certificates import SecurityError
    from catchment.transport.limits import Limits
    from catchment.transport.link import ParentLink, ask
    from catchment.transport.security import ADMIN, Security, check_listening
    from catchment.transport.server import Handler, Server
    from catchment.transport.wire import (
        LIMIT,
        OLDEST,
        PROTOCOL,
        PeerUnreachableError,
        agree,
    )

_HOMES = {
    "limits": "Limits",
    "link": "ParentLink ask",
    "security": "ADMIN Security SecurityError check_listening",
    "server": "AddressError Handler Server",
    "wire": "LIMIT OLDEST PROTOCOL PeerUnreachableError agree",
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "ADMIN",
    "AddressError",
    "Handler",
    "LIMIT",
    "Limits",
    "OLDEST",
    "PROTOCOL",
    "ParentLink",
    "PeerUnreachableError",
    "Security",
    "SecurityError",
    "Server",
    "agree",
    "ask",
    "check_listening",
]


def __getattr__(name: str) -> Any:
    """Loads what is asked for: a command that only reads a job file needs no event loop."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
