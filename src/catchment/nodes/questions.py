"""What commands ask of a node, and what it answers, as typed records.

A question says in `what` which one it is. The answer to `AskStatus` is a `NodeStatus`, that to
`AskQueries` a `QueryList`, and to all that change the tree a `TreeChange`.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct

from catchment.model import records
from catchment.model.node_id import NodeId
from catchment.model.query import QueryRecord
from catchment.transport import Security
from catchment.transport import ask as put
from catchment.tree.words import Name

_T = TypeVar("_T")


class AskStatus(Struct, frozen=True, tag_field="what", tag="status"):
    """How does the node stand?"""


class AskQueries(Struct, frozen=True, tag_field="what", tag="queries"):
    """Which queries run?"""


class AddQueries(Struct, frozen=True, tag_field="what", tag="add query"):
    """Adds queries."""

    queries: tuple[QueryRecord, ...]


class RemoveQueries(Struct, frozen=True, tag_field="what", tag="remove query"):
    """Lets queries go; with `drain`, once their windows have ended."""

    names: tuple[str, ...]
    drain: bool = False


class AddNode(Struct, frozen=True, tag_field="what", tag="add node"):
    """Lets a node join."""

    id: Name
    parent: NodeId
    listen: Name | None = None
    reads: bool | None = None
    """Whether it reads events; by default if it has no address for children."""


class MoveNode(Struct, frozen=True, tag_field="what", tag="move node"):
    """Lets a node go on under another parent."""

    id: NodeId
    parent: NodeId


class RemoveNode(Struct, frozen=True, tag_field="what", tag="remove node"):
    """Lets a node go."""

    id: NodeId


Question = AskStatus | AskQueries | AddQueries | RemoveQueries | AddNode | MoveNode | RemoveNode
QUESTION: Any = Question
"""The same for the codec: a union is no type to mypy."""


class QueryList(Struct, frozen=True):
    """The queries that run, and those of them that are leaving."""

    queries: tuple[QueryRecord, ...]
    versions: dict[str, int]
    """Of their definitions, by name."""
    leaving: tuple[str, ...]


class TreeChange(Struct, frozen=True, omit_defaults=True):
    """Names of queries or ids of nodes, by what was done with them."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    versions: dict[str, int] = {}
    """Of the definitions of queries that were added."""


def ask(
    address: str,
    question: Question,
    kind: type[_T],
    security: Security | None = None,
    timeout: float = 10.0,
) -> _T:
    """The answer of a node to a question, which is a record of a kind."""
    answer = put(address, records.encode(question), security, timeout)
    return records.decode(kind, answer, f"the answer of {address}")
