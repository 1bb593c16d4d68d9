"""What a local node (`Up`) and the root (`Down`) say to each other about one key, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from catchment.counting import wire
from catchment.counting.place import Place
from catchment.counting.scheme import SCHEMES
from catchment.operators.ragged import Ints

Columns = dict[str, Any]
"""Values of events, or the fields of a partial."""

_T = TypeVar("_T", bound="_Plain")


def no_ints() -> Ints:
    return np.empty(0, np.int64)


@dataclass
class _Plain:
    def to_plain(self) -> list[Any]:
        return [_plain(getattr(self, f.name)) for f in fields(self)]

    @classmethod
    def from_plain(cls: type[_T], data: list[Any]) -> _T:
        return cls(*data)


def _plain(value: Any) -> Any:
    if isinstance(value, _Plain):
        return value.to_plain()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


@dataclass
class SlicePiece(_Plain):
    """A node's events from one of its positions to another: one partial, or the events."""

    low: int
    high: int
    raw: bool
    times: Ints
    """Of all events, or of the first and the last."""
    arrivals: Ints
    data: Columns


@dataclass
class Samples(_Plain):
    """Where some of a node's events are: their positions, times and arrivals."""

    low: int = 0
    high: int = -1
    """The positions of the two places that were asked about."""
    position: Ints = field(default_factory=no_ints)
    time: Ints = field(default_factory=no_ints)
    arrival: Ints = field(default_factory=no_ints)


@dataclass
class Up(_Plain):
    """What a local node says: facts about its settled events, which never change.

    `samples` answer the ask; of a zone, `span` tells the positions of its two places.
    """

    node: int
    life: int
    frontier: int
    settled: int
    """Events before the frontier, from the beginning."""
    passed: int
    """Edges up to this one are in pieces already, as far as was predicted."""
    ask: int = 0
    """The last ask that was answered."""
    zone: int = 0
    counts: list[tuple[Place, int]] = field(default_factory=list)
    """How many of its events are before a place."""
    samples: Samples = field(default_factory=Samples)
    pieces: list[SlicePiece] = field(default_factory=list)
    late: int = 0
    """Events that came behind the frontier, so far."""
    span: tuple[int, int] | None = None

    def to_bytes(self) -> bytes:
        plain = self.to_plain()
        plain[_SAMPLES] = _thin(self.samples)
        plain[_PIECES] = [_closer(piece, -1).to_plain() for piece in self.pieces]
        return wire.dump(plain)

    @classmethod
    def from_bytes(cls, data: bytes) -> Up:
        plain = wire.load(data)
        plain[_SAMPLES] = _thick(plain[_SAMPLES])
        plain[_PIECES] = [_closer(SlicePiece(*piece), 1) for piece in plain[_PIECES]]
        return cls(*plain)


_SAMPLES, _PIECES = 8, 9


def _thin(samples: Samples) -> list[Any]:
    """Samples without their positions, which lie evenly between two, and with arrivals as
    differences from positions, which are small where events arrive in order."""
    if samples.high < samples.low:
        return []
    away = samples.arrival - samples.position
    return [samples.low, samples.high, samples.time, away]


def _thick(plain: list[Any]) -> Samples:
    if not plain:
        return Samples()
    low, high, time, away = plain
    position = evenly(low, high, len(time))
    return Samples(low, high, position, time, away + position)


def _closer(piece: SlicePiece, sign: int) -> SlicePiece:
    """A piece whose arrivals are told from where its events are, or the other way around."""
    if not piece.raw:
        return piece
    if piece.high - piece.low != len(piece.arrivals):
        raise ValueError("a piece has as many events as places")
    positions = np.arange(piece.low, piece.high, dtype=np.int64)
    return replace(piece, arrivals=piece.arrivals + sign * positions)


def evenly(low: int, high: int, count: int) -> Ints:
    """A number of positions between two others, spread evenly."""
    return low + (np.arange(count, dtype=np.int64) * (high - low)) // max(count, 1)


@dataclass
class Ask(_Plain):
    """Where are your events between two places? Answered once the frontier is past the second."""

    number: int
    low: Place
    high: Place
    most: int


@dataclass
class Zone(_Plain):
    """An edge is thought to lie between two places: cut there, and send the events between.

    With `spans` a zone is from a position to another, for each node, and `high` is when to send
    what there is.
    """

    number: int
    edge: int
    low: Place
    high: Place
    spans: dict[int, tuple[int, int]] | None = None


@dataclass
class Forecast(_Plain):
    """How edges will go on from one that is known."""

    edge: int
    rank: int
    time: float
    pace: float
    """Time from one event to the next."""
    spread: float
    """How wrong times were a stride ahead, as time."""
    stride: int
    sizes: dict[int, tuple[int, int, int]] | None = None
    """By node: its position at the edge, its share of a stride, and its buffer."""


@dataclass
class Down(_Plain):
    """What the root says, to all alike: all that a node needs to know, each time."""

    version: int
    scheme: str
    complete: int
    """The root has all pieces up to this edge."""
    edges: list[tuple[int, int, Place]]
    """Edges since: number, rank, place."""
    ask: Ask | None = None
    zone: Zone | None = None
    forecast: Forecast | None = None
    lives: dict[int, tuple[int, int, Place]] = field(default_factory=dict)
    """Nodes that begin anew: which life, from which position, after which place."""
    gone: list[int] = field(default_factory=list)
    """Nodes that are not waited for: they say that they are there, and wait to begin anew."""
    waits: bool = False
    """Whether nodes read no further before they are told of the next edge."""
    again: bool = False
    """What was answered before is answered again: something was lost."""

    def to_bytes(self) -> bytes:
        plain = self.to_plain()
        plain[1] = SCHEMES.index(self.scheme)
        return wire.dump(plain)

    @classmethod
    def from_bytes(cls, data: bytes) -> Down:
        down = cls(*wire.load(data))
        down.scheme = SCHEMES[down.scheme]  # type: ignore[call-overload]
        down.ask = None if down.ask is None else Ask(*down.ask)  # type: ignore[misc]
        down.zone = None if down.zone is None else Zone(*down.zone)  # type: ignore[misc]
        down.forecast = None if down.forecast is None else Forecast(*down.forecast)  # type: ignore[misc]
        return down
