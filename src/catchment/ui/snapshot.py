"""How a job stands at a moment, as one typed record, cut into sections that are sent apart.

A page that watches is sent a section when it has changed. Nodes are a section each, so that a tree
of a thousand nodes in which three have moved costs three small texts.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from catchment.model import records
from catchment.model.capacity import Capacity

ShownTime = int | str | None
"""Microseconds since 1970, "idle" or "ended"; None: it has not begun."""
NodeRole = Literal["root", "merges", "reads"]
NodeState = Literal["connected", "missing", "unknown", "ended"]


class ShownNode(Struct, frozen=True, omit_defaults=True):
    """A node of a tree, and the link to its parent."""

    id: str
    parent: str | None
    role: NodeRole
    state: NodeState
    frontier: ShownTime = None
    behind: float | None = None
    """Seconds of event time behind the node that is furthest."""
    silent: float = 0.0
    """Seconds since its parent has heard of it."""
    messages: int = 0
    nbytes: int = 0
    """Bytes of the messages that its parent has had of it."""
    bandwidth: float | None = None
    """Bytes a second that the link carries, as far as the node has found out."""
    early: int | None = None
    """Rows that its flush policy has sent early."""
    alpha: float | None = None
    """How lazy its flush policy is just now: 0 sends at once, 1 waits for the end of the slice."""
    why: str | None = None
    """What keeps it from working."""


class JobView(Struct, frozen=True, omit_defaults=True):
    """A job as a whole."""

    name: str
    kind: Literal["tree", "spark"]
    state: str
    """starting, running, ended, stopped, failed or unreachable."""
    frontier: ShownTime = None
    lag: float | None = None
    """Seconds from the newest event to the frontier; of a tree, of its slowest node."""
    plan: int | None = None
    """The version of the plan. Queries are asked for anew when it changes."""
    queries: int = 0
    rate: float | None = None
    """Events a second, over the last looks."""
    batch: int | None = None
    flush: str | None = None
    event_bytes: int | None = None
    """What an event takes by its columns."""
    memory: int | None = None
    """Bytes of the process that runs the job, where that is this one."""
    error: str | None = None
    results: str | None = None
    """Where the page reads results from; None: it cannot."""


class Notice(Struct, frozen=True):
    """Something that a person should know of."""

    what: str
    where: str
    text: str


class Alert(Struct, frozen=True):
    """Something that a person should do something about."""

    level: Literal["bad", "warn"]
    what: str
    """The same as long as it is about the same thing."""
    text: str


class BatchCost(Struct, frozen=True):
    """What micro-batches have cost, in seconds by part."""

    batches: int
    seconds: float
    parts: dict[str, float]


class Snapshot(Struct, frozen=True):
    """How a job stands."""

    job: JobView
    counts: dict[str, int] = {}
    nodes: tuple[ShownNode, ...] = ()
    limits: tuple[Capacity, ...] = ()
    notices: tuple[Notice, ...] = ()
    partitions: dict[str, int | None] = {}
    cost: BatchCost | None = None
    alerts: tuple[Alert, ...] = ()

    def sections(self) -> dict[str, bytes]:
        """Its parts as JSON, by name; each node is one.

        >>> job = JobView("a", "spark", "running")
        >>> Snapshot(job, counts={"events": 3}).sections()["counts"]
        b'{"events":3}'
        """
        found = {
            "job": records.encode(self.job),
            "counts": records.encode(self.counts),
            "limits": records.encode(self.limits),
            "notices": records.encode(self.notices),
            "partitions": records.encode(self.partitions),
            "cost": records.encode(self.cost),
            "alerts": records.encode(self.alerts),
        }
        for node in self.nodes:
            found[f"node/{node.id}"] = records.encode(node)
        return found
