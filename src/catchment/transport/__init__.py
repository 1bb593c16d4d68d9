"""Links between the nodes of a tree, over Arrow Flight.

A node opens one `Link` to the `Server` of its parent: a stream on which messages and heartbeats go
up, acknowledgements and pushes come down. Commands `ask` a node single questions.
"""

from catchment.transport.certificates import SecurityError
from catchment.transport.link import Link, ask
from catchment.transport.security import ADMIN, Security
from catchment.transport.server import Handler, Server
from catchment.transport.wire import (
    LIMIT,
    OLDEST,
    PROTOCOL,
    AddressError,
    Refused,
    Unreachable,
    agree,
)

__all__ = [
    "ADMIN",
    "AddressError",
    "Handler",
    "LIMIT",
    "Link",
    "OLDEST",
    "PROTOCOL",
    "Refused",
    "Security",
    "SecurityError",
    "Server",
    "Unreachable",
    "agree",
    "ask",
]
