"""Which slices of open sessions a node may hold back although its frontier has passed their events.

A session is closed above once the frontier there has passed its last event by the gap. So an event
before the frontier may be held back only while no session that it could join can be closed:

    released before      |--- session ---|<---- gap ---->|
    held back                 x      x       x
    frontier                                      ^  before the end of the gap

Those above know of the session, and keep it open until the frontier has passed the gap; whatever
else the held events could join, they join that session too, since they do not begin before it.
Neither holds of events that begin a session here, and of events before the first that was released:
those are released as soon as a frontier past them is told.

Each node in between goes by the same rule with the slices that it has released itself. What is
forgotten here (in a restart, when the plan changes) only lets slices leave sooner.
"""

from __future__ import annotations

import numpy as np

from catchment.engine.rows import Rows, concat_rows, no_rows
from catchment.engine.shapes.session import fuse
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask


class ReleasedSessions:
    """The open sessions of a group, as they follow from slices that were released."""

    def __init__(self, gap: int) -> None:
        self._gap = gap
        """The smallest of the group: what holds for it holds for longer ones."""
        self._rows = no_rows({})

    def add(self, rows: Rows) -> None:
        """Notes slices that leave now."""
        if len(rows):
            bare = Rows.of(rows.columns(), {})
            self._rows = fuse(concat_rows([self._rows, bare], {}), self._gap, {})

    def open(self, frontier: int) -> None:
        """Forgets sessions that may be closed above once a frontier is told."""
        rows = self._rows
        self._rows = rows.where(rows.last + self._gap > frontier)

    def keep_open(self, rows: Rows) -> Mask:
        """Tells which held slices belong to sessions that the parent keeps open."""
        known = self._rows
        if not len(known):
            return np.zeros(len(rows), np.bool_)
        # In order of key and time: the first of a key reaches back furthest.
        place = np.searchsorted(known.key, rows.key)
        near = np.minimum(place, len(known) - 1)
        found: Mask = (known.key[near] == rows.key) & (known.first[near] <= rows.first)
        return found

    @property
    def key(self) -> Ints:
        return self._rows.key

    def recode(self, codes: Ints) -> None:
        """Renumbers the keys."""
        if len(self._rows):
            self._rows.key = codes[self._rows.key]
            self._rows = fuse(self._rows, self._gap, {})

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes
