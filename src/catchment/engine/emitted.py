"""Remembers the results of windows that late events may still change.

Complete windows go in; those that are new or have changed come out, with their revision, and
windows that are gone come out as retracted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from catchment.engine.complete import Complete
from catchment.engine.rows import Operators, identity_fields
from catchment.model.window import Window
from catchment.operators import OperatorRef
from catchment.operators.ragged import Ints
from catchment.operators.values import Mask
from catchment.planner.edges import EARLIEST, LATEST

Identity = tuple[int, int, int, int, int]
"""Window type, key, start, end and index (0 where bounds do not repeat): what tells a result from
all others of its query, here and in every sink."""


def told_by(windows: Sequence[Window]) -> str:
    """The operator that tells whether one of these windows has changed.

    Windows that are known ahead only ever gain events, so their number tells. Others may be of
    equal bounds and number and yet of other events.
    """
    return "count" if all(window.periods for window in windows) else "digest"


class Emitted:
    """The revision and digest of every window emitted after the horizon; None: retracted."""

    def __init__(self, windows: Sequence[Window]) -> None:
        of_data = {n for n, window in enumerate(windows) if not window.periods}
        self.retractable = of_data
        """Window types whose bounds come from the data: late events can make a window vanish, or
        move to other bounds, where it is another window."""
        self.indexed = {n for n in of_data if windows[n].bounds_repeat}
        self.closed = of_data
        """Window types that an event just at their end may still be in, or may end."""
        self._told_by = f"{OperatorRef(told_by(windows)).id}.{told_by(windows)}"
        """The field that tells whether a window has changed."""
        self.said: dict[Identity, tuple[int, int | None]] = {}
        self.ends: dict[Identity, int] = {}
        self._soonest = EARLIEST
        """No window of those that are remembered ended before it."""
        self.doubtful: set[Identity] = set()
        """Windows that were emitted while some node's events were missing. Once none are missing,
        they are emitted again as complete."""

    def changes(
        self,
        windows: list[Complete],
        horizon: int,
        operators: Operators,
        complete_until: int,
        silent: bool = False,
    ) -> list[Complete]:
        """Of complete windows those that are new or changed, and of windows said those now gone.

        `windows` holds every complete window after the horizon of the types that are retractable,
        and of the other types at least those that may have changed. With `silent`, nothing is said
        of windows that may lack events: that waits.
        """
        out: list[Complete] = []
        there: set[Identity] = set()
        for part in windows:
            identities = _identities(part)
            there.update(identities)
            if silent:
                known = ~self.open(part, complete_until)
                part = part.take(np.flatnonzero(known))
                identities = _identities(part)
            out += self._said_anew(part, identities, complete_until)
        gone = [
            identity
            for identity, (_, digest) in (self.said.items() if self.retractable else ())
            if identity[0] in self.retractable
            and digest is not None
            and identity not in there
            and not (silent and self._is_open(identity[0], identity[3], complete_until))
        ]
        indexed = [identity for identity in gone if identity[0] in self.indexed]
        others = [identity for identity in gone if identity[0] not in self.indexed]
        out += [self._retract(some, operators) for some in (indexed, others) if some]
        self._forget(horizon)
        return out

    def open(self, windows: Complete, until: int) -> Mask:
        """Which windows may lack events, of which none is missing before a time."""
        if until >= LATEST:
            return np.zeros(len(windows), np.bool_)
        last: Mask = windows.end == until
        return (windows.end > until) | (last & np.isin(windows.kind, list(self.closed)))

    def _is_open(self, kind: int, end: int, until: int) -> bool:
        return until < LATEST and (end > until or (end == until and kind in self.closed))

    def _said_anew(
        self, windows: Complete, identities: list[Identity], complete_until: int
    ) -> list[Complete]:
        digests = np.asarray(windows.column(self._told_by)).tolist()
        running = self.open(windows, complete_until).tolist()
        ends = windows.end.tolist()
        self._soonest = min(self._soonest, min(ends, default=LATEST))
        said, doubtful, nothing = self.said, self.doubtful, (-1, None)
        rows, revisions = [], []
        for row, identity in enumerate(identities):
            revision, known = said.get(identity, nothing)
            self.ends[identity] = ends[row]
            if known == digests[row] and (running[row] or identity not in doubtful):
                continue
            said[identity] = (revision + 1, digests[row])
            rows.append(row)
            revisions.append(revision + 1)
            (doubtful.add if running[row] else doubtful.discard)(identity)
        if not rows:
            return []
        changed = windows.take(np.array(rows, np.int64))
        changed.revision = np.array(revisions, np.int64)
        changed.retracted = np.zeros(len(rows), np.bool_)
        return [changed]

    def _retract(self, gone: list[Identity], operators: Operators) -> Complete:
        for identity in gone:
            self.said[identity] = (self.said[identity][0] + 1, None)
        kind, key, start, end, number = (
            np.array(column, np.int64) for column in zip(*gone, strict=True)
        )
        revision = np.array([self.said[identity][0] for identity in gone], np.int64)
        fields = identity_fields(operators, len(gone))
        index = number if gone[0][0] in self.indexed else None
        everything = np.ones(len(gone), np.bool_)
        return Complete(kind, key, start, end, fields, index, revision, everything)

    def _forget(self, horizon: int) -> None:
        """Windows that ended before the horizon are final."""
        if horizon <= self._soonest:
            return
        for identity in [i for i, end in self.ends.items() if end < horizon]:
            del self.ends[identity]
            self.said.pop(identity, None)
            self.doubtful.discard(identity)
        self._soonest = min(self.ends.values(), default=LATEST)

    def confirmed(self, complete_until: int) -> list[Identity]:
        """Doubtful windows of which nothing is missing any more."""
        if complete_until < self._soonest:
            return []
        return [
            i
            for i in self.doubtful
            if self.ends[i] <= complete_until and i[0] not in self.retractable
        ]

    def recode(self, place: Ints) -> None:
        """Renumbers the keys."""

        def moved(identity: Identity) -> Identity:
            kind, key, start, end, index = identity
            return kind, int(place[key]), start, end, index

        self.said = {moved(identity): said for identity, said in self.said.items()}
        self.ends = {moved(identity): end for identity, end in self.ends.items()}
        self.doubtful = {moved(identity) for identity in self.doubtful}

    @property
    def keys(self) -> list[int]:
        return [identity[1] for identity in self.said]


def _identities(windows: Complete) -> list[Identity]:
    index = np.zeros(len(windows), np.int64) if windows.index is None else windows.index
    columns = (windows.kind, windows.key, windows.start, windows.end, index)
    return list(zip(*(column.tolist() for column in columns), strict=True))
