"""Links between the nodes of a tree, over Arrow Flight.

A node opens one `Link` to the `Server` of its parent: a stream on which messages and heartbeats go
up, acknowledgements and pushes come down. Commands `ask` a node single questions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from catchment.transport.certificates import SecurityError
    from catchment.transport.link import Link, ask
    from catchment.transport.security import ADMIN, Security
    from catchment.transport.server import Handler, Server
    from catchment.transport.wire import (
        LIMIT,
        OLDEST,
        PROTOCOL,
        AddressError,
        UnreachableError,
        agree,
    )

_HOMES = {
    "certificates": "SecurityError",
    "link": "Link ask",
    "security": "ADMIN Security",
    "server": "Handler Server",
    "wire": "LIMIT OLDEST PROTOCOL AddressError UnreachableError agree",
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "ADMIN", "AddressError", "Handler", "LIMIT", "Link", "OLDEST", "PROTOCOL",
    "Security", "SecurityError", "Server", "UnreachableError", "agree", "ask",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Loads what is asked for: Flight must not be loaded in a process that forks."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
