"""The root's orders on count windows, on their way down the tree.

The last order on each lane is kept under a number that grows, so that a node that has all orders up
to a number can be sent the rest. A later order replaces an earlier one of its lane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from catchment.counting import wire
from catchment.errors import StateError
from catchment.model.capacity import Capacity

KeyValue = int | bool | str | None
"""A value of a key column whose events are counted by asking (`distributed.distributed_groups`)."""
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


class Key(NamedTuple):
    """A key: the selection that its events meet, and the values of the key columns."""

    selection: int
    values: tuple[KeyValue, ...]


class Lane(NamedTuple):
    """A key of a group: what is counted on its own."""

    group: str
    key: Key


class Order(Struct, frozen=True, array_like=True):
    """The last word of the root on a lane, as bytes of a `Down`, and its number."""

    lane: Lane
    number: int
    down: bytes


class OrdersAfter(Struct, frozen=True, array_like=True):
    """The orders that a node lacks which knows all orders up to a number."""

    known: int
    number: int
    """The number of the newest order."""
    over: bool
    """Whether no more windows will be full: nodes that have ended may say so."""
    orders: list[Order]


def newer(data: bytes, heard: int) -> OrdersAfter | None:
    """The orders that a node was sent, which has heard all up to a number; None: it has these too,
    or lacks some before them."""
    new = wire.load(OrdersAfter, data)
    return new if new.known <= heard < new.number else None


class HeardWords:
    """The last word of the root on each group, at a node, until it is done."""

    def __init__(self) -> None:
        self.heard = 0
        """The number of the newest order."""
        self.pending = False
        """Whether something was heard since the last step."""
        self.words: dict[str, bytes] = {}

    def hear(self, data: bytes) -> bool:
        """Takes what the root said, if it is new; it is done with the next step."""
        new = newer(data, self.heard)
        if new is None:
            return False
        self.heard, self.pending = new.number, True
        self.words |= {order.lane.group: order.down for order in new.orders}
        return True

    def taken(self, groups: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """The words on some groups, which are no longer kept; of others they stay."""
        for name in [name for name in self.words if name in groups]:
            yield name, self.words.pop(name)


class Orders:
    """The last word of the root on every lane, numbered, so that each node gets what it lacks."""

    def __init__(self, saved: OrdersAfter | None = None) -> None:
        self.number, self.over = (saved.number, saved.over) if saved is not None else (0, False)
        self.said = {order.lane: order for order in saved.orders} if saved is not None else {}

    def say(self, words: Sequence[tuple[Lane, bytes]], over: bool) -> None:
        if words or over != self.over:
            self.number += 1
            self.over = over
            self.said |= {lane: Order(lane, self.number, down) for lane, down in words}

    def after(self, number: int) -> OrdersAfter:
        """What a node lacks that knows of everything up to a number."""
        lacking = [order for order in self.said.values() if order.number > number]
        return OrdersAfter(number, self.number, self.over, lacking)

    def since(self, number: int) -> bytes:
        """The same as bytes."""
        return wire.dump(self.after(number))

    def take(self, data: bytes) -> None:
        """Takes orders from the parent, if they are new."""
        new = newer(data, self.number)
        if new is not None:
            self.number, self.over = new.number, new.over
            self.said |= {order.lane: order for order in new.orders}

    def keep(self, groups: Collection[str]) -> None:
        """Forgets what was said of groups that are gone."""
        self.said = {lane: order for lane, order in self.said.items() if lane.group in groups}
