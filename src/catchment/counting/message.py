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


class Answers(Struct, frozen=True, array_like=True):
    """Samples of several asks, in columns."""

    numbers: Ints
    """Of the asks."""
    low: Ints
    high: Ints
    count: Ints
    """How many events there are of each ask."""
    times: Ints
    ahead: Ints

    def __post_init__(self) -> None:
        same = len(self.numbers) == len(self.low) == len(self.high) == len(self.count)
        if not same or (self.count < 0).any() or (self.high < self.low).any():
            raise ValueError("answers have one entry in each column")
        if not int(self.count.sum()) == len(self.times) == len(self.ahead):
            raise ValueError("samples have as many times as arrivals")

    @classmethod
    def of(cls, samples: dict[int, Samples]) -> Answers | None:
        """Samples by the numbers of their asks; None: there are none."""
        if not samples:
            return None
        found = samples.values()
        return cls(
            np.array([*samples], np.int64),
            np.array([one.low for one in found], np.int64),
            np.array([one.high for one in found], np.int64),
            np.array([len(one.times) for one in found], np.int64),
            np.concatenate([one.times for one in found]),
            np.concatenate([one.ahead for one in found]),
        )

    @property
    def samples(self) -> dict[int, Samples]:
        """The samples by the numbers of their asks."""
        ends = np.cumsum(self.count)[:-1]
        found = zip(np.split(self.times, ends), np.split(self.ahead, ends), strict=True)
        bounds = zip(self.numbers.tolist(), self.low.tolist(), self.high.tolist(), strict=True)
        return {
            number: Samples(low, high, times, ahead)
            for (number, low, high), (times, ahead) in zip(bounds, found, strict=True)
        }


class Up(Struct, frozen=True, array_like=True):
    """What a local node says: facts about its settled events, which never change.

    `answered` are the orders of the last `Down` that were answered so far. By their numbers,
    `answers` have samples of asks, and `spans` tell the positions of the two places of zones.
    """

    node: _Position
    life: _Position
    frontier: Whole
    settled: _Position
    """Events before the frontier, from the beginning."""
    passed: _Position
    """Edges up to this one are in pieces already, as far as was predicted."""
    answered: list[_Position] = []
    counts: dict[Place, _Position] = {}
    """How many of its events are before a place."""
    answers: Answers | None = None
    pieces: list[SlicePiece] = []
    late: _Position = 0
    """Events that came behind the frontier, so far."""
    spans: dict[_Position, tuple[_Position, _Position]] = {}


class Ask(Struct, frozen=True, array_like=True):
    """Where are your events between two places? Answered once the frontier is past the second."""

    number: int
    low: Place
    high: Place
    most: int


class AskList(Struct, frozen=True, array_like=True):
    """Asks in columns, so that each is a few bytes."""

    numbers: Ints
    times: Ints
    """Of the first place of each."""
    spans: Ints
    """To the time of the second place."""
    most: Ints
    ends: Ints
    """Node and arrival of all first places, then those of all second places."""

    def __post_init__(self) -> None:
        count = len(self.numbers)
        same = count == len(self.times) == len(self.spans) == len(self.most)
        if not same or len(self.ends) != 4 * count:
            raise ValueError("asks have one entry in each column")

    @classmethod
    def of(cls, asks: list[Ask]) -> AskList | None:
        """Some asks; None: there are none."""
        if not asks:
            return None
        low, high = (
            np.array([getattr(ask, name) for ask in asks], np.int64).T for name in ("low", "high")
        )
        return cls(
            np.array([ask.number for ask in asks], np.int64),
            low[0],
            high[0] - low[0],
            np.array([ask.most for ask in asks], np.int64),
            np.concatenate([low[1], low[2], high[1], high[2]]),
        )

    def to_list(self) -> list[Ask]:
        """The asks one by one."""
        ends = self.ends.reshape(4, -1)
        low = np.stack([self.times, *ends[:2]], axis=1).tolist()
        high = np.stack([self.times + self.spans, *ends[2:]], axis=1).tolist()
        told = zip(self.numbers.tolist(), low, high, self.most.tolist(), strict=True)
        return [
            Ask(number, Place(*first), Place(*second), most) for number, first, second, most in told
        ]


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
    ask_list: AskList | None = None
    """About edges that are looked for, in their order; each edge has an ask or a zone, or none."""
    zones: list[Zone] = []
    forecast: Forecast | None = None
    lives: dict[int, NewLife] = {}
    """Nodes that begin anew."""
    gone: list[int] = []
    """Nodes that are not waited for: they say that they are there, and wait to begin anew."""
    refused: list[int] = []
    """Nodes of `gone` that were not right: what they keep is of no use to anybody."""
    waits: bool = False
    """Whether nodes read no further before they are told of the next edge."""
    again: bool = False
    """Whether nodes must answer again what they have answered, because something was lost."""

    @property
    def numbers(self) -> set[int]:
        """The numbers of all asks and zones."""
        asks = () if self.ask_list is None else self.ask_list.numbers.tolist()
        return {*asks, *(zone.number for zone in self.zones)}
