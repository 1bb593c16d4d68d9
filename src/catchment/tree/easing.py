"""Which partials leave a node before their slices end, so that little is left to send then."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from catchment.engine.merger import Merger
from catchment.engine.rows import Rows, row_bytes
from catchment.flush.bandwidth import probe
from catchment.flush.evictions import EVICTIONS, Floats, Held, Ints, Memory, first_out
from catchment.flush.link import Link
from catchment.flush.settings import Flush
from catchment.flush.sharing import shares
from catchment.flush.sizes import Past, size
from catchment.flush.tuner import Spent, Tuner, cost_of
from catchment.flush.watch import Watch
from catchment.model.plan import Group, Plan

_SOON = 0.05
"""Seconds: what takes no longer to send may as well wait, says `auto`."""
_TELLING = 16
"""Rows of a message that tell how large rows are on the wire; before, a guess must do."""
_PACKED = 0.3
_SHARE = 0.2
_LEAST = 0.2
"""Seconds that early rows should keep the link busy: each message costs some bytes of its own."""
_LONGEST_STEP = 2.0
_SAMPLES = 16
_NOBODY = np.empty(0, np.int64)


def holds_back(group: Group) -> bool:
    """Whether slices of a group wait until they end; all that has ended by the data does not."""
    ahead = all(window.periods for window in group.windows)
    return group.slicing == "arrival" and not group.distinct_on and ahead


def _sorted(keys: Ints) -> Ints:
    """Each key once, in order; mostly each is there once already."""
    found = np.sort(keys)
    again = found[1:] == found[:-1]
    return np.unique(found) if again.any() else found


@dataclass
class _Slice:
    """What has come for a slice: keys, when, how often, and which of them are still here."""

    end: int
    watch: Watch
    keys: Ints = field(default_factory=lambda: _NOBODY)
    first: Floats = field(default_factory=lambda: np.empty(0))
    last: Floats = field(default_factory=lambda: np.empty(0))
    count: Floats = field(default_factory=lambda: np.empty(0))
    here: Any = field(default_factory=lambda: np.empty(0, np.bool_))
    sent: int = 0

    def touch(self, keys: Ints, now: float) -> None:
        keys = _sorted(keys)
        place = np.searchsorted(self.keys, keys)
        known = place < len(self.keys)
        known[known] = self.keys[place[known]] == keys[known]
        new = keys[~known]
        if len(new):
            at = place[~known]
            self.keys = np.insert(self.keys, at, new)
            self.first = np.insert(self.first, at, now)
            self.last = np.insert(self.last, at, now)
            self.count = np.insert(self.count, at, 0.0)
            self.here = np.insert(self.here, at, False)
            place = np.searchsorted(self.keys, keys)
        self.watch.arrived(len(keys), int((~self.here[place]).sum()))
        self.count[place] += 1
        self.last[place] = now
        self.here[place] = True

    def places(self, keys: Ints, now: float) -> Ints:
        """Where keys that are here stand; after a crash nothing is known of them."""
        place = np.searchsorted(self.keys, keys)
        strange = (place >= len(self.keys)) | (
            self.keys[np.minimum(place, len(self.keys) - 1)] != keys if len(self.keys) else True
        )
        if np.any(strange):
            self.touch(keys[strange], now)
            place = np.searchsorted(self.keys, keys)
        return place


@dataclass
class _Followed:
    """A group whose slices are followed."""

    slices: dict[int, _Slice] = field(default_factory=dict)
    past: Past | None = None
    memory: Memory = field(default_factory=Memory)
    keys: object = None
    """The index that gives keys their codes, as long as they mean the same."""

    def slice(self, begin: int, ends: Ints) -> _Slice:
        """The slice that begins there; of the ends that are known of it, the last counts."""
        if begin not in self.slices:
            end = int(ends.max())
            self.slices[begin] = _Slice(end, Watch(begin / 1e6, end / 1e6, self.past))
        return self.slices[begin]


@dataclass(frozen=True)
class _Offer:
    """A slice with more in it than there is room for."""

    group: int
    part: _Slice
    rows: Ints
    places: Ints
    sizes: Floats
    surplus: float
    weight: float


class Easing:
    """Follows the slices of a node by a flush policy. It forgets them in a crash: nothing that is
    counted depends on it, since what leaves early is in the record of the step."""

    def __init__(self, flush: Flush, link: Link, known: dict[str, Any]) -> None:
        self.flush, self.link = flush, link
        self.tuner = Tuner.from_dict(known["tuner"]) if "tuner" in known else Tuner()
        self.each = float(known.get("each", 0.0))
        """Bytes of a row on the wire, as of late; 0: none has gone yet."""
        self._raw = 0.0
        """Bytes of a row here, as of late."""
        self._cost = cost_of(flush)
        self._order = EVICTIONS[flush.eviction]
        self._groups: dict[int, _Followed] = {}
        self._steps: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)
        self.early = 0
        """Rows that have left early since the node was started."""
        self._closing: list[tuple[int, float, float, float, float]] = []

    def to_dict(self) -> dict[str, Any]:
        """What should outlive a crash; nothing, as long as nothing was learnt."""
        learnt = self.link.to_dict()
        if self.tuner != Tuner():
            learnt["tuner"] = self.tuner.to_dict()
        return learnt | ({"each": round(self.each, 2)} if learnt else {})

    def shown(self) -> dict[str, Any]:
        """How lazy it is just now, and how many rows have left early."""
        alpha = self.flush.policy.at(self.tuner.alpha).alpha
        lazy = {"alpha": alpha} if self.flush.policy.kind in ("auto", "hybrid") else {}
        return {"early rows": self.early} | lazy

    def forget(self) -> None:
        """Groups and keys have got other numbers."""
        self._groups = {}

    @property
    def active(self) -> bool:
        """Whether anything could leave early: what costs no staleness waits, and is not watched."""
        policy = self.flush.policy
        if policy.kind in ("batching", "streaming"):
            return policy.kind == "streaming"
        pure = policy.kind == "hybrid" and policy.alpha == 0
        return pure or math.isfinite(self.link.rate)

    # -- steps ------------------------------------------------------------------------------------

    def wrote(self, rows: int, size: int) -> None:
        """So many rows became a message of so many bytes."""
        if rows >= _TELLING:
            found = size / rows
            self.each += (_SHARE if self.each else 1.0) * (found - self.each)

    def _sizes(self, rows: Rows) -> Floats:
        """What rows will be on the wire: as rows are, but those that are larger more."""
        raw = row_bytes(rows)
        mean = float(raw.mean())
        self._raw += (_SHARE if self._raw else 1.0) * (mean - self._raw)
        return raw * ((self.each or _PACKED * mean) / self._raw)

    def choose(
        self, merger: Merger, plan: Plan, frontier: int, now: float, released: float, seq: int
    ) -> dict[int, Ints]:
        """Rows of each group's shelf that leave now; `released` bytes are about to go anyway."""
        chosen = self._chosen(merger, plan, frontier, now, released, seq)
        self.early += sum(len(rows) for rows in chosen.values())
        return chosen

    def _chosen(
        self, merger: Merger, plan: Plan, frontier: int, now: float, released: float, seq: int
    ) -> dict[int, Ints]:
        self._steps.append((now, frontier / 1e6))
        merger.watched = self.active
        touched = merger.touched()
        if not self.active:
            self._groups = {}
            return {}
        groups = [group for group in plan.groups if holds_back(group)]
        if self.flush.policy.kind == "streaming":
            return {g.id: np.arange(len(merger.shelf(g.id))) for g in groups}
        clock = max(merger.newest, frontier) / 1e6
        offers: list[_Offer] = []
        for group in groups:
            followed = self._groups.setdefault(group.id, _Followed())
            index = merger.groups[group.id].keys
            if followed.keys is not index:
                followed.keys, followed.memory, followed.slices = index, Memory(), {}
            for start, end, keys in touched.get(group.id, ()):
                self._touch(followed, start, end, keys, clock)
            self._close(followed, frontier, now, seq)
            offers += self._offers(group, plan, followed, merger.shelf(group.id), frontier, clock)
        return self._granted(offers, clock, released)

    def _touch(self, followed: _Followed, start: Ints, end: Ints, keys: Ints, clock: float) -> None:
        alone = bool((start == start[:1]).all())
        for begin in start[:1].tolist() if alone else np.unique(start).tolist():
            mine = slice(None) if alone else start == begin
            followed.slice(begin, end[mine]).touch(keys[mine], clock)

    def _close(self, followed: _Followed, frontier: int, now: float, seq: int) -> None:
        """Slices that have ended tell what the next will be like, and what they have cost."""
        for begin in [b for b, part in followed.slices.items() if part.end <= frontier]:
            part = followed.slices.pop(begin)
            many, length = len(part.keys), (part.end - begin) / 1e6
            if not many:
                continue
            followed.past = Past.of(
                part.first - begin / 1e6,
                part.last - begin / 1e6,
                part.count,
                np.full(many, self.each or 1.0),
                length,
                self.link.rate / self._speed,
            )
            followed.memory.learn(part.keys, part.count)
            sent = part.sent + int(part.here.sum())
            seconds = length / self._speed
            self._closing.append((seq, now, sent / many, seconds, sent * self.each / seconds))

    @property
    def _speed(self) -> float:
        """Seconds of event time in a second of the clock."""
        if len(self._steps) < 2:
            return 1.0
        (began, first), (ended, last) = self._steps[0], self._steps[-1]
        usable = ended > began and 0 < last - first < 1e9 * (ended - began)
        return (last - first) / (ended - began) if usable else 1.0

    @property
    def _gap(self) -> float:
        """Seconds until the next step, most likely."""
        if len(self._steps) < 2:
            return _SOON
        gap = (self._steps[-1][0] - self._steps[0][0]) / (len(self._steps) - 1)
        return min(max(gap, 1e-3), _LONGEST_STEP)

    def _offers(
        self,
        group: Group,
        plan: Plan,
        followed: _Followed,
        rows: Rows,
        frontier: int,
        clock: float,
    ) -> list[_Offer]:
        if not len(rows):
            return []
        weight = max(
            (
                self.flush.priorities.get(name, 1.0)
                for name, (id, _) in plan.names.items()
                if id == group.id
            ),
            default=1.0,
        )
        sizes = self._sizes(rows)
        made = []
        edges = [0, *(np.flatnonzero(np.diff(rows.start)) + 1).tolist(), len(rows)]
        for low, high in pairwise(edges):
            begin = int(rows.start[low])
            part = followed.slice(begin, rows.end[low:high])
            places = part.places(rows.key[low:high], clock)
            surplus = self._surplus(part, sizes[low:high], frontier, clock)
            if surplus > 0:
                found = np.arange(low, high)
                made.append(_Offer(group.id, part, found, places, sizes[low:high], surplus, weight))
        return made

    def _surplus(self, part: _Slice, sizes: Floats, frontier: int, clock: float) -> float:
        """Bytes of a slice that have no place here any more."""
        total, rate = float(sizes.sum()), self.link.rate
        auto = self.flush.policy.kind == "auto"
        if auto and total <= _SOON * rate:
            return 0.0
        policy = self.flush.policy.at(self.tuner.alpha)
        speed = self._speed
        moment = part.watch.moment(clock, rate / speed, total / len(sizes))
        left = max(part.end - frontier, 0) / 1e6
        # What is on its way must have arrived before what is still here.
        surplus = total + self.link.ahead - size(policy, moment.over(left))
        if auto and not self.link.ahead and self._steps:
            silent = self._steps[-1][0] - self.link.heard
            length = (part.watch.end - part.watch.begin) / speed
            surplus = max(surplus, probe(total, rate, silent, length))
        return surplus

    def _granted(self, offers: list[_Offer], clock: float, released: float) -> dict[int, Ints]:
        """As much as the link can take until the next step, shared out by priority."""
        if not offers:
            return {}
        rate = self.link.rate
        room = rate * max(self._gap, _LEAST) - self.link.ahead - released
        wanted = [offer.surplus for offer in offers]
        if math.isfinite(rate) and min(sum(wanted), room) < rate * _LEAST:
            return {}  # many small messages cost more than a few
        given = (
            shares(max(room, 0.0), wanted, [offer.weight for offer in offers])
            if math.isfinite(room)
            else np.array(wanted)
        )
        chosen: dict[int, list[Ints]] = {}
        for offer, amount in zip(offers, given.tolist(), strict=True):
            part, at = offer.part, offer.places
            followed = self._groups[offer.group]
            held = Held(
                part.last[at] - part.watch.begin,
                part.count[at],
                followed.memory.recall(part.keys[at]),
                clock - part.watch.begin,
                part.watch.end - part.watch.begin,
            )
            gone = first_out(self._order(held), offer.sizes, amount)
            part.here[at[gone]] = False
            part.sent += len(gone)
            if len(gone):
                chosen.setdefault(offer.group, []).append(offer.rows[gone])
        return {id: np.concatenate(rows) for id, rows in chosen.items()}

    # -- what came of it --------------------------------------------------------------------------

    def acknowledged(self, seq: int, now: float) -> None:
        """Slices whose last message has arrived tell the tuner what they cost."""
        done = [closed for closed in self._closing if closed[0] <= seq]
        self._closing = [closed for closed in self._closing if closed[0] > seq]
        if self.flush.policy.kind != "auto":
            return
        for _, ended, traffic, length, rate in done:
            spent = Spent(traffic, max(now - ended, 0.0), max(length, 1e-6), rate)
            self.tuner.spent(self._cost(spent))
