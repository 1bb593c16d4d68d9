"""A local node's part in the count windows of one key.

Events and what the root says go in; facts about positions of events, and pieces (partials or
events) come out. Events are cut where the root has found edges, or unasked where the next ones are
expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from catchment.counting.edges import RankEdges
from catchment.counting.event_buffer import EventBuffer
from catchment.counting.fold import Fold
from catchment.counting.forecast import span
from catchment.counting.message import (
    Answers,
    Ask,
    Down,
    Forecast,
    FoundEdge,
    NewLife,
    NodeShare,
    Samples,
    SlicePiece,
    Up,
    Zone,
    evenly,
)
from catchment.counting.place import Place, after, at
from catchment.counting.scheme import SCHEMES
from catchment.counting.wire import Columns
from catchment.model.window import Counted
from catchment.operators.ragged import Ints

AHEAD = 8
"""Edges past the last known one for which a node sends pieces unasked."""
EARLIEST, LATEST = -(2**62), 2**62
_GROWN = 1.1


class SentRange(NamedTuple):
    """What was sent: from which position to which, and whether as events."""

    low: int
    high: int
    raw: bool


class LocalState(Struct, frozen=True, array_like=True):
    """What a `LocalCounter` must not lose: its attributes of the same names."""

    buffer: EventBuffer
    life: int
    down: Down | None
    answered: set[int]
    refused: bool
    known: dict[int, FoundEdge]
    done: int
    passed: int
    sent_ranges: list[SentRange]
    sent: int
    last_sent: tuple[int, int]
    speak: bool
    pieces: list[SlicePiece]
    counts: dict[Place, int]
    samples: dict[int, Samples]
    spans: dict[int, tuple[int, int]]


class LocalCounter:
    """Holds a node's events until the root has what it needs of them.

    The ranges that were sent are remembered. An edge, or a zone around one, may ask for one to be
    cut finer; nothing else is sent twice.
    """

    def __init__(self, node: int, windows: Sequence[Counted], fold: Fold) -> None:
        self.node, self.fold = node, fold
        self.edges = RankEdges(windows)
        self.buffer = EventBuffer(node)
        self.life = 0
        self.down: Down | None = None
        self.answered: set[int] = set()
        """Asks and zones of the last word that were answered."""
        self.refused = False
        """Whether the root wants nothing more of this node, because something was not right."""
        self.known = {0: FoundEdge(0, at(EARLIEST))}
        """Edges that the root found, from the last complete one on."""
        self.done = self.passed = 0
        self.sent_ranges: list[SentRange] = []
        self.sent = 0
        self.last_sent: tuple[int, int] = (EARLIEST, 0)
        self._seen = -1
        self.pieces: list[SlicePiece] = []
        self.counts: dict[Place, int] = {}
        self.samples: dict[int, Samples] = {}
        self.spans: dict[int, tuple[int, int]] = {}
        self.speak = False

    # -- events and words in ---------------------------------------------------------------------

    def push(self, times: Ints, arrivals: Ints, data: Columns) -> None:
        self.buffer.push(times, arrivals, data)

    def advance(self, frontier: int) -> None:
        self.buffer.advance(frontier)

    @property
    def frontier(self) -> int:
        return EARLIEST if self.buffer.frontier is None else self.buffer.frontier

    def hear(self, down: Down) -> None:
        """Takes what the root says; what it said before that is out of date."""
        if self.down is not None and down.version <= self.down.version:
            return
        if self.node in down.gone:
            self.speak = True
            self.refused = self.node in down.refused
            return
        new = down.lives.get(self.node)
        if new is not None and new.life > self.life:
            self._begin(new, down)
        self.down = down
        self.answered &= down.numbers
        for edge, found in down.edges.items():
            if edge not in self.known and edge > self.done:
                self.known[edge] = found
                if edge > down.complete:
                    cut = self.buffer.before(found.place)
                    self._expose(cut, cut)
                self.passed = max(self.passed, edge)
        self._forget(down.complete)
        if down.again:
            self._repeat()

    def _begin(self, new: NewLife, down: Down) -> None:
        """Begins a new life after this node was given up, or is new: events before the place that
        the root names are late."""
        self.life, self.refused = new.life, False
        self.buffer.advance(new.place.time)
        self.buffer.renumber(new.position, new.place)
        self.sent_ranges = []
        self._clear()
        self.sent = new.position
        self.answered = set()
        self.known = dict(down.edges)
        self.done = down.complete
        self.passed = max([down.complete, *self.known])
        self.speak = True

    def _forget(self, complete: int) -> None:
        """The root has all pieces up to an edge: the events are not needed any more."""
        if complete <= self.done or complete not in self.known:
            return
        cut = self.buffer.before(self.known[complete].place)
        self.buffer.drop(cut)
        self.sent_ranges = [
            t._replace(low=max(t.low, cut)) for t in self.sent_ranges if t.high > cut
        ]
        self.known = {edge: what for edge, what in self.known.items() if edge >= complete}
        self.done = complete

    def _repeat(self) -> None:
        """Says again what may have been lost."""
        for sent_range in self.sent_ranges:
            self._send(sent_range)
        self.answered = set()
        self.speak = True

    # -- words out -------------------------------------------------------------------------------

    def step(self) -> Up | None:
        """What there is to say now."""
        if self.refused:
            return self._refused()
        down, scheme = self.down, "" if self.down is None else SCHEMES[self.down.scheme]
        if scheme == "central":
            self._expose(self.sent, self.buffer.end)
        for zone in () if down is None else down.zones:
            if zone.number not in self.answered:
                self._on_zone(zone)
        for ask in () if down is None or down.ask_list is None else down.ask_list.to_list():
            if ask.number not in self.answered:
                self._on_ask(ask)
        if down is not None and down.forecast is not None and scheme in ("async", "approx"):
            self._ahead(down.forecast, scheme == "approx")
        silent = down is not None and bool(down.ask_list is not None or down.zones or down.forecast)
        now = (self.frontier, self.buffer.end)
        news = not silent and now != self.last_sent and self._worth(now)
        if not (news or self.speak or self.pieces or self.counts):
            return None
        self.last_sent = now
        up = self._up()
        self._clear()
        self.speak = False
        return up

    def _up(self) -> Up:
        return Up(
            self.node,
            self.life,
            self.frontier,
            self.buffer.end,
            self.passed,
            sorted(self.answered),
            self.counts,
            Answers.of(self.samples),
            self.pieces,
            self.buffer.late,
            self.spans,
        )

    def _refused(self) -> Up | None:
        """Keeps nothing, and says how many events that are."""
        self.buffer.late += self.buffer.settled
        self.buffer.drop(self.buffer.end)
        self.sent_ranges, self.sent = [], self.buffer.end
        self._clear()
        speak, self.speak = self.speak or self.frontier >= LATEST > self.last_sent[0], False
        self.last_sent = (self.frontier, self.buffer.end)
        return self._up() if speak else None

    def _clear(self) -> None:
        self.pieces, self.counts, self.samples, self.spans = [], {}, {}, {}

    def _worth(self, now: tuple[int, int]) -> bool:
        """Whether to tell unasked how far this node is: not of every few events."""
        still, self._seen = now[1] == self._seen, now[1]
        ended = now[0] >= LATEST
        return now[0] > EARLIEST and (still or ended or now[1] >= _GROWN * self.last_sent[1])

    def _on_ask(self, ask: Ask) -> None:
        if at(self.frontier) < ask.high:
            return
        low, high = self.buffer.before(ask.low), self.buffer.before(ask.high)
        count = min(ask.most, high - low)
        positions = evenly(low, high, count)
        events = self.buffer.events(low, high).take(positions - low)
        ahead = events.arrivals - positions
        self.samples[ask.number] = Samples(low, high, events.times, ahead)
        self.answered.add(ask.number)
        self.speak = True

    def _on_zone(self, zone: Zone) -> None:
        span = None if zone.spans is None else zone.spans.get(self.node)
        due = at(self.frontier) >= zone.high
        if span is not None and (due or self.buffer.end >= span[1]):
            low, high = (min(max(position, self.buffer.base), self.buffer.end) for position in span)
            self._fence(low, high)
        elif due:
            low, high = self.buffer.before(zone.low), self.buffer.before(zone.high)
            self.spans[zone.number] = (low, high)
        else:
            return
        self._expose(low, high)
        self.passed = max(self.passed, zone.edge)
        self.answered.add(zone.number)
        self.speak = True

    def _ahead(self, forecast: Forecast, blind: bool) -> None:
        """Cuts where the next edges are expected, without waiting for orders."""
        edge, rank = forecast.edge, forecast.rank
        last = max(self.known)
        while blind or edge < last + AHEAD:
            edge, rank = edge + 1, self.edges.after(rank)
            if edge <= self.passed:
                continue
            if forecast.sizes is None:
                low, high = span(forecast, rank)
                if self.frontier < high:
                    return
                bounds = self.buffer.before(at(low)), self.buffer.before(at(high))
                self.counts |= {at(low): bounds[0], at(high): bounds[1]}
            else:
                found = self._share(forecast, rank, blind)
                if found is None:
                    return
                bounds = found
                self._fence(*bounds)
            self._expose(*bounds)
            self.passed = edge
            self.speak = True
            if blind:  # nobody will ask where in these events the edge is
                self.buffer.drop(self.sent)
                self.sent_ranges = []

    def _share(self, forecast: Forecast, rank: int, blind: bool) -> tuple[int, int] | None:
        """From which position to which an edge is expected, by this node's share of a stride."""
        assert forecast.sizes is not None
        start, share, buffer = forecast.sizes.get(self.node, NodeShare(self.sent, 0, 0))
        strides = (rank - forecast.rank) / forecast.stride
        middle = start + round(share * strides)
        low, high = (middle, middle) if blind else (middle - buffer, middle + buffer)
        wait = strides * forecast.stride * forecast.pace * (1 + 2 * buffer / max(share, 1))
        if blind and share == 0:
            return None  # it has no part in the windows
        if self.buffer.end < high and (blind or self.frontier < forecast.time + wait):
            return None
        low, high = (min(max(p, self.buffer.base), self.buffer.end) for p in (low, high))
        return low, high

    def _fence(self, low: int, high: int) -> None:
        """Tells the places at both ends of a zone that is given by positions."""
        if low > self.buffer.base:
            self.counts[after(self.buffer.place(low - 1))] = low
        if high < self.buffer.end:
            self.counts[self.buffer.place(high)] = high

    # -- ranges that were sent ---------------------------------------------------------------------

    def _expose(self, low: int, high: int) -> None:
        """Has ranges end at two positions, and everything between them go as events."""
        low = max(low, self.buffer.base)
        sent_ranges = []
        for sent_range in self.sent_ranges:
            if sent_range.raw or sent_range.high <= low or sent_range.low >= high:
                sent_ranges.append(sent_range)
                continue
            sent_ranges += self._split(sent_range, low, high)
        self.sent_ranges = sent_ranges
        if low > self.sent:
            self._add_range(SentRange(self.sent, low, raw=False))
        if high > self.sent:
            self._add_range(SentRange(self.sent, high, raw=True))

    def _split(self, sent_range: SentRange, low: int, high: int) -> list[SentRange]:
        start, end, _ = sent_range
        low, high = max(low, start), min(max(high, low), end)
        parts = [
            SentRange(start, low, False),
            SentRange(low, high, True),
            SentRange(high, end, False),
        ]
        parts = [part for part in parts if part.high > part.low]
        if len(parts) > 1 or parts[0].raw:
            for part in parts:
                self._send(part)
        return parts

    def _add_range(self, sent_range: SentRange) -> None:
        self.sent_ranges.append(sent_range)
        self._send(sent_range)
        self.sent = sent_range.high

    def _send(self, sent_range: SentRange) -> None:
        low, high, raw = sent_range
        events, positions = self.buffer.events(low, high), np.arange(low, high)
        data = self.fold.raw(events.data) if raw else self.fold.lift(events.data)
        if not raw:
            positions = positions[[0, -1]]
            events = events.take(positions - low)
        ahead = events.arrivals - positions
        self.pieces.append(SlicePiece(low, high, raw, events.times, ahead, data))

    # -- for those who run it --------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """Whether this node has said all it was asked for, in a scheme where it waits then."""
        down = self.down
        if down is None or not down.waits or self.refused:
            return False
        return bool(down.numbers) and down.numbers <= self.answered

    def first(self, column: str, default: int) -> int:
        """The least value of a column in the events that are kept."""
        return self.buffer.least(column, default)

    @property
    def events(self) -> int:
        """Events that are kept."""
        return self.buffer.settled + self.buffer.waiting

    def state(self) -> LocalState:
        """All that it must not lose, as of now: it must be written down before anything else."""
        return LocalState(*(getattr(self, name) for name in LocalState.__struct_fields__))

    @classmethod
    def restored(cls, state: LocalState, windows: Sequence[Counted], fold: Fold) -> LocalCounter:
        """A counter that goes on from a state that was written down."""
        made = cls(state.buffer.node, windows, fold)
        for name in LocalState.__struct_fields__:
            setattr(made, name, getattr(state, name))
        return made
