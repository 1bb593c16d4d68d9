"""Which rows leave before their slices end, so that little is left to send then.

`EarlySender` is the one that decides, for nodes, for the figures of `catchment bench flush` and for
`catchment advise`. It knows keys, sizes and times as arrays, and a link by three numbers; it knows
nothing of rows, messages or clocks:

    arrivals   --arrived-->              +-------------+
    rows held  --choose-->               | EarlySender | --> which of them leave now
    messages   --wrote, acknowledged-->  +-------------+

At every step a slice that is open holds some bytes, and the policy says how many it may hold. What
is more is wanted to leave; the link grants some of it, which the groups share by their weights; the
eviction says which rows these are. A slice that has ended tells what the next one will be like, and
the tuner what it has cost.

The drivers (`tree/early_flush.py`, `simulate/edge.py`) differ in what they tell, not in what is
decided:

- *Clocks.* A node's event time may go faster or slower than its clock; how fast is measured over
  the last steps, and rates are converted. In simulation both are one, and the measure is 1.
- *Frontier.* A slice ends when the frontier passes it; a node's frontier is behind its newest
  event, a simulated one's is not. What is left of a slice is counted from the frontier, its
  arrivals from the newest event.
- *Steps.* A node does not know when its next step is, and expects one after the average gap of the
  last; simulation has ticks, and says when the next is.
- *Pacing.* By default no more leaves than the link can take until the next step, and nothing as
  long as that is so little that a message of its own is not worth it; what is on its way already
  counts as if it were still here, since it arrives before. `paced=False` gives the paper's edges,
  which hand all that is too much to the link at once, and let it queue.
- *Several groups* share the room on the link by weights. Every slice counts on the whole link.
- *Arrivals.* Whoever merges before it tells gives a key once for each batch that it came in; in
  simulation each arrival is told.
- *Sizes.* The bytes of the rows that are held are told at every step. Once a slice has ended, its
  rows count as of average size (`each`): only that is known of those that have left.
- *Late arrivals*, for slices that have ended, leave at once without being asked for. They tell
  nothing of the next slice, and are charged to the slice of their group that ends next.
- *What a slice cost* is told to the tuner when its last message is acknowledged; a simulated link
  knows at once when that will be.
- *Whether to follow slices* while nothing could leave early (`active`), or all leaves at once
  (`holds_nothing`), is up to the driver: a node spares itself the work, and has no slice before to
  go by when its link becomes slow.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from catchment.flush.average import moving
from catchment.flush.bandwidth import probe
from catchment.flush.evictions import EVICTIONS, KeyHistory, first_out
from catchment.flush.learnt import NOTHING, Learnt
from catchment.flush.open_slice import OpenSlice
from catchment.flush.policy import Policy
from catchment.flush.settings import Flush
from catchment.flush.sharing import shares
from catchment.flush.sizes import SliceHistory, size
from catchment.flush.tuner import Spent, Tuner, cost_of
from catchment.operators.ragged import Floats, Ints

_SOON = 0.05
"""Seconds: what takes no longer to send may as well wait, says `auto`."""
_LEAST = 0.2
"""Seconds that early rows should keep the link busy: each message costs some bytes of its own."""
_LONGEST_STEP = 2.0
_STEPS = 16
"""Steps over which gaps and the speed of event time are averaged."""
_TELLING = 16
"""Rows of a message that tell how large rows are on the wire."""
_NOBODY = np.empty(0, np.int64)


class Uplink(Protocol):
    """What a sender must know of its link."""

    @property
    def rate(self) -> float:
        """Bytes a second that may be counted on; infinite: it has never been slow."""

    @property
    def ahead(self) -> float:
        """Bytes that will arrive before whatever is sent next."""

    @property
    def heard(self) -> float:
        """When something was last acknowledged, by the clock, in seconds."""


class FlushStep(NamedTuple):
    """When rows are chosen; all times are in seconds."""

    now: float
    """By the clock."""
    frontier: float
    """The frontier, in event time: slices that end by it have ended."""
    newest: float
    """The event time of the newest arrival, or the frontier if that is later."""
    released: float = 0.0
    """Bytes that are about to leave anyway."""
    seq: int = 0
    """The number of the message that what is chosen will be in, or that comes next."""
    gap: float | None = None
    """Seconds until the next step; None: nobody knows."""


class HeldRows(NamedTuple):
    """The rows of an open slice that have not left."""

    group: int
    begin: float
    end: float
    keys: Ints
    """The key of each row; each key occurs once, and they are in order."""
    sizes: Floats
    """Bytes of each row on the wire."""
    weight: float = 1.0
    """The group's share of a link that is too narrow for all."""


@dataclass
class _GroupSender:
    """A group whose slices are followed."""

    slices: dict[float, OpenSlice] = field(default_factory=dict)
    """By when they begin."""
    past: SliceHistory | None = None
    memory: KeyHistory = field(default_factory=KeyHistory)
    late: int = 0
    """Rows for slices that had ended, since the last slice did."""

    def slice(self, begin: float, end: float, expected: Ints | None = None) -> OpenSlice:
        if begin not in self.slices:
            self.slices[begin] = OpenSlice(begin, end, self.past, expected)
        return self.slices[begin]


class _Wanted(NamedTuple):
    """A slice with more in it than there is room for."""

    place: int
    """Among the rows that are held."""
    rows: HeldRows
    part: OpenSlice
    surplus: float


class _Closed(NamedTuple):
    """A slice that has ended, and whose last message has not been acknowledged."""

    seq: int
    ended: float
    """By the clock."""
    traffic: float
    """Rows sent for each key."""
    length: float
    rate: float
    """Bytes a second, both by the clock."""


class EarlySender:
    """Follows open slices by a flush policy, and chooses the rows that leave early.

    It may be forgotten at any time, since no result depends on it.
    """

    def __init__(
        self,
        flush: Flush,
        link: Uplink,
        known: Learnt = NOTHING,
        *,
        each: float = 0.0,
        paced: bool = True,
    ) -> None:
        """`known` is what was learnt before a crash. Where that says nothing of it, a row is taken
        to have `each` bytes on the wire."""
        self.flush, self.link, self.paced = flush, link, paced
        self.tuner = Tuner() if known.tuner is None else replace(known.tuner)
        self.each = each if known.each is None else known.each
        """Bytes of a row on the wire, as of late; 0: none has gone yet."""
        self.early = 0
        """Rows that have left early so far."""
        self._cost = cost_of(flush)
        self._order = EVICTIONS[flush.eviction]
        self._groups: dict[int, _GroupSender] = {}
        self._steps: deque[tuple[float, float]] = deque(maxlen=_STEPS)
        self._frontier = -math.inf
        self._closing: list[_Closed] = []
        self._tuned: tuple[float, Policy] | None = None

    def learnt(self) -> Learnt:
        """What should outlive a crash, beside what the link has learnt; often nothing."""
        return NOTHING if self.tuner == Tuner() else Learnt(tuner=replace(self.tuner))

    @property
    def alpha(self) -> float:
        """How lazy it is just now, from 0 to 1."""
        return self._policy().alpha

    @property
    def holds_nothing(self) -> bool:
        """Whether all rows leave at once, so that there is nothing to follow."""
        return self.flush.policy.kind == "streaming"

    @property
    def active(self) -> bool:
        """Whether anything could leave early: it does not where waiting costs no staleness."""
        policy = self.flush.policy
        if policy.kind in ("batching", "streaming"):
            return policy.kind == "streaming"
        pure = policy.kind == "hybrid" and policy.alpha == 0
        return pure or math.isfinite(self.link.rate)

    def forget(self, group: int | None = None) -> None:
        """Forgets all groups; or the keys of one, because they have got other codes. Rows that are
        held may be told again: they then count as arrived at that moment."""
        if group is None:
            self._groups = {}
        elif group in self._groups:
            self._groups[group] = _GroupSender(past=self._groups[group].past)

    def _followed(self, group: int) -> _GroupSender:
        if group not in self._groups:
            self._groups[group] = _GroupSender()
        return self._groups[group]

    # -- what comes -------------------------------------------------------------------------------

    def expect(self, group: int, begin: float, end: float, keys: Ints) -> None:
        """Opens a slice of which all keys that will come are known: this only saves time."""
        self._followed(group).slice(begin, end, keys)

    def arrived(
        self, group: int, begin: float, end: float, keys: Ints, times: Floats | float
    ) -> None:
        """Takes arrivals for a slice, in order: the key and the event time of each."""
        followed = self._followed(group)
        if end <= self._frontier:
            followed.late += len(np.unique(keys))
        else:
            followed.slice(begin, end).arrived(keys, times)

    def wrote(self, rows: int, size: int) -> None:
        """So many rows became a message of so many bytes."""
        if rows >= _TELLING:
            self.each = moving(self.each, size / rows)

    def acknowledged(self, seq: int, now: float) -> None:
        """Messages up to this one have arrived; slices that ended with them tell what they cost."""
        done = [closed for closed in self._closing if closed.seq <= seq]
        self._closing = [closed for closed in self._closing if closed.seq > seq]
        if self.flush.policy.kind != "auto":
            return
        for closed in done:
            late = max(now - closed.ended, 0.0)
            spent = Spent(closed.traffic, late, max(closed.length, 1e-6), closed.rate)
            self.tuner.spent(self._cost(spent))

    def held_keys(self, group: int, begin: float) -> Ints:
        """Keys of an open slice that came and have not left since, in order."""
        followed = self._groups.get(group)
        part = None if followed is None else followed.slices.get(begin)
        return _NOBODY if part is None else part.held_keys()

    # -- what leaves ------------------------------------------------------------------------------

    def choose(self, held: Sequence[HeldRows], step: FlushStep) -> list[Ints]:
        """Which rows of each open slice leave now, as places among them; the rest stay.

        Slices that have ended by the frontier are closed: they must not be among those held.
        """
        self._steps.append((step.now, step.frontier))
        self._frontier = step.frontier
        for followed in self._groups.values():
            self._close(followed, step)
        if self.holds_nothing:
            return [self._everything(rows, step) for rows in held]
        wanted = []
        for place, rows in enumerate(held):
            if not len(rows.keys):
                continue
            followed = self._followed(rows.group)
            part = followed.slice(rows.begin, rows.end)
            if part.cached != len(rows.keys):
                part.places(rows.keys, step.newest)
            surplus = self._surplus(part, rows.sizes, step)
            if surplus > 0:
                wanted.append(_Wanted(place, rows, part, surplus))
        chosen = [_NOBODY] * len(held)
        for want, amount in zip(wanted, self._granted(wanted, step), strict=True):
            if amount > 0:
                gone = self._leaving(want, amount, step.newest)
                chosen[want.place] = gone
                self.early += len(gone)
        return chosen

    def _everything(self, rows: HeldRows, step: FlushStep) -> Ints:
        """Sends all rows of a slice early; a slice that is followed notes that they have gone."""
        followed = self._groups.get(rows.group)
        part = None if followed is None else followed.slices.get(rows.begin)
        if part is not None:
            part.leave(part.places(rows.keys, step.newest))
        self.early += len(rows.keys)
        return np.arange(len(rows.keys))

    def _close(self, followed: _GroupSender, step: FlushStep) -> None:
        """Slices that have ended tell what the next will be like, and what they have cost."""
        ended = [begin for begin, part in followed.slices.items() if part.end <= step.frontier]
        for begin in ended:
            part = followed.slices.pop(begin)
            seen = part.count > 0
            many = int(seen.sum())
            if not many:
                continue
            followed.past = part.closed(self.each or 1.0, self.link.rate / self._speed)
            followed.memory.learn(part.keys[seen], part.count[seen])
            sent, followed.late = part.sent + part.cached + followed.late, 0
            length = part.length / self._speed
            self._closing.append(
                _Closed(step.seq, step.now, sent / many, length, sent * self.each / length)
            )

    @property
    def _speed(self) -> float:
        """Seconds of event time in a second of the clock."""
        if len(self._steps) < 2:
            return 1.0
        (began, first), (ended, last) = self._steps[0], self._steps[-1]
        usable = ended > began and 0 < last - first < 1e9 * (ended - began)
        return (last - first) / (ended - began) if usable else 1.0

    def _policy(self) -> Policy:
        """The policy with the alpha of the moment."""
        alpha = self.tuner.alpha
        if self._tuned is None or self._tuned[0] != alpha:
            self._tuned = alpha, self.flush.policy.at(alpha)
        return self._tuned[1]

    def _gap(self, step: FlushStep) -> float:
        """Seconds until the next step, most likely."""
        if step.gap is not None:
            return step.gap
        if len(self._steps) < 2:
            return _SOON
        gap = (self._steps[-1][0] - self._steps[0][0]) / (len(self._steps) - 1)
        return min(max(gap, 1e-3), _LONGEST_STEP)

    def _surplus(self, part: OpenSlice, sizes: Floats, step: FlushStep) -> float:
        """Bytes of a slice that have no place here any more."""
        total, rate = float(sizes.sum()), self.link.rate
        auto = self.flush.policy.kind == "auto"
        if auto and total <= _SOON * rate:
            return 0.0
        moment = part.watch.moment(step.newest, rate / self._speed, total / len(sizes))
        left = max(part.end - step.frontier, 0.0)
        moment = moment if moment.left == left else moment.over(left)
        # What is on its way must have arrived before what is still here.
        ahead = self.link.ahead if self.paced else 0.0
        surplus = total + ahead - size(self._policy(), moment)
        if auto and not self.link.ahead:
            silent = step.now - self.link.heard
            surplus = max(surplus, probe(total, rate, silent, part.length / self._speed))
        return surplus

    def _granted(self, wanted: Sequence[_Wanted], step: FlushStep) -> list[float]:
        """How much of each surplus may leave: what the link can take until the next step."""
        surplus = [want.surplus for want in wanted]
        rate = self.link.rate
        if not wanted or not self.paced or math.isinf(rate):
            return surplus
        room = rate * max(self._gap(step), _LEAST) - self.link.ahead - step.released
        if min(sum(surplus), room) < rate * _LEAST:
            return [0.0] * len(wanted)  # many small messages cost more than a few
        weights = [want.rows.weight for want in wanted]
        given: list[float] = shares(max(room, 0.0), surplus, weights).tolist()
        return given

    def _leaving(self, want: _Wanted, amount: float, now: float) -> Ints:
        """The rows that the eviction order sends first, up to a number of bytes."""
        part = want.part
        places = part.places(want.rows.keys, now)
        memory = self._groups[want.rows.group].memory
        gone = first_out(self._order(part.at(places, memory, now)), want.rows.sizes, amount)
        part.leave(places[gone])
        return gone
