"""Notes of tests: JSON objects where the code has records, to say also what no record can."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from catchment import transport
from catchment.model import records
from catchment.nodes.node_service import NodeService
from catchment.transport import Security


def note(given: Mapping[str, Any]) -> bytes:
    return json.dumps(given, separators=(",", ":"), ensure_ascii=False).encode(
        errors="surrogatepass"
    )


def read(given: bytes) -> dict[str, Any]:
    return records.decode(dict[str, Any], given, "a note", records.refused)


def ask(
    address: str,
    what: str,
    body: Mapping[str, Any],
    security: Security | None = None,
    timeout: float = 10.0,
) -> dict[str, Any]:
    """The answer of the node at an address."""
    return read(transport.ask(address, note({"what": what, **body}), security, timeout))


def answer(service: NodeService, what: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a node in this process."""
    return read(service.ask(note({"what": what, **body})))
