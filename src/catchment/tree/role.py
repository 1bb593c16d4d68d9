"""What a node does, as the rest of the node sees it.

Three classes do it: `Local` reads events, `Relay` merges what its children send, `Root` assembles
windows. Whoever talks to other nodes (`member`), runs a node (`nodes`) or shows one (`status`) asks
these questions, and need not know which of the three it has before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from catchment.counting.orders import Orders
from catchment.model.capacity import Capacity
from catchment.sources.base import Source
from catchment.tree.charter import Charter
from catchment.tree.inbox import Inbox
from catchment.tree.outflow import Outflow
from catchment.tree.role_progress import RoleProgress


class Role(Protocol):
    """The work of one node, step by step; all it must not lose is on the node's disk."""

    @property
    def source(self) -> Source | None:
        """What it reads, if it reads events."""

    @property
    def inbox(self) -> Inbox | None:
        """What children have sent, if it may have children."""

    @property
    def flow(self) -> Outflow | None:
        """What it passes up, unless it is the root."""

    @property
    def orders(self) -> Orders | None:
        """What it decides about count windows; None where it only hands on what the root said."""

    @property
    def edges(self) -> Orders | None:
        """What it tells of marks; None where it only hands that on."""

    @property
    def questions(self) -> Orders | None:
        """What it asks about values that nodes keep back; None where it only hands that on."""

    @property
    def due(self) -> int | None:
        """The time after which children should tell their frontier at once, without waiting for
        their next message; None: there is no such time."""

    @property
    def plan(self) -> int:
        """The version of the plan that it works by."""
        ...

    @property
    def number(self) -> int:
        """The number of the last step."""
        ...

    @property
    def done(self) -> bool:
        """Whether all input has ended and everything is processed."""
        ...

    def step(self, now: int) -> bool:
        """Takes one step, if there is something to do; whether there was."""
        ...

    def commit(self) -> None:
        """Lets the source forget what was read, after a step."""

    def follow(self, charter: Charter, now: int) -> None:
        """Takes a newer charter."""

    def acknowledged(self, received: int, settled: int) -> None:
        """The parent has messages, and those up to `settled` are safe further up."""

    def amendments(self) -> Iterator[Charter]:
        """Newer charters that are due; each is followed before the next is asked for."""
        ...

    def progress(self) -> RoleProgress: ...

    def capacities(self) -> list[Capacity]:
        """What grows in its memory and on its disk, besides what is passed up and taken in."""
        ...
