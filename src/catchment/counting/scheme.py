"""The schemes of finding edges, and the choice of the cheapest one on the links (`auto`)."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from catchment.errors import QueryError, did_you_mean

SCHEMES = ("auto", "async", "sync", "monitor", "approx", "central")
WAITING = ("monitor", "sync")
"""Schemes whose nodes read no further until they know of the next edge."""
ALL = 64
"""Events in doubt, per node, up to which the places of all of them are asked for."""

_EVENT, _ASKING, _STRAIGHT = 8.0, 500.0, 450.0
"""Bytes, before any were seen: of an event; of a node's share in finding an edge by asking, and by
pieces that come unasked, without their events."""
_CENTRAL = 100.0
_FEWEST, _MOST = 16, 24
_STAY = 0.9
"""Another scheme must cost less than this share of what is used."""


Predictor = Literal["pace", "last"]
MEMORY = 8
"""Edges that a prediction looks back on."""


class CountOptions(Struct, frozen=True):
    """How edges of count windows are predicted, and whether nodes wait for them.

    Deco as its paper has it is `CountOptions("last", 1, wait=True)`.
    """

    predictor: Predictor = "pace"
    """By the rate of all events together, or by each node's share of the last window."""
    memory: int = MEMORY
    """How many windows the expected error is averaged over: m."""
    wait: bool = False
    """Whether a node reads no further, by `monitor` and `sync`, until it knows of the next edge."""


OURS = CountOptions()
"""What is done where nobody says otherwise."""


def samples(doubtful: float) -> int:
    """How many samples of a node's events in doubt to ask for.

    Those between two samples are asked for next: both answers are shortest at the square root.

    >>> samples(40), samples(100), samples(2500), samples(1e6)
    (64, 16, 24, 24)
    """
    if doubtful <= ALL:
        return ALL
    return min(max(round(math.sqrt(doubtful)), _FEWEST), _MOST)


def check(scheme: str) -> str:
    if scheme not in SCHEMES:
        raise QueryError("no such scheme", given=scheme, hint=did_you_mean(scheme, SCHEMES))
    return scheme


class Auto(Struct, array_like=True):
    """Moves between schemes by how well edges are predicted and what was spent."""

    using: str = "monitor"
    corrections: float = 0.05
    """The share of the last predicted edges that had to be corrected."""
    event: float = _EVENT
    asking: float = _ASKING
    straight: float = _STRAIGHT
    moves: list[tuple[int, str]] = []

    def learn(self, spent: float, nodes: int, doubtful: float, corrected: bool) -> None:
        """What an edge cost by the scheme in use, with so many events in doubt."""
        if self.using == "monitor":
            self.asking += 0.2 * (spent / max(nodes, 1) - self.asking)
        elif self.using == "async":
            self.corrections += 0.1 * (corrected - self.corrections)
            rest = (spent - doubtful * self.event) / max(nodes, 1)
            self.straight += 0.2 * (max(rest, 0.0) - self.straight)

    def saw(self, events: int, nbytes: int) -> None:
        """How large events are on a link."""
        if events > 64:
            self.event += 0.2 * (nbytes / events - self.event)

    def costs(self, nodes: int, stride: int, doubtful: float) -> dict[str, float]:
        """Bytes for an edge by each scheme."""
        asking = nodes * self.asking
        straight = nodes * self.straight + doubtful * self.event
        return {
            "monitor": asking,
            "async": straight + self.corrections * asking,
            "central": nodes * _CENTRAL + stride * self.event,
        }

    def choose(self, edge: int, costs: dict[str, float]) -> str:
        best = min(costs, key=lambda scheme: costs[scheme])
        if best != self.using and costs[best] < _STAY * costs[self.using]:
            self.using = best
            self.moves.append((edge, best))
            del self.moves[:-16]
        return self.using
