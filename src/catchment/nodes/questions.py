"""What commands ask of a node, and what it answers, as typed records.

A question says in `what` which one it is. The answer to `AskStatus` is a `NodeStatus`, that to
`AskQueries` a `QueryList`, that to `AskPlan` a `PlanAnswer`, and to all that change the tree, or
would, a `TreeChange`.
"""

from __future__ import annotations

import os
import zlib
from typing import Any, TypeVar

from msgspec import Struct

from catchment.errors import JobError
from catchment.job import JobModel
from catchment.model import records
from catchment.model.node_id import NodeId
from catchment.model.query import QueryRecord
from catchment.planner.planned import Planned
from catchment.transport import Security
from catchment.transport import ask as put
from catchment.tree.words import Name

_T = TypeVar("_T")


class AskStatus(Struct, frozen=True, tag_field="what", tag="status"):
    """How does the node stand?"""


class AskQueries(Struct, frozen=True, tag_field="what", tag="queries"):
    """Which queries run?"""


class AskPlan(Struct, frozen=True, tag_field="what", tag="plan"):
    """By which version of the plan does the tree work?"""


class CheckQueries(Struct, frozen=True, tag_field="what", tag="check query"):
    """Could these queries be added? Nothing is changed."""

    queries: tuple[QueryRecord, ...]


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


class ReplaceNode(Struct, frozen=True, tag_field="what", tag="replace node"):
    """Lets a node go on in the place of one that is gone for good."""

    old: NodeId
    new: Name


Question = (
    AskStatus
    | AskQueries
    | AskPlan
    | CheckQueries
    | AddQueries
    | RemoveQueries
    | AddNode
    | MoveNode
    | RemoveNode
    | ReplaceNode
)
QUESTION: Any = Question
"""The same for the codec: a union is no type to mypy."""


class QueryList(Struct, frozen=True):
    """The queries that run, and those of them that are leaving."""

    queries: tuple[QueryRecord, ...]
    versions: dict[str, int]
    """The versions of their definitions, by name."""
    leaving: tuple[str, ...]


class PlanAnswer(Struct, frozen=True):
    """The newest version of the plan: an answer has room for tens of thousands of queries only if
    they are compressed."""

    packed: bytes

    @classmethod
    def of(cls, planned: Planned) -> PlanAnswer:
        return cls(zlib.compress(planned.to_bytes(), 1))

    def planned(self) -> Planned:
        return Planned.from_bytes(zlib.decompress(self.packed))


class TreeChange(Struct, frozen=True, omit_defaults=True):
    """Names of queries or ids of nodes, by what was done with them."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    versions: dict[str, int] = {}
    """The versions of the definitions of queries that were added."""


def root_of(job: JobModel) -> str:
    """The address of the root."""
    for node in job.nodes:
        if node.parent is None and node.listen is not None:
            return node.listen
    raise JobError("the job file names no root that listens", hint="say --root host:port")


def admin(job: JobModel | None) -> Security | None:
    """The security of a command: it shows the token of "admin"."""
    held = None if job is None else job.security
    token = os.environ.get("CATCHMENT_TOKEN") or (held.tokens.get("admin") if held else None)
    if held is None:
        return Security(token=token) if token else None
    return held.model_copy(update={"token": token})


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
