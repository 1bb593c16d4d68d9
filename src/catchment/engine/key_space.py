"""Codes of keys that several groups share, and how those are forgotten that nobody refers to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from catchment.engine.keys import KeyIndex
from catchment.operators.ragged import Ints

_CROWD = 1 << 12
"""Keys below which none is forgotten."""


class KeySpace:
    """The lasting codes of (selection, key).

    Groups whose events wait together have one space for all of them: the selection is that of
    whichever group uses the code. Every other group has a space of its own.
    """

    def __init__(self) -> None:
        self.keys = KeyIndex()
        self.crowd = _CROWD
        """From so many keys on, unused keys are looked for and forgotten."""


class KeyUser(Protocol):
    """What refers to keys by their codes."""

    @property
    def keeps_keys(self) -> bool:
        """Whether it needs all keys for good."""
        ...

    def used_keys(self) -> list[Ints]:
        """The codes that it refers to."""
        ...

    def recode(self, place: Ints) -> None:
        """Renumbers the keys."""


@dataclass(frozen=True)
class UsedKeys:
    """A space of keys, and all who refer to it."""

    space: KeySpace
    users: Sequence[KeyUser]

    @property
    def keys(self) -> KeyIndex:
        return self.space.keys

    def collect_keys(self, at_once: bool = False) -> None:
        """Forgets the keys that nothing refers to, once they are most of all keys, or at once."""
        space = self.space
        if any(user.keeps_keys for user in self.users):
            return
        if len(space.keys) < space.crowd and not at_once:
            return
        used = [codes for user in self.users for codes in user.used_keys()]
        live = np.unique(np.concatenate([np.empty(0, np.int64), *used]))
        space.crowd = max(_CROWD, 2 * len(live))
        if len(live) == len(space.keys) or (2 * len(live) > len(space.keys) and not at_once):
            return
        place = np.full(len(space.keys), -1, np.int64)
        place[live] = np.arange(len(live))
        space.keys = space.keys.only(live)
        for user in self.users:
            user.recode(place)
