"""What a local node (`Up`) and the root (`Down`) say to each other about one key, as records."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta, Struct

from catchment.counting.place import Place, Whole
from catchment.counting.scheme import SCHEMES
from catchment.operators.ragged import Ints

_Position = Annotated[int, Meta(ge=-(1 << 48), le=1 << 48)]
"""The number of an event, an edge or a question: no sum of what nodes say overflows."""


def no_ints() -> Ints:
    return np.empty(0, np.int64)


class SlicePiece(Struct, frozen=True, array_like=True):
    """A node's events from one of its positions to another: one partial, or the events."""

    low: _Position
    high: _Position
    raw: bool
    times: Ints
    """The times of all events of the piece or, of a partial, of the first and the last."""
    ahead: Ints
    """For the same events: arrival minus position, which is small where events arrive in order."""
    data: bytes

    def __post_init__(self) -> None:
        told = self.high - self.low if self.raw else 2
        if self.high <= self.low or len(self.times) != told or len(self.ahead) != told:
            raise ValueError("a piece has as many events as places")

    @property
    def positions(self) -> Ints:
        """The positions of the events whose times the message has."""
        if self.raw:
            return np.arange(self.low, self.high, dtype=np.int64)
        return np.array([self.low, self.high - 1], np.int64)

    @property
    def arrivals(self) -> Ints:
        return self.ahead + self.positions


class Samples(Struct, frozen=True, array_like=True):
    """Where some of a node's events are: they lie evenly between two positions."""

    low: _Position
    high: _Position
    """The positions of the two places that were asked about."""
    times: Ints
    ahead: Ints
    """Arrival minus position of these events, as in a piece."""

    def __post_init__(self) -> None:
        if self.high < self.low or len(self.times) != len(self.ahead):
            raise ValueError("samples have as many times as arrivals")

    @property
    def positions(self) -> Ints:
        return evenly(self.low, self.high, len(self.times))

    @property
    def arrivals(self) -> Ints:
        return self.ahead + self.positions


def evenly(low: int, high: int, count: int) -> Ints:
    """A number of positions between two others, spread evenly."""
    return low + (np.arange(count, dtype=np.int64) * (high - low)) // max(count, 1)


class Up(Struct, frozen=True, array_like=True):
    """What a local node says: facts about its settled events, which never change.

    `samples` answer the ask; of a zone, `span` tells the positions of its two places.
    """

    node: _Position
    life: _Position
    frontier: Whole
    settled: _Position
    """Events before the frontier, from the beginning."""
    passed: _Position
    """Edges up to this one are in pieces already, as far as was predicted."""
    ask: _Position = 0
    """The last ask that was answered."""
    zone: _Position = 0
    counts: dict[Place, _Position] = {}
    """How many of its events are before a place."""
    samples: Samples | None = None
    pieces: list[SlicePiece] = []
    late: _Position = 0
    """Events that came behind the frontier, so far."""
    span: tuple[_Position, _Position] | None = None


class Ask(Struct, frozen=True, array_like=True):
    """Where are your events between two places? Answered once the frontier is past the second."""

    number: int
    low: Place
    high: Place
    most: int


class Zone(Struct, frozen=True, array_like=True):
    """An edge is thought to lie between two places: cut there, and send the events between.

    With `spans` a zone is from a position to another, for each node, and `high` is when to send
    what there is.
    """

    number: int
    edge: int
    low: Place
    high: Place
    spans: dict[int, tuple[int, int]] | None = None


class NodeShare(NamedTuple):
    """What a node is expected to have of the next stride."""

    position: int
    """The node's position at the edge where the stride begins."""
    share: int
    buffer: int


class Forecast(Struct, frozen=True, array_like=True):
    """How edges will go on from one that is known."""

    edge: int
    rank: int
    time: float
    pace: float
    """Time from one event to the next."""
    spread: float
    """How wrong times were a stride ahead, as time."""
    stride: int
    sizes: dict[int, NodeShare] | None = None
    """By node."""


class FoundEdge(NamedTuple):
    """Where an edge is: the number of events before it, and its place."""

    rank: int
    place: Place


class NewLife(NamedTuple):
    """Where a node begins anew: in which life, from which position, after which place."""

    life: int
    position: int
    place: Place


class Down(Struct, frozen=True, array_like=True):
    """What the root tells all nodes. Each `Down` is complete: a node needs only the last one."""

    version: int
    scheme: Annotated[int, Meta(ge=0, lt=len(SCHEMES))]
    """Its place in SCHEMES."""
    complete: int
    """The root has all pieces up to this edge."""
    edges: dict[int, FoundEdge]
    """The edges found after `complete`, by their numbers."""
    ask: Ask | None = None
    zone: Zone | None = None
    forecast: Forecast | None = None
    lives: dict[int, NewLife] = {}
    """Nodes that begin anew."""
    gone: list[int] = []
    """Nodes that are not waited for: they say that they are there, and wait to begin anew."""
    waits: bool = False
    """Whether nodes read no further before they are told of the next edge."""
    again: bool = False
    """Whether nodes must answer again what they have answered, because something was lost."""
