"""Early sending on a node: the driver of `EarlySender`.

It tells the `EarlySender` what a merger holds, as arrays of keys, sizes and times, and turns the
choice into rows of the merger that leave now.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np

from catchment.engine.merger import Merger, Touch
from catchment.engine.rows import Rows, row_bytes
from catchment.flush.average import moving
from catchment.flush.early import EarlySender, FlushStep, HeldRows
from catchment.flush.learnt import NOTHING, Learnt
from catchment.flush.link import LinkEstimate
from catchment.flush.settings import Flush
from catchment.model.plan import Group, Plan
from catchment.operators.ragged import Floats, Ints

_PACKED = 0.3
"""What a row takes on the wire of what it takes here: a guess, until a message has gone."""


def holds_back(group: Group) -> bool:
    """Whether a node holds back the slices of a group until they end, and may send rows early.

    It does so where slices are cut as events come: at edges that are known ahead, or, for sessions,
    at a grid. Rows that leave early are told under the old frontier, which closes no session.
    """
    known = all(window.periods or window.session_gap is not None for window in group.windows)
    return group.slicing == "arrival" and not group.distinct_on and known


class EarlyFlush:
    """Chooses the rows of a merger that leave early, as an `EarlySender` decides.

    It forgets slices in a crash: nothing that is counted depends on it, since what leaves early is
    in the record of the step.
    """

    def __init__(self, flush: Flush, link: LinkEstimate, known: Learnt) -> None:
        self.sender = EarlySender(flush, link, known)
        self._flush, self._link = flush, link
        self._raw = 0.0
        """Bytes of a row here, as of late."""
        self._indexes: dict[int, object] = {}
        """The key index of each group. When a merger has a new one, codes mean other keys, and what
        was learnt of the group is forgotten."""

    def learnt(self) -> Learnt:
        """What should outlive a crash; nothing, as long as nothing was learnt."""
        found = msgspec.structs.replace(self._link.learnt(), tuner=self.sender.learnt().tuner)
        if found == NOTHING:
            return NOTHING
        return msgspec.structs.replace(found, each=round(self.sender.each, 2))

    def shown(self) -> dict[str, float | int | None]:
        """How lazy it is just now, and how many rows have left early."""
        tuned = self._flush.policy.kind in ("auto", "hybrid")
        lazy = {"alpha": self.sender.alpha} if tuned else {}
        return {"early rows": self.sender.early, **lazy}

    def forget(self) -> None:
        """Forgets all slices: groups and keys have got other numbers."""
        self.sender.forget()
        self._indexes = {}

    def choose(
        self, merger: Merger, plan: Plan, frontier: int, now: float, released: float, seq: int
    ) -> dict[int, Ints]:
        """Rows of each group's shelf that leave now; `released` bytes are about to go anyway."""
        merger.watched = self.sender.active
        touched = merger.touched()
        newest = max(merger.newest, frontier) / 1e6
        step = FlushStep(now, frontier / 1e6, newest, released, seq)
        if not self.sender.active:
            self.forget()
            self.sender.choose([], step)
            return {}
        held: list[HeldRows] = []
        lows: list[int] = []
        for group in plan.groups:
            if not holds_back(group):
                continue
            if not self.sender.holds_nothing:
                keys = merger.groups[group.id].keys
                self._follow(group.id, keys, touched.get(group.id, []), newest)
            rows = merger.shelf(group.id)
            if len(rows):
                edges = [0, *(np.flatnonzero(np.diff(rows.start)) + 1).tolist(), len(rows)]
                held += self._held(group.id, rows, edges, self._weight(plan, group.id))
                lows += edges[:-1]
        chosen: dict[int, list[Ints]] = {}
        for part, low, gone in zip(held, lows, self.sender.choose(held, step), strict=True):
            if len(gone):
                chosen.setdefault(part.group, []).append(low + gone)
        return {id: np.concatenate(rows) for id, rows in chosen.items()}

    def _follow(self, id: int, index: object, touches: list[Touch], newest: float) -> None:
        """Notes the rows that have come for the slices of a group since the last step."""
        if self._indexes.get(id) is not index:
            self._indexes[id] = index
            self.sender.forget(id)
        for start, end, keys in touches:
            alone = bool((start == start[:1]).all())
            for begin in start[:1].tolist() if alone else np.unique(start).tolist():
                mine = slice(None) if alone else start == begin
                until = int(end[mine].max()) / 1e6
                self.sender.arrived(id, begin / 1e6, until, _sorted(keys[mine]), newest)

    def _held(self, id: int, rows: Rows, edges: list[int], weight: float) -> list[HeldRows]:
        """The rows of a shelf, slice by slice."""
        sizes = self._sizes(rows)
        return [
            HeldRows(
                id,
                int(rows.start[low]) / 1e6,
                int(rows.end[low:high].max()) / 1e6,
                rows.key[low:high],
                sizes[low:high],
                weight,
            )
            for low, high in pairwise(edges)
        ]

    def _sizes(self, rows: Rows) -> Floats:
        """The bytes that rows will take on the wire: the average of rows that were sent, scaled by
        the size of each row in memory."""
        raw = row_bytes(rows)
        mean = float(raw.mean())
        self._raw = moving(self._raw, mean)
        return raw * ((self.sender.each or _PACKED * mean) / self._raw)

    def _weight(self, plan: Plan, id: int) -> float:
        """The priority of a group: that of its query with the highest."""
        former = plan.former
        names = [former.get(name, name) for name, (group, _) in plan.names.items() if group == id]
        return max((self._flush.priorities.get(name, 1.0) for name in names), default=1.0)


def _sorted(keys: Ints) -> Ints:
    """Each key once, in order; mostly each is there once already."""
    found = np.sort(keys)
    again = found[1:] == found[:-1]
    return np.unique(found) if again.any() else found
