"""The root's orders on count windows, on their way down the tree.

The last order on each lane is kept under a number that grows, so that a node that has all orders up
to a number can be sent the rest. A later order replaces an earlier one of its lane.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from catchment.counting import wire
from catchment.errors import StateError
from catchment.model.capacity import Capacity

Key = tuple[Any, ...]
"""Selection and values of a key."""
LANES = 1 << 20
"""Keys whose count windows are found by asking, of all groups together."""


def room_for_lane(known: int) -> None:
    """Raises when there are so many keys that one more cannot be asked about."""
    if known >= LANES:
        raise StateError(
            "count windows have more keys than can be asked about",
            given=f"{known:,}",
            hint="say count: central, so that events are collected",
        )


def lanes_capacity(known: int) -> Capacity:
    then = "the step fails with StateError; count: central has no such limit"
    return Capacity("keys of count windows that are asked about", known, LANES, "entries", then)


class Orders:
    """The last word of the root on every lane, numbered, so that each node gets what it lacks."""

    def __init__(self) -> None:
        self.number = 0
        self.over = False
        """Whether no more windows will be full: nodes that have ended may say so."""
        self.said: dict[tuple[str, Key], tuple[int, bytes]] = {}

    def say(self, words: list[tuple[str, Key, bytes]], over: bool) -> None:
        if words or over != self.over:
            self.number += 1
            self.over = over
            self.said |= {(group, key): (self.number, body) for group, key, body in words}

    def since(self, number: int) -> bytes:
        """What a node lacks that knows of everything up to a number."""
        words = [(g, key, n, body) for (g, key), (n, body) in self.said.items() if n > number]
        return wire.dump([number, self.number, self.over, words])

    def take(self, data: bytes) -> list[tuple[str, Key, bytes]]:
        """Takes orders from the parent; gives those that are new."""
        known, number, over, words = wire.load(data)
        if known > self.number or number <= self.number:
            return []
        self.number, self.over = number, over
        self.said |= {(group, key): (n, body) for group, key, n, body in words}
        return [(group, key, body) for group, key, _, body in words]

    def keep(self, groups: Collection[str]) -> None:
        """Forgets what was said of groups that are gone."""
        self.said = {lane: word for lane, word in self.said.items() if lane[0] in groups}

    def to_plain(self) -> list[Any]:
        words = [(g, key, n, body) for (g, key), (n, body) in self.said.items()]
        return [self.number, self.over, words]

    @classmethod
    def from_plain(cls, data: list[Any]) -> Orders:
        orders = cls()
        orders.number, orders.over, words = data
        orders.said = {(group, key): (n, body) for group, key, n, body in words}
        return orders
