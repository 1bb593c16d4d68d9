"""How much memory keys and state take, looked at now and then, and what happens past the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from catchment.engine.keys import Encoder, KeyIndex
from catchment.errors import LimitError, StateError
from catchment.model.capacity import Capacity, MemoryLimits

_MANY = 1 << 16
"""Rows that may come before the size of the state is looked at again."""


class HoldsKeys(Protocol):
    """What holds the keys of a group, or of groups that share them."""

    @property
    def keys(self) -> KeyIndex: ...

    def collect_keys(self, at_once: bool = False) -> None:
        """Forgets the keys that nothing refers to."""


class MemoryWatch:
    """Watches the memory of one merger or assembler."""

    def __init__(self, limits: MemoryLimits) -> None:
        self.limits = limits
        self.encoder = Encoder()
        """Remembers texts for the slicer beside it, if there is one: they count with the keys."""
        self._come = 0
        """Rows that came since the state was looked at."""

    def bound_keys(self, groups: Iterable[HoldsKeys]) -> None:
        """Keeps what keys take within their limit: first what only saves time is forgotten."""
        groups = list(groups)
        limit = self.limits.key_bytes
        if self.keys_in(groups) <= limit:
            return
        self.encoder.forget()
        for group in groups:
            group.collect_keys(at_once=True)
            group.keys.unlink()
        held = _indexed(groups)
        if held <= limit:
            return
        keys = max(len(group.keys) for group in groups)
        raise LimitError(
            "the keys that open windows need take more memory than is allowed",
            given=f"{keys:,} keys in {held:,} bytes of {limit:,}",
            hint="raise key_bytes, or use fewer keys, shorter windows, or more nodes",
        )

    def keys_in(self, groups: Iterable[HoldsKeys]) -> int:
        """Bytes of keys, and of the texts that are remembered."""
        return self.encoder.nbytes + _indexed(groups)

    def forget_texts(self, groups: Iterable[HoldsKeys]) -> None:
        """Forgets texts that are many more than the keys in use."""
        self.encoder.forget(sum(len(group.keys) for group in groups))

    def came(self, rows: int) -> None:
        """Notes that so many events or partials have come."""
        self._come += rows

    def weigh(self, held: Callable[[], int], merge: Callable[[], None]) -> None:
        """Refuses to go on with more state than allowed, even once all that can be is merged.

        Looks only when much has come.
        """
        if self._come < _MANY:
            return
        self._come = 0
        size = held()
        if size > self.limits.state_bytes:
            merge()
            size = held()
        if size > self.limits.state_bytes:
            raise StateError(
                "the state takes more memory than it may",
                given=f"{size:,} of {self.limits.state_bytes:,} bytes",
                hint="open windows of many keys are kept: shorten windows, narrow keys with a "
                "condition, or allow more with state_bytes",
            )

    def capacities(self, held: int, groups: Iterable[HoldsKeys]) -> list[Capacity]:
        """What grows here, how large it is and may get, and what happens then."""
        limits = self.limits
        then = "push and advance raise StateError"
        fails = "push and advance raise LimitError, once all keys are needed"
        return [
            Capacity("state of windows", held, limits.state_bytes, "bytes", then),
            Capacity("keys", self.keys_in(groups), limits.key_bytes, "bytes", fails),
        ]


def _indexed(groups: Iterable[HoldsKeys]) -> int:
    return sum(group.keys.nbytes for group in groups)
